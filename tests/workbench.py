"""The workbench: a version of the reader's own, put under the promises that ours keeps.

``python -m pytest --impl machine=my_machine.py:advance`` runs one test for each promise of a machine
and tells the shortest story that breaks it. To put a new kind of thing on the workbench, write its
promises in a file like ``check_machine.py`` and add a line to ``CHECKS``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from linecache import getline
from pathlib import Path
from reprlib import Repr
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Any, NamedTuple

import pytest
from hypothesis.errors import Flaky

from agentloop import cut

#: What can be checked, and the module whose ``PROMISES`` say how: a name for each check of one thing.
CHECKS = {
    "machine": "tests.check_machine",
    "loop": "tests.check_loop",
    "parser": "tests.check_parser",
    "reader": "tests.check_function_calling",
    "toolbox": "tests.check_toolbox",
    "driver": "tests.check_driver",
    "think": "tests.check_think",
    "view": "tests.check_view",
    "robot": "tests.check_robot",
    "recall": "tests.check_recall",
    "chain": "tests.check_chain_of_thought",
    "tree": "tests.check_tree_of_thoughts",
    "depth_first": "tests.check_depth_first",
    "reflexion": "tests.check_reflexion",
    "outer_loop": "tests.check_outer_loop",
    "plan": "tests.check_plan",
    "plan_and_solve": "tests.check_plan_and_solve",
    "simulated": "tests.check_simulated",
    "form": "tests.check_form",
    "verified": "tests.check_verified",
    "refusals": "tests.check_refusals",
    "all_of": "tests.check_all_of",
    "ends_when": "tests.check_ends_when",
    "sized": "tests.check_sized",
    "stop_rule": "tests.check_stop_rule",
    "repetition": "tests.check_repetition",
    "cycle": "tests.check_cycle",
    "similarity": "tests.check_similarity",
    "stagnation": "tests.check_stagnation",
    "warning": "tests.check_warning",
    "approval": "tests.check_approval",
    "critical": "tests.check_critical",
    "disk_journal": "tests.check_disk_journal",
    "retry": "tests.check_retry",
    "fallback": "tests.check_fallback",
    "breaker": "tests.check_breaker",
    "breaker_guard": "tests.check_breaker_guard",
    "grounded": "tests.check_grounded",
    "corrective": "tests.check_corrective",
    "consistent": "tests.check_consistent",
    "confident": "tests.check_confident",
    "checked": "tests.check_checked",
    "plot": "tests.check_plot",
    "robust": "tests.check_robust",
    "window": "tests.check_window",
    "summary": "tests.check_summary",
    "store": "tests.check_store",
    "memory": "tests.check_memory",
    "notebook": "tests.check_notebook",
    "shelf": "tests.check_shelf",
    "sub_agent": "tests.check_sub_agent",
    "staged": "tests.check_staged",
    "run_many": "tests.check_run_many",
    "pool": "tests.check_pool",
    "cache": "tests.check_cache",
    "checkpoints": "tests.check_checkpoints",
    "draft": "tests.check_draft",
    "inbox": "tests.check_inbox",
    "conversation": "tests.check_conversation",
    "board": "tests.check_board",
    "update": "tests.check_update",
    "team": "tests.check_team",
    "handed_out": "tests.check_handed_out",
    "orchestrator": "tests.check_orchestrator",
    "in_turn": "tests.check_in_turn",
    "controlling": "tests.check_controlling",
    "two_layers": "tests.check_two_layers",
    "durable_run": "tests.check_lease",
    "inquiry": "tests.check_inquiry",
    "evolution": "tests.check_evolution",
    "bandit": "tests.check_bandit",
    "interval": "tests.check_interval",
}

#: How long one promise may take, in seconds. Ours take one or two: what takes longer never returns.
PATIENCE = 120.0

FORM = "--impl NAME=PATH:ATTRIBUTE, for example --impl machine=my_machine.py:advance"


def promises(check: str) -> Mapping[str, Callable[[Any], None]]:
    """The promises of one kind of thing, by name."""
    found: Mapping[str, Callable[[Any], None]] = importlib.import_module(CHECKS[check]).PROMISES
    return found


# --- Finding the reader's version -------------------------------------------------------------


class Implementation:
    """A thing of the reader's, as ``--impl`` named it, and the file in which it was found."""

    def __init__(self, asked: str, check: str, thing: Any, file: Path) -> None:
        self.asked, self.check, self.thing, self.file = asked, check, thing, file
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
    return Implementation(asked, parts.check, thing, Path(module.__file__))


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


# --- Running it -------------------------------------------------------------------------------

Place = tuple[FrameType, int]  # a call, and the line on which it stands or ended


class CutOff(Exception):
    """Code of the reader's that did not return; ``places`` is where it stands, outermost call first."""

    def __init__(self, places: Iterable[Place] = ()) -> None:
        super().__init__()
        self.places = list(places)


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
        standing = sys._current_frames().get(thread.ident or 0)
        raise CutOff(reversed(list(walk_stack(standing))) if standing else ())
    value, error = came_to[0]
    if error is not None:
        raise error
    return value


def verdict(implementation: Implementation, promise: str, patience: float = PATIENCE) -> str | None:
    """The story of how this version breaks a promise, in plain words; ``None`` if it keeps it.

    Whatever goes wrong is told as a story, and of all the code that ran it shows the reader's alone.
    """
    keep = promises(implementation.check)[promise]
    try:
        run_with_patience(lambda: keep(implementation.thing), patience)
    except KeyboardInterrupt:
        raise
    except CutOff as error:
        implementation.hangs = True
        story = _story_of_a_cut(error, implementation, patience)
    except BaseException as error:
        story = _story(error, implementation.file)
    else:
        return None
    if not story[0].startswith("Broken promise: "):
        story.insert(0, f"Broken promise: {_meaning(keep, promise)}")
    return _shortened("\n".join(story))


# --- Telling what went wrong ------------------------------------------------------------------


def _story(error: BaseException, file: Path) -> list[str]:
    """What broke the promise: its own words, or else what the reader's code raised, and where."""
    if isinstance(error, Flaky):
        first = getattr(error, "exceptions", [error])[0]
        again = f"{file.name} does not do the same again when it is given the same. The first time:"
        return [again, *(_story(first, file) if first is not error else [str(error)])]
    places = _known(walk_tb(error.__traceback__), file)
    theirs = _in(places, file)
    raised_by_theirs = bool(theirs) and theirs[-1] is places[-1]
    if isinstance(error, AssertionError) and str(error) and not raised_by_theirs:
        cause = _in(walk_tb(error.__cause__.__traceback__), file) if error.__cause__ else []
        return [str(error), *map(_line, cause[-1:])]
    if theirs:
        return [f"{file.name} broke down with {_named(error)}", _given(theirs[0]), _line(theirs[-1])]
    where = [f"  where the promise says: {_code(place)}" for place in places[-1:]]
    return [f"{file.name} does not fit: {_named(error)}", *where]


def _story_of_a_cut(error: CutOff, implementation: Implementation, patience: float) -> list[str]:
    theirs = _in(error.places, implementation.file)
    cut_off = (
        f"CUT OFF: {implementation.asked} had not returned after {patience:g} s. "
        "It goes round for ever, or waits for something that does not come."
    )
    return [cut_off, *([_given(theirs[0]), _line(theirs[-1])] if theirs else [])]


def _known(places: Iterable[Place], file: Path) -> list[Place]:
    """The places in the reader's file and in the promises: not those in what both of them call."""
    ours = Path(__file__).parent
    return [place for place in places if file == _file(place) or ours == _file(place).parent]


def _in(places: Iterable[Place], file: Path) -> list[Place]:
    return [place for place in places if file == _file(place)]


def _file(place: Place) -> Path:
    return Path(place[0].f_code.co_filename)


def _code(place: Place) -> str:
    return getline(place[0].f_code.co_filename, place[1]).strip()


def _line(place: Place) -> str:
    return f"  {_file(place).name}, line {place[1]}: {_code(place)}"


def _given(place: Place) -> str:
    """How the reader's code was called, with its arguments as they are by now."""
    frame, _ = place
    names, rest, named, values = inspect.getargvalues(frame)
    given = [name for name in (*names, rest, named) if name in values and name not in ("self", "cls")]
    shown = ", ".join(f"{name}={_shown(values[name])}" for name in given)
    return f"  in {frame.f_code.co_qualname}({shown})"


_short = Repr()
_short.maxstring, _short.maxother = 200, 80


def _shown(value: object) -> str:
    """A value in a line at most; where it stands in memory tells a reader nothing."""
    return re.sub(r"( object| instance)? at 0x[0-9a-f]+", "", _short.repr(value))


def _named(error: BaseException) -> str:
    """The name of an exception, and what it says; its ``str`` is the reader's, and may fail too."""
    try:
        said = cut(str(error), 300)
    except Exception:
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _meaning(keep: Callable[[Any], None], promise: str) -> str:
    """What a promise says of itself, or else its name in words."""
    written = (
        keep.__doc__ if keep.__doc__ != type(keep).__doc__ else None
    )  # a partial's says what a partial is
    words = " ".join((written or "").partition("\n\n")[0].split()).replace("``", "`")
    return words or promise.replace("_", " ")


def _shortened(story: str) -> str:
    """A story that can be read at a glance."""
    lines = [cut(line, 500) for line in story.split("\n")]
    return "\n".join(lines if len(lines) <= 40 else [*lines[:20], "  ... and so on ...", *lines[-5:]])


# --- The tests, in the place of pytest's own --------------------------------------------------


class Broken(Exception):
    """A promise is broken; the message is the whole story."""


class Kept(pytest.Item):
    """One promise, put to one implementation."""

    def __init__(self, *, implementation: Implementation, promise: str, patience: float, **more: Any) -> None:
        super().__init__(**more)
        self.implementation, self.promise, self.patience = implementation, promise, patience

    def runtest(self) -> None:
        """Raises ``Broken`` if it is."""
        if self.implementation.hangs:
            pytest.skip("this version does not return")
        story = verdict(self.implementation, self.promise, self.patience)
        if story is not None:
            raise Broken(story)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The story alone, without a traceback."""
        if isinstance(excinfo.value, Broken):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.implementation.file, None, f"{self.implementation.file.name}: {self.promise}"


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
