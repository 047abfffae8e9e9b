"""The gallery of wrong versions: ours with one planted fault each, a line or two away.

A ``Fault`` names a function of ours, the text in it that is replaced, and the promise that must catch
it. ``wrong_version(fault)`` builds the thing under test from the changed source. The text must occur
exactly once, so the gallery cannot fall out of step with the code.

To add a fault, add a row to a tuple of faults in a file ``gallery*.py``: ``test_gallery.py`` finds them
all. ``check`` names its promises (``machine`` for those of ``check_machine.py``), and ``of`` the thing these
promises are told about: ``"advance"`` itself, or a thing that uses the changed function, such as
``"AgentLoop"`` for a fault in ``within``; one that lives elsewhere is given with its module,
``"paradigms.outer_loop:OuterLoop"``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import textwrap
from importlib.abc import SourceLoader
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from agentloop import Journal, Limits, World


class Fault(NamedTuple):
    """One planted fault."""

    name: str
    function: str  # the changed function, or Class.method
    old: str
    new: str
    caught_by: str
    passes: tuple[str, ...] = ()  # promises that it keeps, so that the one above is needed
    check: str = "machine"
    of: str = "advance"
    module: str = "agentloop"


class _ChangedSource(SourceLoader):
    """Loads a module from source that is in no file."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_filename(self, fullname: str) -> str:
        return f"<{fullname}>"

    def get_data(self, path: str) -> bytes:
        return self._source.encode()


def wrong_version(fault: Fault) -> Any:
    """The thing of that name as it would be with the fault; it shares all our types."""
    ours = importlib.import_module(fault.module)
    changed = _module_like(ours, fault.name, changed_source(ours, fault))
    owner, _, method = fault.function.rpartition(".")
    if owner:
        changed[owner] = type(owner, (getattr(ours, owner),), {"__slots__": (), method: changed.pop(method)})
    _rebind(ours, changed, fault.function)
    module, _, of = fault.of.rpartition(":")
    if module:  # the thing lives elsewhere, and imports what was changed
        elsewhere = importlib.import_module(module)
        changed = vars(elsewhere) | {fault.function: changed[fault.function]}
        _rebind(elsewhere, changed, fault.function)
    return changed[of]


def changed_source(ours: ModuleType, fault: Fault) -> str:
    """The source of the changed function. Raises ``LookupError`` where ``old`` does not stand there once."""
    function: Any = ours
    for name in fault.function.split("."):
        function = getattr(function, name)
    source = textwrap.dedent(inspect.getsource(function))
    count = source.count(fault.old)
    if count != 1:
        raise LookupError(
            f"fault {fault.name!r}: its old text must stand once in {fault.function}, not {count} times: "
            f"bring it into step with the code\n{fault.old}"
        )
    return "from __future__ import annotations\n" + source.replace(fault.old, fault.new)


def _module_like(ours: ModuleType, name: str, source: str) -> dict[str, Any]:
    """The names of our module, with the functions of ``source`` in the place of ours."""
    loader = _ChangedSource(source)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    names = vars(module)
    names |= {name: value for name, value in vars(ours).items() if not name.startswith("__")}
    loader.exec_module(module)
    return names


def _rebind(ours: ModuleType, names: dict[str, Any], changed: str) -> None:
    """Let all that is ours in ``names``, tables of functions too, call the changed one; types stay shared."""
    for name, value in vars(ours).items():
        if isinstance(value, FunctionType) and value.__globals__ is vars(ours) and name != changed:
            names[name] = _with_names(value, names)
        elif isinstance(value, type) and value.__module__ == ours.__name__ and _has_behaviour(value):
            base = names[name]
            above = [names[each.__name__] for each in value.__bases__ if each.__module__ == ours.__name__]
            methods = {key: _with_names(method, names) for key, method in _functions(value)}
            members = {"__slots__": (), **methods, **_own_functions(base, value)}
            names[name] = type(name, (base, *above), members)
    for name, value in vars(ours).items():
        if isinstance(value, dict) and not name.startswith("__"):
            names[name] = {key: _in_a_table(each, ours, names) for key, each in value.items()}


def _in_a_table(value: Any, ours: ModuleType, names: dict[str, Any]) -> Any:
    """What a table holds, a function of ours or a row of them, as it is among these names."""
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make([_in_a_table(each, ours, names) for each in value])
    if not isinstance(value, FunctionType) or value.__globals__ is not vars(ours):
        return value
    return names.get(value.__name__) or _with_names(value, names)  # a lambda has no other name


def _with_names(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    bound = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    bound.__kwdefaults__ = function.__kwdefaults__
    return bound


def _has_behaviour(kind: type) -> bool:
    """Whether it is a class of working parts, not a value whose type is compared: tests hand in ours."""
    return (
        type(kind) is type
        and not issubclass(kind, tuple | BaseException)
        and kind not in (Journal, Limits, World)
    )


def _functions(kind: type) -> list[tuple[str, FunctionType]]:
    """The methods written in the class; what the class machinery adds belongs to no module of ours."""
    return [
        (name, value)
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType) and value.__globals__.get("__name__") == kind.__module__
    ]


def _own_functions(base: type, ours: type) -> dict[str, Any]:
    """The changed method, where ``base`` is the class that holds it."""
    if base is ours:
        return {}
    return {name: value for name, value in vars(base).items() if isinstance(value, FunctionType)}


FAULTS = (
    Fault(
        "a compaction resets the counter of rounds",
        "advance",
        old="        pending = 0\n",
        new="        pending = rounds = 0\n",
        caught_by="rank_falls",
    ),
    Fault(
        "a round is not counted",
        "advance",
        old="rounds += round_",
        new="rounds += 0",
        caught_by="rank_falls",
    ),
    Fault(
        "EA03: every visit to a state is counted as a round",
        "advance",
        old="rounds += round_",
        new="rounds += target is not state",
        caught_by="counters_count",
        passes=("no_illegal_move",),
    ),
    Fault(
        "EA02: the stop at the limit of rounds is refused by a guard",
        "advance",
        old="stop = StopReason.MAX_ITERATIONS",
        new="raise IllegalTransition(control, event)",
        caught_by="no_legal_move_refused",
    ),
    Fault(
        "EA04: the end after an error is refused while acting",
        "advance",
        old="    if new_tokens < 0 or new_cost < 0:",
        new="    if new_tokens < 0 or new_cost < 0 or (kind is HOOK_FAILED and state is ACTING):",
        caught_by="an_error_always_ends",
    ),
    Fault(
        "EA05: a second start is let in and the first run's counters are thrown away",
        "advance",
        old="    try:\n",
        new="    if kind is TASK_ARRIVED:\n        state, rounds, effects = IDLE, 0, 0\n    try:\n",
        caught_by="termination_absorbs",
    ),
    Fault(
        "EA07: a person cannot stop a run that is acting",
        "advance",
        old="    if new_tokens < 0 or new_cost < 0:",
        new="    if new_tokens < 0 or new_cost < 0 or (kind is INTERRUPTED and state is ACTING):",
        caught_by="a_person_can_always_stop",
    ),
    Fault(
        "EA06: an observation is believed whatever calls it is for",
        "advance",
        old="    if holds is not None and not holds(control, event):",
        new="    if holds is not None and kind is not OBSERVED and not holds(control, event):",
        caught_by="no_illegal_move",
    ),
    Fault(
        "EA25: at the limit of rounds the state is not TERMINATED",
        "advance",
        old="        target = TERMINATED\n",
        new="        target = TERMINATED if stop is not StopReason.MAX_ITERATIONS else state\n",
        caught_by="ending_has_its_reason",
    ),
    Fault(
        "EA11: a run ends and does not say why",
        "advance",
        old="tokens, cost, seconds, stop),",
        new="tokens, cost, seconds, None),",
        caught_by="ending_has_its_reason",
        passes=("rank_falls",),
    ),
    Fault(
        "one round too many",
        "advance",
        old="rounds >= limits.rounds",
        new="rounds > limits.rounds",
        caught_by="limit_is_exact",
    ),
    Fault(
        "one model call too few",
        "advance",
        old="model_calls >= limits.model_calls",
        new="model_calls >= limits.model_calls - 1",
        caught_by="limit_is_exact",
    ),
    Fault(
        "a token more than the budget",
        "advance",
        old="not tokens < limits.tokens",
        new="not tokens <= limits.tokens",
        caught_by="limit_is_exact",
    ),
    Fault(
        "a prompt that exceeds what is left is sent",
        "advance",
        old=" or not tokens + needs_tokens <= limits.tokens",
        new="",
        caught_by="limit_is_exact",
    ),
    Fault(
        "the end does not absorb",
        "advance",
        old="_MOVES[state, kind]",
        new="_MOVES[REASONING if state is TERMINATED else state, kind]",
        caught_by="termination_absorbs",
    ),
    Fault(
        "a success does not end a row of failures",
        "advance",
        old="failures = 0 if ok else failures + 1",
        new="failures += not ok",
        caught_by="failures_are_counted_in_a_row",
    ),
    Fault(
        "time runs back",
        "advance",
        old="    if at > seconds:\n        seconds = at\n",
        new="    seconds = at\n",
        caught_by="time_never_goes_back",
    ),
    Fault(
        "a NaN is let through",
        "advance",
        old="not cost < limits.cost",
        new="cost >= limits.cost",
        caught_by="no_strange_number_gets_through",
    ),
    Fault(
        "a negative report refills the budget",
        "advance",
        old="    if new_tokens < 0 or new_cost < 0:",
        new="    if new_tokens < 0:",
        caught_by="no_strange_number_gets_through",
    ),
    Fault(
        "a refused effect is counted anyway",
        "advance",
        old="        target = TERMINATED\n",
        new="        target, effects = TERMINATED, effects + effect\n",
        caught_by="counters_count",
    ),
    Fault(
        "a limit wins against the answer in hand",
        "advance",
        old="    elif kind in _DECIDED:",
        new="    elif kind in _DECIDED and (kind is not ANSWER_GIVEN or tokens < limits.tokens):",
        caught_by="answer_wins",
    ),
    Fault(
        "the wall clock is named before the cost",
        "advance",
        old="        elif not cost < limits.cost:\n",
        new="        elif seconds >= limits.seconds:\n            stop = StopReason.WALL_CLOCK\n"
        "        elif not cost < limits.cost:\n",
        caught_by="first_reason_in_order",
    ),
    Fault(
        "failures are allowed once more, unless the rounds are over anyway",
        "advance",
        old="if failures >= limits.failures:",
        new="if failures > limits.failures or (failures == limits.failures and rounds >= limits.rounds):",
        caught_by="limit_is_exact",
    ),
    Fault(
        "a model call is refused one too early, from the second on",
        "advance",
        old="if model_call and model_calls >= limits.model_calls:",
        new="if model_call and model_calls >= max(1, limits.model_calls - 1):",
        caught_by="limit_is_exact",
    ),
    Fault(
        "a person's stop by a rule gives way to a limit",
        "advance",
        old="    if verdict is _HUMAN:",
        new="    if False:",
        caught_by="ending_has_its_reason",
    ),
    Fault(
        "a need that is no number is let through",
        "advance",
        old=" or not tokens + needs_tokens <= limits.tokens",
        new=" or tokens + needs_tokens > limits.tokens",
        caught_by="limit_is_exact",
    ),
    Fault(
        "a stop rule may name a limit, or a final answer",
        "advance",
        old="(kind not in _RULED or verdict not in RULE_REASONS)",
        new="kind not in _RULED",
        caught_by="nobody_else_names_a_limit",
    ),
    Fault(
        "the last reply is not paid for when the run ends",
        "advance",
        old="    tokens += new_tokens\n",
        new="    tokens += new_tokens if kind not in _DECIDED else 0\n",
        caught_by="spent_is_booked",
    ),
    Fault(
        "a model call is no effect",
        "advance",
        old="effects += effect",
        new="effects += effect - model_call",
        caught_by="rank_falls",
    ),
    Fault(
        "the enclosing account's reason is lost",
        "advance",
        old="stop = closed.stop",
        new="stop = StopReason.EFFECTS",
        caught_by="ending_has_its_reason",
    ),
    Fault(
        "the calls that were chosen are not awaited",
        "advance",
        old="        pending = calls\n",
        new="        pending = 1\n",
        caught_by="each_call_is_awaited",
    ),
    Fault(
        "a strange state brings the machine down",
        "advance",
        old="    except KeyError:",
        new="    except IndexError:",
        caught_by="it_answers_or_refuses",
    ),
)
