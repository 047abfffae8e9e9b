"""What a chain of thought promises: plain functions of anything with its signature, ours or a reader's.

``check_chain(chain)`` raises ``BrokenPromise`` with a story that breaks a promise. ``PROMISES`` holds
the same promises one by one. Each puts ``chain(react(tools), depth, enough)`` into a loop, and looks at
what the model was shown and what the run came to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentloop import AgentLoop, Kind, Limits, Result, StopReason, Toolbox, World, drive
from fake_llm import FakeClock, FakeModel, get_weather
from paradigms.react import react
from tests.check_machine import BrokenPromise

Chain = Callable[..., Callable[..., Any]]

TASK = "北京今天适合出门吗？"
TOOLS = Toolbox([get_weather])
ACTION = 'Thought: <look>\nAction: get_weather(city="北京")'
FINISH = "Thought: <done>\nAction: Finish[适合]"
LIMITS = Limits(rounds=3, model_calls=100, tokens=200_000)
ONE_ROUND = replace(LIMITS, rounds=1)


def thought(number: int, confidence: str = "Confidence: 0.2") -> str:
    """A thought unlike any other, and no instruction."""
    return f"Thought: <thought {number}>\n{confidence}"


class Run(NamedTuple):
    """What came of a run, and every prompt that its model was shown."""

    result: Result
    prompts: list[str]
    story: str


def run(
    chain: Chain,
    replies: Sequence[Any],
    depth: int = 3,
    enough: float = 0.9,
    limits: Limits = LIMITS,
    **hooks: Any,
) -> Run:
    """One run of a loop that thinks in chains; the model says its last reply for ever."""
    reason = chain(react(TOOLS), depth, enough)
    return run_hook(
        reason, replies, f"depth {depth}, enough {enough}, replies {list(replies)}", limits, **hooks
    )


def run_hook(
    reason: Callable[..., Any], replies: Sequence[Any], story: str, limits: Limits = LIMITS, **hooks: Any
) -> Run:
    """The same for a hook that is made already."""
    script = iter(replies)
    last = replies[-1]
    model = FakeModel(lambda request: next(script, last))
    loop = AgentLoop(reason, limits=limits, **hooks)
    return Run(
        drive(loop.run(TASK), World(model, TOOLS, clock=FakeClock().now, inline=True)), model.prompts, story
    )


def _hold(kept: bool, made: Run, story: str) -> None:
    if not kept:
        raise BrokenPromise(f"{story} ({made.story})")


# --- The promises -----------------------------------------------------------------------------


def it_ends_at_an_action(chain: Chain) -> None:
    """The first reply that holds an instruction is the decision, and nothing is asked after it."""
    for thoughts in range(3):
        replies = [*map(thought, range(thoughts)), ACTION, FINISH]
        made = run(chain, replies)
        acted = [call.name for turn in made.result.turns for call in turn.calls]
        _hold(acted == ["get_weather"], made, f"the model acted once, and what was done is {acted}")
        asked = len(made.prompts)
        _hold(
            asked == len(replies), made, f"{len(replies)} replies were enough, and it was asked {asked} times"
        )
        _hold(made.result.answer == "适合", made, f"the answer is {made.result.answer!r}")


def it_ends_at_its_depth(chain: Chain) -> None:
    """A model that only thinks is asked ``depth`` times, and once more for its decision."""
    for depth in range(5):
        for rounds in (1, 2):
            limits = replace(LIMITS, rounds=rounds)
            made = run(chain, [*map(thought, range(50))], depth, limits=limits)
            asked, due = len(made.prompts), rounds * (depth + 1)
            _hold(asked == due, made, f"it was asked {asked} times in {rounds} rounds, not {due}")
            kinds = [seen.kind for turn in made.result.turns for seen in turn.observations]
            told = kinds == [Kind.MALFORMED] * rounds
            _hold(told, made, f"it never decided, and is told {kinds}")


def a_decision_after_the_depth_is_taken(chain: Chain) -> None:
    """Whoever has thought as often as it may is heard once more, and that decision counts."""
    made = run(chain, [thought(1), thought(2), FINISH], depth=2)
    _hold(made.result.answer == "适合", made, f"after two thoughts it decided; answer {made.result.answer!r}")
    _hold(len(made.result.turns) == 1, made, f"that took {len(made.result.turns)} rounds")


def it_ends_when_it_is_sure(chain: Chain) -> None:
    """A thought that is confident enough is the last one; what comes then is taken for the decision."""
    for line in (
        "Confidence: 0.9",
        "Confidence: 0.95",
        "置信度：90%",
        "**Confidence:** 9/10",
        "confidence: 1",
    ):
        made = run(chain, [thought(1, line), thought(2)], depth=4, limits=ONE_ROUND)
        asked = len(made.prompts)
        _hold(
            asked == 2, made, f"{line!r} is sure enough, and in one round it was asked {asked} times, not 2"
        )
        made = run(chain, [thought(1, line), FINISH], depth=4)
        _hold(made.result.answer == "适合", made, f"sure as it was, it came to {made.result.answer!r}")


def what_is_no_confidence_ends_nothing(chain: Chain) -> None:
    """Words, too low a number, one out of range, a no: none of them is sure, and the chain goes on."""
    for line in (
        "Confidence: 0.89",
        "Confidence: false",
        "Confidence: not 9/10",
        "Confidence: high, 0.95 or so",
        "Confidence: 95",
        "Confidence: -0.95",
        "Confidence: nan",
        "Confidence: 12/10",
        "Confidence: 0.95 would be too much to say",
        "Confidence: 0.1\nConfidence: 0.95",
        "I have no confidence: 0.95",
        "sure",
        "",
    ):
        made = run(chain, [thought(1, line)], depth=2, limits=ONE_ROUND)
        asked = len(made.prompts)
        _hold(asked == 3, made, f"{line!r} is not sure, and in one round it was asked {asked} times, not 3")


def each_thought_is_in_the_next_prompt(chain: Chain) -> None:
    """Each prompt says every thought before it, once, and those of one chain in their order."""
    made = run(chain, [thought(1), thought(2), ACTION, thought(3), thought(4), FINISH])
    _hold(len(made.prompts) == 6, made, f"six replies end it, and it was asked {len(made.prompts)} times")
    for number, prompt in enumerate(made.prompts):
        thoughts_before = [1, 2, 3, 4][: number if number < 3 else number - 1]
        for each in (1, 2, 3, 4):
            said, due = prompt.count(f"<thought {each}>"), int(each in thoughts_before)
            _hold(said == due, made, f"prompt {number + 1} says thought {each} {said} times, not {due}")
    for number, first, second in ((3, 1, 2), (6, 3, 4)):
        prompt = made.prompts[number - 1]
        in_order = prompt.index(f"<thought {first}>") < prompt.index(f"<thought {second}>")
        _hold(in_order, made, f"prompt {number} has its thoughts out of order")


def the_turn_keeps_the_thoughts(chain: Chain) -> None:
    """What was thought on the way stays in history, with the decision that it led to."""
    made = run(chain, [thought(1), thought(2), FINISH])
    kept = made.result.turns[0].thought
    for text in ("<thought 1>", "<thought 2>", "<done>"):
        _hold(kept.count(text) == 1, made, f"the turn says {text} {kept.count(text)} times: {kept!r}")


def a_mistake_is_not_a_thought(chain: Chain) -> None:
    """Silence, a model that fails and a call that cannot be read go to the loop at once, as they are."""
    for reply, kind in (
        ("", Kind.EMPTY_REPLY),
        (PermissionError("401"), Kind.MODEL_ERROR),
        (ConnectionError("503"), Kind.UNAVAILABLE),
        ('Thought: x\nAction: get_weather(city="北京', Kind.MALFORMED),
        ("Action: ", Kind.MALFORMED),
    ):
        made = run(chain, [reply], limits=replace(LIMITS, rounds=1))
        kinds = [seen.kind for turn in made.result.turns for seen in turn.observations]
        right = (len(made.prompts), kinds) == (1, [kind])
        _hold(right, made, f"{reply!r} was asked for {len(made.prompts)} times, and seen as {kinds}")


def a_depth_of_nothing_is_the_step_itself(chain: Chain) -> None:
    """With depth 0 nothing is thought and nothing is added to a prompt."""
    for replies in ([ACTION, FINISH], [thought(1), FINISH]):
        made, plain = run(chain, replies, 0), run_hook(react(TOOLS), replies, "without a chain")
        _hold(made.prompts == plain.prompts, made, "with depth 0 the prompts are not those of the step")
        _hold(
            made.result.turns == plain.result.turns, made, "with depth 0 the turns are not those of the step"
        )


def every_thought_is_paid_for_and_none_is_lost(chain: Chain) -> None:
    """Where the account ends in the middle of a chain, the run says so and its turn keeps the thoughts."""
    for allowed in (1, 2, 3):
        limits = replace(LIMITS, model_calls=allowed)
        made = run(chain, [*map(thought, range(1, 9))], depth=5, limits=limits)
        asked, stop = len(made.prompts), made.result.stop
        _hold(asked == allowed, made, f"{allowed} calls were allowed, and the model was asked {asked} times")
        _hold(stop is StopReason.MODEL_CALLS, made, f"it ran out of model calls, and says {stop.name}")
        kept = "".join(turn.thought for turn in made.result.turns)
        lost = [each for each in range(1, allowed + 1) if f"<thought {each}>" not in kept]
        _hold(not lost, made, f"thoughts {lost} were had before the end, and are in no turn")


def working_memory_is_left_as_it_was(chain: Chain) -> None:
    """What others put into working memory stays; what the chain put there is gone after it."""

    def look(control: object, context: Any) -> None:
        seen.append(dict(context.working_memory))

    seen: list[dict[str, Any]] = []
    made = run(chain, [thought(1), ACTION, FINISH], perceive=lambda task: {"city": "<北京>"}, stops=(look,))
    _hold(all("<北京>" in prompt for prompt in made.prompts), made, "a prompt lacks what was perceived")
    _hold(seen == [{"city": "<北京>"}], made, f"after the chain, working memory is {seen}")


def runs_share_nothing(chain: Chain) -> None:
    """One hook serves many runs, and the second is shown what the first was shown."""
    reason = chain(react(TOOLS), 3, 0.9)
    replies = [thought(1), thought(2), ACTION, thought(3), FINISH]
    first, second = (run_hook(reason, replies, f"run {number}") for number in (1, 2))
    _hold(second.prompts == first.prompts, second, "the second run is shown other prompts than the first")
    _hold(second.result == first.result, second, "the second run comes to another result")


PROMISES: dict[str, Callable[[Chain], None]] = {
    promise.__name__: promise
    for promise in (
        it_ends_at_an_action,
        it_ends_at_its_depth,
        a_decision_after_the_depth_is_taken,
        it_ends_when_it_is_sure,
        what_is_no_confidence_ends_nothing,
        each_thought_is_in_the_next_prompt,
        the_turn_keeps_the_thoughts,
        a_mistake_is_not_a_thought,
        a_depth_of_nothing_is_the_step_itself,
        every_thought_is_paid_for_and_none_is_lost,
        working_memory_is_left_as_it_was,
        runs_share_nothing,
    )
}


def check_chain(chain: Chain) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(chain)
