"""A storm: errands in 北京, done while tools and model fail in every way that guards are there for.

Each seed is a world of its own: an errand of ``errands.py``, its tools, a model, a person and a clock. Of the
troubles below some are brewing in it; when one really strikes, ``struck`` counts it. Nothing that is not
brewing happens, and nobody who is given the world can see what is.

The model does the obvious thing (for searches, it is that of ``simulated.py``), reads nothing but its prompt,
and mends when it is told what its trouble needs: a model in a rut goes on until it is told to change
direction, one that believes in a tool of its own invention until it is corrected. A mere failure does not
move it. So what is counted here is what each word to the model is worth to *this* model; all chances are made
up. The person lets nobody pay, and prefers a second look to a guess.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

from agentloop import CallModel, CallTool, Effect, Message, Toolbox, Unavailable, World
from fake_llm.clock import FakeClock
from fake_llm.errands import PRICES, TRAILS, Errand, ErrandKind, ask_at, errands, get_price
from fake_llm.models import FakeModel
from fake_llm.simulated import simulated_model
from fake_llm.tools import Cashier, SpoiledTool


class Trouble(Enum):
    """What can go wrong: with the tools, then with the model."""

    __hash__ = object.__hash__
    FLICKERS = "a tool fails, and works when it is asked again"
    IS_DOWN = "a tool refuses every connection, for a while or for good"
    HANGS = "a call of a tool does not come back"
    NONSENSE = "a tool answers with nonsense"
    DIFFERS = "a tool answers with a value that is not so"
    HUGE = "a tool's answer fills the context"
    OVERLOADED = "the model cannot be had for some seconds"
    STALLS = "a request to the model does not come back"
    UNREADABLE = "the model writes what nobody can read"
    EARLY = "the model answers before it has looked"
    EMBROIDERS = "the model adds to its answer what nothing showed"
    INVENTS_TOOL = "the model calls a tool that does not exist"
    INVENTS_ARGUMENTS = "the model calls a tool with arguments that it does not take"
    LOOPS = "the model takes one useless action over and over"
    CIRCLES = "the model takes two useless actions in turn, over and over"
    GUESSES = "the model guesses, and says that it is not sure"
    WANTS_TO_PAY = "the model wants to spend money that nobody told it to spend"


BREWING = 0.2  # the chance that a trouble is brewing
OFTEN, SELDOM = 0.3, 0.12  # the chance that it strikes, whenever there is occasion
HANG = 600.0  # seconds that a call would take which does not come back
THINKING, LOOKING = 1.0, 0.5  # seconds of a request to the model, of a call of a tool

NONSENSE: tuple[Any, ...] = (
    None,
    {"status": "error"},
    "<html>502 Bad Gateway</html>",
    "NaN",
    [],
    "\ufffd\ufffd",
    "…",
    0,
)
BABBLE = ("这件事要从头说起。", 'Thought: 再想想。\nAction: ask_at(place="', "Action: ", "")
ADVERTISEMENT = "欢迎来北京，四季皆宜，老少咸宜，童叟无欺。"
#: What was dropped where nobody has been: a question about it is of no use.
KEY = "钥匙"


class Storm:
    """One seed's world. ``struck`` counts what really happened, ``ledger`` is the money that was spent.

    ``brewing`` says which troubles may strike, in the place of those that the seed would draw. Time passes as
    ``takes(effect)`` says, for a driver on ``clock``: a call that hangs is not performed by anybody.
    """

    def __init__(self, seed: int, brewing: Sequence[Trouble] | None = None) -> None:
        draw = random.Random(seed)
        kinds = (ErrandKind.EXPLORATORY, ErrandKind.STRUCTURED)
        self.errand: Errand = draw.choice([errand for errand in errands() if errand.kind in kinds])
        drawn = [trouble for trouble in Trouble if draw.random() < BREWING]
        self.brewing = frozenset(drawn if brewing is None else brewing)
        self.clock = FakeClock()
        self.struck: Counter[Trouble] = Counter()
        self._draw = draw
        self._down_until = draw.choice((20.0, 60.0, math.inf))
        self._hangs_always = draw.random() < 0.5
        self._cashier = Cashier()
        self.ledger = self._cashier.ledger
        self.tools = self._toolbox()
        self.world = World(
            FakeModel(_Mind(self, seed).respond), self.tools, person, clock=self.clock.now, inline=True
        )

    def strikes(self, trouble: Trouble, chance: float) -> bool:
        """Whether a trouble happens now; if so, it is counted."""
        comes = self.comes(trouble, chance)
        self.struck[trouble] += comes
        return comes

    def comes(self, trouble: Trouble, chance: float) -> bool:
        """Whether a trouble comes up now; whoever asks counts it, if it really changes something."""
        return trouble in self.brewing and self._draw.random() < chance

    def pick(self, choices: Sequence[Any]) -> Any:
        return self._draw.choice(choices)

    def takes(self, effect: Effect) -> float:
        """How long an effect takes, in seconds, if nobody cuts it off."""
        if isinstance(effect, CallModel):
            return HANG if self.strikes(Trouble.STALLS, SELDOM) else THINKING
        if isinstance(effect, CallTool):
            sick = effect.call.name in (ask_at.__name__, get_price.__name__)
            hangs = sick and self.strikes(Trouble.HANGS, 1.0 if self._hangs_always else OFTEN)
            return HANG if hangs else LOOKING
        return 0.0

    # --- The tools ------------------------------------------------------------------------------

    def _toolbox(self) -> Toolbox:
        steady: list[Callable[..., Any]] = [look_for, add_up, ask_by_phone, price_by_phone]
        tools = [*(self._spoiled(tool) for tool in (ask_at, get_price)), *map(self._flickering, steady)]
        idempotent = [tool.__name__ for tool in tools]
        return Toolbox([*tools, self._cashier.pay], idempotent=idempotent)

    def _flickering(self, tool: Callable[..., Any]) -> SpoiledTool:
        return SpoiledTool(tool, lambda number, run: self._unless_it_flickers(run))

    def _unless_it_flickers(self, run: Callable[[], Any]) -> Any:
        if self.strikes(Trouble.FLICKERS, OFTEN):
            raise self.pick((Unavailable("busy", retry_after=2), ConnectionError("connection reset by peer")))
        return run()

    def _spoiled(self, tool: Callable[..., Any]) -> SpoiledTool:
        def behave(number: int, run: Callable[[], Any]) -> Any:
            if self.clock.now() < self._down_until and self.strikes(Trouble.IS_DOWN, 1.0):
                raise ConnectionRefusedError("closed for repairs")
            if self.strikes(Trouble.NONSENSE, OFTEN):
                return self.pick(NONSENSE)
            result = self._unless_it_flickers(run)
            if self.comes(Trouble.DIFFERS, OFTEN):
                told = self._otherwise(result)
                self.struck[Trouble.DIFFERS] += told != result
                result = told
            if self.strikes(Trouble.HUGE, OFTEN):
                result = f"{result}\n{ADVERTISEMENT * 400}"
            return result

        return SpoiledTool(tool, behave)

    def _otherwise(self, result: str) -> str:
        """The same result with another number, or another place, in it; two of them seldom agree."""
        told = re.sub(r"\d+", lambda found: str(self.pick(range(100, 10_000))), result)
        return re.sub("往\\w+去了", f"往{self.pick(tuple(PRICES))}去了", told)


def ask_by_phone(place: str, about: str) -> str:
    """Ask the people at a place on the phone."""
    return ask_at(place, about)


def price_by_phone(place: str) -> str:
    """Ask for the price of a ticket on the phone."""
    return get_price(place)


def look_for(place: str, about: str) -> str:
    """Go to a place and look for what was lost: the proof that it is there."""
    if TRAILS.get(about, ("",))[-1] != place:
        raise LookupError(f"there is no {about} at {place}")
    return f"找到了：{about}在{place}。"


def add_up(amounts: list[int]) -> str:
    """Add up amounts, in yuan."""
    return f"合计 {sum(amounts)} 元"


def person(question: str) -> str:
    """Somebody who lets nobody pay, and wants no guesses."""
    return "不要付款，只是问问。" if "pay(" in question else "不要猜，再看一看。"


# --- The model ------------------------------------------------------------------------------------


class _Mind:
    """What the model of one run has in its head, besides what it is shown."""

    def __init__(self, storm: Storm, seed: int) -> None:
        self._storm = storm
        self._calm = simulated_model(seed)
        self._overloaded_until = 0.0
        self._rut: Iterator[str] | None = None
        self._delusion = ""

    def respond(self, request: CallModel) -> str:
        """Say the obvious, unless trouble strikes."""
        self._may_be_overloaded()
        latest = request.messages[-1].content
        if "换方向" in latest:
            self._rut = None
        if "警告" in latest:
            self._delusion = ""
        self._may_go_astray()
        if self._rut is not None:
            return _said(next(self._rut))
        if self._delusion:
            return _said(self._delusion)
        if self._storm.strikes(Trouble.UNREADABLE, SELDOM):
            return str(self._storm.pick(BABBLE))
        if self._strikes_once(Trouble.WANTS_TO_PAY):
            return _said("pay(amount=100)")
        return self._action(request, latest)

    def _may_be_overloaded(self) -> None:
        storm = self._storm
        if storm.strikes(Trouble.OVERLOADED, SELDOM):
            self._overloaded_until = storm.clock.now() + storm.pick((1.0, 3.0, 5.0))
        if storm.clock.now() < self._overloaded_until:
            raise ConnectionError("503 overloaded")

    def _may_go_astray(self) -> None:
        """Fall into a rut, or begin to believe in something that does not exist."""
        useless = [f'ask_by_phone(place="{place}", about="{KEY}")' for place in ("景山", "天坛")]
        if self._strikes_once(Trouble.LOOPS):
            self._rut = itertools.repeat(useless[0])
        elif self._strikes_once(Trouble.CIRCLES):
            self._rut = itertools.cycle(useless)
        elif self._strikes_once(Trouble.INVENTS_TOOL):
            self._delusion = "find_out()"
        elif self._strikes_once(Trouble.INVENTS_ARGUMENTS):
            self._delusion = 'add_up(first=30, second="20 元")'

    def _strikes_once(self, trouble: Trouble) -> bool:
        return not self._storm.struck[trouble] and self._storm.strikes(trouble, SELDOM)

    def _action(self, request: CallModel, latest: str) -> str:
        storm, task = self._storm, request.messages[1].content
        if not request.messages[3:] and storm.strikes(Trouble.EARLY, 1.0):
            return _said(_first_thought(task))
        known = request._replace(messages=(*request.messages[:2], *map(_trusted, request.messages[2:])))
        seen = "\n".join(message.content for message in known.messages[2:])
        action = _buying(task, seen) if "门票" in task else self._searching(known, seen)
        if action.startswith("Finish["):
            if "No observation shows" not in latest and storm.strikes(Trouble.EMBROIDERS, 1.0):
                return _said(f"{action[:-1]}出门向右走 4711 米。]")
        elif storm.comes(Trouble.GUESSES, OFTEN):
            guess = _guess(action, storm.pick(range(1, 10_000)))
            storm.struck[Trouble.GUESSES] += guess != action
            return _said(guess, sure=0.3)
        return _said(action)

    def _searching(self, request: CallModel, seen: str) -> str:
        """What the simulated model does, but that it goes and looks before it says where something is."""
        found = re.search(r"找到了：(\w{1,8})在(\w{1,8})。", seen)
        if found:
            return f"Finish[{found[1]}在{found[2]}。]"
        action = str(self._calm(request).text.partition("Action: ")[2])
        where = re.fullmatch(r"Finish\[(\w+)在(\w+)。\]", action)
        return f'look_for(place="{where[2]}", about="{where[1]}")' if where else action


#: What it thinks, by what it does.
THOUGHTS = {
    "ask_at": "去打听一下。",
    "get_price": "查一下票价。",
    "look_for": "去看一看。",
    "add_up": "加起来。",
    "Finish": "可以作答了。",
    "ask_by_phone": "还有那把钥匙。",
    "find_out": "好像有个工具能直接查到。",
    "pay": "顺便把钱付了。",
}


def _said(action: str, sure: float = 0.9) -> str:
    thought = THOUGHTS[re.split(r"[(\[]", action)[0]]
    return f"Thought: {thought}\nConfidence: {sure}\nAction: {action}"


def _trusted(message: Message) -> Message:
    """The message without the model's own words, and without results that nobody should rely on."""
    if message.role == "assistant":
        return message._replace(content="")
    parts = message.content.splitlines() if message.content.startswith("Summary") else [message.content]
    return message._replace(content="\n".join(part for part in parts if not _DOUBTED.search(part)))


#: What a guard says of results that do not agree, and of one that two others do not confirm.
_DOUBTED = re.compile("The results do not agree|Not confirmed by: [^)]*,")


def _first_thought(task: str) -> str:
    """An answer in the words of the task: it sounds right, and nobody has looked."""
    lost = re.match(r"(\w+)不见了，最后有人在(\w+)见过它", task)
    return f"Finish[{lost[1]}在{lost[2]}。]" if lost else f"Finish[合计 {re.findall('[0-9]+', task)[0]} 元]"


def _buying(task: str, seen: str) -> str:
    """Look up each price, add up, and answer."""
    total = re.findall(r"合计 (\d{1,12}) 元", seen)
    if total:
        return f"Finish[合计 {total[-1]} 元]"
    prices = dict(re.findall(r"(\w{1,8})门票 (\d{1,6}) 元一张", seen))
    items = re.findall(r"(\w{1,8}) (\d{1,6}) 张", task)
    for place, _ in items:
        if place not in prices:
            return f'get_price(place="{place}")'
    return f"add_up(amounts={[int(prices[place]) * int(count) for place, count in items]})"


def _guess(action: str, number: int) -> str:
    """The same action with other numbers, or, where it has none, at another place."""
    if re.search(r"\d", action):
        return re.sub(r"\d+", str(number), action)
    places = tuple(PRICES)
    return re.sub('place="[^"]*"', f'place="{places[number % len(places)]}"', action)
