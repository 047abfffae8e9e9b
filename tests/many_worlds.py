"""Offices that a worker in another process can import, without what the tests import."""

from __future__ import annotations

import os
from typing import Any

from agentloop import AgentLoop, Finish, Program, World


def mortal(task: str) -> tuple[Program[Any], World]:
    """An office that answers; its worker dies of the task "die"."""
    if task == "die":
        os._exit(1)
    return AgentLoop(lambda context: Finish(f"{task}: 晴")).run(task), World(inline=True)


class TwoParts(Exception):
    """An exception that is sent, and cannot be made again where it arrives."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


def failing(task: str) -> tuple[Program[Any], World]:
    """An office that fails with it."""
    raise TwoParts(task, "more")
