"""The workbench: a version of the reader's own, put under the promises that ours keeps.

``python -m pytest --impl machine=my_machine.py:advance`` runs one test for each promise of a machine
and tells the shortest story that breaks it. To put a new kind of thing on the workbench, write its
promises in a file like ``check_machine.py`` and add a line to ``CHECKS``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: What can be checked, and the module whose ``PROMISES`` say how: a name for each check of one thing.
CHECKS = {
    "machine": "tests.check_machine",
    "loop": "tests.check_loop",
    "parser": "tests.check_parser",
    "driver": "tests.check_driver",
    "think": "tests.check_think",
    "view": "tests.check_view",
}

#: How long one promise may take, in seconds. Ours take one or two: what takes longer never returns.
PATIENCE = 120.0

FORM = "--impl NAME=PATH:ATTRIBUTE, for example --impl machine=my_machine.py:advance"


def promises(check: str) -> Mapping[str, Callable[[Any], None]]:
    """The promises of one kind of thing, by name."""
    found: Mapping[str, Callable[[Any], None]] = importlib.import_module(CHECKS[check]).PROMISES
    return found


class CutOff(Exception):
    """Code of the reader's that did not return."""


def run_with_patience(work: Callable[[], Any], seconds: float) -> Any:
    """What ``work`` returns or raises; ``CutOff`` if it does neither in time.

    It runs on a daemon thread: one that never returns is left behind, and the interpreter still exits.
    """
    came_to: list[tuple[Any, BaseException | None]] = []

    def labour() -> None:
        try:
            came_to.append((work(), None))
        except BaseException as error:
            came_to.append((None, error))

    thread = threading.Thread(target=labour, daemon=True)
    thread.start()
    thread.join(seconds)
    if not came_to:
        raise CutOff
    value, error = came_to[0]
    if error is not None:
        raise error
    return value


class Implementation:
    """A thing of the reader's, as ``--impl`` named it."""

    def __init__(self, asked: str, check: str, thing: Any) -> None:
        self.asked, self.check, self.thing = asked, check, thing
        self.hangs = False


def load(asked: str, folder: Path, patience: float = PATIENCE) -> Implementation:
    """Find what ``NAME=PATH:ATTRIBUTE`` asks for. Raises ``pytest.UsageError`` with what would be right."""
    parts = _parts(asked)
    if parts.check not in CHECKS:
        raise _usage(asked, f"there is no check named {parts.check!r}; there are {', '.join(sorted(CHECKS))}")
    promises(parts.check)  # before the file, so that what both import is imported once
    path = folder / parts.path
    if not path.is_file():
        raise _usage(asked, f"there is no file {path}; give its path from {folder}")
    try:
        module = run_with_patience(lambda: _imported(path, parts.check), patience)
    except CutOff:
        raise _usage(asked, f"importing {path.name} had not ended after {patience:g} s") from None
    except BaseException as error:
        raise _usage(asked, f"{path.name} cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, parts.attribute):
        public = ", ".join(name for name in vars(module) if not name.startswith("_"))
        raise _usage(asked, f"{path.name} has no {parts.attribute!r}; it has {public or 'nothing'}")
    thing = getattr(module, parts.attribute)
    if not callable(thing):
        raise _usage(asked, f"{parts.attribute} is {thing!r}, and what is checked must be callable")
    return Implementation(asked, parts.check, thing)


class _Parts(NamedTuple):
    check: str
    path: str
    attribute: str


def _parts(asked: str) -> _Parts:
    check, _, place = asked.partition("=")
    path, _, attribute = place.rpartition(":")
    if not (check and path and attribute.isidentifier()):
        raise _usage(asked, f"it does not have the form {FORM}")
    return _Parts(check.strip(), path, attribute)


def _usage(asked: str, why: str) -> pytest.UsageError:
    return pytest.UsageError(f"--impl {asked}: {why}")


def _imported(path: Path, check: str) -> Any:
    """The module in the file. One of ours is not imported twice: its types would be strangers to ours."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path.resolve()):
            return module
    name = f"implementation_of_{check}"
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


class Kept(pytest.Item):
    """One promise, put to one implementation."""

    def __init__(self, *, implementation: Implementation, promise: str, patience: float, **more: Any) -> None:
        super().__init__(**more)
        self.implementation, self.promise, self.patience = implementation, promise, patience

    def runtest(self) -> None:
        """Raises what breaking the promise raises, or ``CutOff``."""
        if self.implementation.hangs:
            pytest.skip("this version does not return")
        keep = promises(self.implementation.check)[self.promise]
        try:
            run_with_patience(lambda: keep(self.implementation.thing), self.patience)
        except CutOff:
            self.implementation.hangs = True
            raise

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """The story alone; a traceback only where the promise itself tells none, and after the words."""
        error = excinfo.value
        if isinstance(error, CutOff):
            return (
                f"CUT OFF: {self.implementation.asked} had not returned after {self.patience:g} s. "
                "It goes round for ever, or waits for something that does not come."
            )
        if isinstance(error, AssertionError) and str(error):
            return "\n".join([str(error), *getattr(error, "__notes__", ())])
        told = f"{self.implementation.asked} broke down with {type(error).__name__}: {error}"
        return f"{told}\n\n{excinfo.getrepr(style='short', chain=False)}"

    def reportinfo(self) -> tuple[Path, None, str]:
        return Path(self.implementation.asked), None, f"{self.implementation.check}: {self.promise}"


def laid_out(
    session: pytest.Session, implementations: list[Implementation], patience: float
) -> Iterator[Kept]:
    """One test for each promise of each implementation."""
    for implementation in implementations:
        for promise in promises(implementation.check):
            yield Kept.from_parent(
                session,
                name=f"{implementation.check}: {promise}",
                nodeid=f"{implementation.asked}::{promise}",
                implementation=implementation,
                promise=promise,
                patience=patience,
            )
