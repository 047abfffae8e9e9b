"""The tests. Shared parts are imported as ``tests.gallery``, ``tests.check_machine`` and so on."""
