"""A house with a hungry cat: a world that actions change, and that does not wait for the next one.

It has what makes a loop necessary (article B, 循环结构; article A, OODA循环). It is partially
observable (部分可观察): the robot sees only the room it is in, and hears only through the next doors. It
is sequential (序贯): without the fish there is no feeding. And it changes by itself (动态): with
every minute the cat walks on, so a plan made from the first look is out of date when carried out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from agentloop import Do, Program

#: The rooms, in a ring: each has a door to the one before and the one after.
ROOMS = ("客厅", "厨房", "阳台", "书房", "卧室")


class CatHouse:
    """A robot in 客厅, a fish in 厨房, and a cat somewhere: the task is to feed the cat.

    Its tools are ``look``, ``move``, ``take_fish`` and ``feed_cat``; each takes a minute, and a
    tool that raises takes none. Where the cat walks follows from the ``seed``. It never leaves a
    room with the robot and the fish in it.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._robot, self._cat = "客厅", self._random.choice(("阳台", "书房"))
        self._fish = "in the kitchen"
        self.minute = 0

    @property
    def tools(self) -> tuple[Callable[..., str], ...]:
        """The tools of this house, for a ``Toolbox``."""
        return (self.look, self.move, self.take_fish, self.feed_cat)

    @property
    def goal_met(self) -> bool:
        """Whether the cat has been fed."""
        return self._fish == "eaten"

    def view(self) -> dict[str, Any]:
        """Return what the robot can know from where it stands; unlike its tools, this takes no time."""
        doors = _doors(self._robot)
        fish_here = self._fish == "in the kitchen" and self._robot == "厨房"
        return {
            "minute": self.minute,
            "room": self._robot,
            "doors": list(doors),
            "sees": ["the cat"] * (self._cat == self._robot) + ["a fish"] * fish_here,
            "hears": f"a meow from {self._cat}" if self._cat in doors and not self.goal_met else "nothing",
            "carries": "a fish" if self._fish == "carried" else "nothing",
        }

    def perceive(self, task: str) -> Program[dict[str, Any]]:
        """Put the view into working memory: the ``perceive`` hook of an ``AgentLoop``.

        The house is outside the program, so it is read by an effect, and a replay finds what was
        seen the first time.
        """
        seen: dict[str, Any] = (yield Do("perceive the house", self.view, repeatable=True)).value
        return seen

    def look(self) -> str:
        """Look round and listen for a minute."""
        return self._after("You look round.")

    def move(self, room: str) -> str:
        """Go through a door into the next room."""
        if room not in _doors(self._robot):
            raise ValueError(f"no door leads from {self._robot} to {room}: {_doors_text(self._robot)}")
        self._robot = room
        return self._after(f"You go to {room}.")

    def take_fish(self) -> str:
        """Take the fish that lies in this room."""
        if self._fish != "in the kitchen" or self._robot != "厨房":
            raise LookupError(f"there is no fish to take in {self._robot}")
        self._fish = "carried"
        return self._after("You take the fish.")

    def feed_cat(self) -> str:
        """Give the fish you carry to the cat in this room."""
        if self._fish != "carried":
            raise LookupError("you carry no fish: find one and take it first")
        if self._cat != self._robot:
            raise LookupError(f"the cat is not in {self._robot}: listen where it meows")
        self._fish = "eaten"
        return self._after("The cat eats the fish and purrs.")

    def _after(self, deed: str) -> str:
        """Let the minute pass, and tell what the world looks like at its end."""
        self.minute += 1
        tempted = self._fish == "carried" and self._cat == self._robot
        if not tempted and not self.goal_met:
            self._cat = self._random.choice(_doors(self._cat))
        seen = self.view()
        return (
            f"{deed} You see {' and '.join(seen['sees']) or 'nobody'}. You hear {seen['hears']}. "
            f"You carry {seen['carries']}. You are in {seen['room']}: {_doors_text(seen['room'])}."
        )


def _doors(room: str) -> tuple[str, str]:
    place = ROOMS.index(room)
    return ROOMS[place - 1], ROOMS[(place + 1) % len(ROOMS)]


def _doors_text(room: str) -> str:
    return f"doors lead to {' and '.join(_doors(room))}"
