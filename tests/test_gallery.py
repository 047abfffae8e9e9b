"""Each wrong version is caught by the promise that it names; ours, built the same way, keeps them all."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentloop import Account, AgentLoop, EventKind, Limits, advance
from tests.gallery import Fault, wrong_version
from tests.workbench import CHECKS, promises


def galleries() -> Iterator[Fault]:
    """Every fault of every tuple of faults in the files ``gallery*.py``."""
    for path in sorted(Path(__file__).parent.glob("gallery*.py")):
        for thing in vars(importlib.import_module(f"tests.{path.stem}")).values():
            if isinstance(thing, tuple) and thing and all(isinstance(each, Fault) for each in thing):
                yield from thing


FAULTS = tuple(galleries())
CHECKED = sorted({fault.check for fault in FAULTS})


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_the_promise_it_names(fault: Fault) -> None:
    with pytest.raises(AssertionError) as caught:
        promises(fault.check)[fault.caught_by](wrong_version(fault))
    assert str(caught.value).strip(), "a broken promise is told in words"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "name"),
    [(fault, name) for fault in FAULTS for name in fault.passes],
    ids=lambda part: part.name if isinstance(part, Fault) else part,
)
def test_a_fault_keeps_the_promises_it_says_it_keeps(fault: Fault, name: str) -> None:
    promises(fault.check)[name](wrong_version(fault))


#: Promises that no wrong version here breaks. The faults of drivers hang: test_drivers.py has them.
GAPS = {
    "driver": set(promises("driver")),
}


@pytest.mark.parametrize("check", CHECKS)
def test_every_promise_is_needed(check: str) -> None:
    caught = {fault.caught_by for fault in FAULTS if fault.check == check}
    assert caught == set(promises(check)) - GAPS.get(check, set())


def test_each_fault_belongs_to_a_check_of_the_workbench() -> None:
    assert set(CHECKED) <= set(CHECKS)


def test_names_are_told_once() -> None:
    names = [fault.name for fault in FAULTS]
    assert [name for name in names if names.count(name) > 1] == []


# --- The gallery's own mechanism --------------------------------------------------------------


def test_a_fault_that_is_out_of_step_says_so() -> None:
    with pytest.raises(LookupError, match="must stand once in advance, not 0 times"):
        wrong_version(Fault("gone", "advance", old="no such text", new="", caught_by="rank_falls"))


def test_a_changed_function_is_used_by_all_that_call_it() -> None:
    fault = Fault("sevenfold", "advance", "rounds += round_", "rounds += 7", caught_by="", of="Account")
    account = wrong_version(fault)(Limits())
    account.post(EventKind.TASK_ARRIVED)
    assert account.control.rounds == 7
    assert isinstance(account, Account)
    assert advance.__globals__["advance"] is advance, "ours is untouched"


def test_a_changed_method_is_used_too() -> None:
    fault = Fault(
        "free of charge",
        "Account.charge",
        "self.post(MODEL_CALL",
        "print(MODEL_CALL",
        caught_by="",
        of="AgentLoop",
    )
    wrong = wrong_version(fault)
    assert issubclass(wrong, AgentLoop)
    assert wrong.run.__globals__["Account"] is not Account
