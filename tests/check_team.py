"""What a team promises: plain functions of a class that is made like chapter 34's ``Team``.

``PROMISES`` holds the promises by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import AgentLoop
from paradigms.orchestrator import ORCHESTRATOR, Worker
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect
from tests.office_worlds import answers

Make = Callable[..., Any]
NAMES = ("Senior Researcher", "Writer", "天气员")
#: Case M03: how models write the name of a worker that there is.
WRITTEN = ("'Senior Researcher'", "'senior researcher '", "\"['Senior Researcher']\"", ["Senior Researcher"])


def team(make: Make, names: tuple[str, ...] = NAMES) -> Any:
    return make({name: Worker(AgentLoop(answers), "works") for name in names})


def refusal(make: Make, wanted: Any) -> str:
    """What a team says of a name; empty where it finds somebody."""
    try:
        found = team(make).find(wanted)
    except ValueError as error:
        return str(error)
    except Exception as error:
        raise BrokenPromise(f"asked for {wanted!r}, it raised {type(error).__name__}: {error}") from error
    expect(found in NAMES, f"asked for {wanted!r}, it found {found!r}, who is not in the team {NAMES}")
    return ""


def a_name_in_any_writing_reaches_its_worker(make: Make) -> None:
    """Quotes, brackets, case and blanks around and within a name do not matter (M03)."""
    for written in WRITTEN:
        try:
            found = team(make).find(written)
        except Exception as error:
            raise BrokenPromise(f"{written!r} is the researcher, and it said {error}") from error
        expect(found == NAMES[0], f"{written!r} is the researcher, and it found {found!r}")

    signs = st.text("'\"[]`* \n", max_size=4)

    @settings(deadline=None, database=None)
    @given(st.sampled_from(NAMES), signs, signs, st.sampled_from([str.upper, str.lower, str.title, str]))
    def check(name: str, before: str, after: str, case: Callable[[str], str]) -> None:
        written = f"{before}{case(name)}{after}"
        told = refusal(make, written)
        expect(not told, f"{written!r} is {name!r}, and it said {told}")
        found = team(make).find(written)
        expect(found == name, f"{written!r} is {name!r}, and it found {found!r}")

    check()


def an_unknown_name_is_answered_with_those_that_are_accepted(make: Make) -> None:
    """Whoever is not in the team is refused, with exactly the names that would be accepted (M03)."""
    strangers: tuple[Any, ...] = ("Wizard", "Senior", "Writer, 天气员", "", None, 7, ["Writer", "Wizard"], {})
    for wanted in strangers:
        told = refusal(make, wanted)
        expect(bool(told), f"there is no worker {wanted!r}, and somebody was found")
        listed = re.findall(r"'([^']+)'", told.rpartition(":")[2])
        expect(listed == list(NAMES), f"the names are {NAMES}, and it offers {listed}: {told}")
        for name in listed:
            expect(not refusal(make, name), f"it offers {name!r}, and then refuses it")


def the_orchestrator_is_no_worker(make: Make) -> None:
    """The orchestrator cannot hand work to itself, under any writing of its name (M03)."""
    for written in (ORCHESTRATOR, ORCHESTRATOR.upper(), f"'{ORCHESTRATOR.title()}'"):
        expect(bool(refusal(make, written)), f"work for {written!r} was taken by somebody")
        expect(not _builds(make, ("Writer", written)), f"a worker may be called {written!r}")


def names_that_are_too_much_alike_make_no_team(make: Make) -> None:
    """A team of nobody, of the nameless, or of two that no writing could tell apart is refused."""
    for names in ((), ("",), ("..",), ("Writer", "writer"), ("Writer", "'Writer'"), ("a b", "a  B")):
        expect(not _builds(make, names), f"a team of {names} was made")
    expect(_builds(make, ("Writer", "Writer 2")), "Writer and Writer 2 can be told apart")


def _builds(make: Make, names: tuple[str, ...]) -> bool:
    try:
        team(make, names)
    except ValueError:
        return False
    return True


def its_workers_are_shown_with_their_duties(make: Make) -> None:
    """What a prompt shows of a team names every worker as it is called, and says what it is for."""
    shown = team(make).describe()
    missing = [name for name in NAMES if name not in shown]
    expect(not missing and shown.count("works") == len(NAMES), f"{missing} are missing in {shown!r}")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        a_name_in_any_writing_reaches_its_worker,
        an_unknown_name_is_answered_with_those_that_are_accepted,
        the_orchestrator_is_no_worker,
        names_that_are_too_much_alike_make_no_team,
        its_workers_are_shown_with_their_duties,
    )
}
