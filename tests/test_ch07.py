"""Chapter 07: the same loops under three drivers, and what its demo says of them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest

from agentloop import AgentLoop, AskHuman, CallModel, CallTool, Do, Sleep, Start, StopReason, Toolbox, drive
from chapters.ch07_drivers import (
    SERVICES,
    VISITOR,
    Bus,
    Came,
    Wanted,
    comes_to_an_end,
    demo,
    drive_async,
    drive_on_bus,
    office,
    one_by_one,
    pretend_world,
)
from chapters.telling import Telling
from fake_llm import get_attraction, get_weather
from paradigms.react import react

QUIET = Telling(io.StringIO())
EFFECTS = (Start, CallModel, CallTool, AskHuman, Sleep, Do)


def test_A13_one_by_one_two_agents_who_need_each_other_never_end() -> None:
    async def main() -> bool:
        return await comes_to_an_end(one_by_one(*office(QUIET)))

    assert asyncio.run(main()) is False


@pytest.mark.parametrize("driver", [drive_async, drive_on_bus], ids=lambda driver: driver.__name__)
def test_A14_side_by_side_they_both_end(driver: Callable[..., Any]) -> None:
    guide, scout = asyncio.run(driver(*office(QUIET)))
    assert (guide.stop, scout.stop) == (StopReason.FINAL_ANSWER, StopReason.FINAL_ANSWER)
    assert (guide.answer, scout.answer) == ("颐和园和长城", "报告已写")
    assert guide.turns[0].observations[0].text == "Sunny，26 摄氏度", "what the scout wrote"


def test_A12_one_loop_has_the_same_result_under_every_driver() -> None:
    tools = Toolbox([get_weather, get_attraction])
    loop, world = AgentLoop(react(tools)), pretend_world(tools)
    expected = drive(loop.run(VISITOR), world)
    assert expected.answer == "北京晴，去颐和园和长城"
    assert asyncio.run(drive_async(loop.run(VISITOR), world)) == expected
    assert asyncio.run(drive_on_bus(loop.run(VISITOR), world)) == expected
    assert asyncio.run(one_by_one(loop.run(VISITOR), world)) == expected


def test_A15_each_effect_is_taken_by_one_service() -> None:
    taken = [topic for service in SERVICES.values() for topic in service.topics]
    assert sorted(topic.__name__ for topic in taken) == sorted(topic.__name__ for topic in EFFECTS)


def test_A15_what_triggers_what() -> None:
    async def main() -> list[Wanted | Came]:
        bus = Bus()
        log = bus.subscribe(*EFFECTS, Came)
        await drive_on_bus(*office(QUIET), bus=bus)
        return [log.get_nowait() for _ in range(log.qsize())]

    events = asyncio.run(main())
    wanted = {event.number: event.effect for event in events if isinstance(event, Wanted)}
    order = [event.number for event in events if isinstance(event, Came)]
    assert sorted(order) == sorted(wanted), "each wish is answered once"
    assert [type(wanted[number]) for number in (1, 2)] == [Start, Start], "perception comes first"
    tools = {effect.call.name: number for number, effect in wanted.items() if isinstance(effect, CallTool)}
    assert order.index(tools["write_board"]) < order.index(tools["read_board"]), "who waited is answered last"
    assert tools["read_board"] < tools["write_board"], "though it asked first"


def test_the_demo_computes_what_it_claims() -> None:
    out = io.StringIO()
    demo(Telling(out))
    told = out.getvalue()
    assert told.count(": yes") == 3 and ": NO" not in told
    assert "Nothing moves." in told
    assert told.index("Nothing moves.") < told.index("FINAL_ANSWER")
