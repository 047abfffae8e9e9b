"""Wrong versions of the simulated model: ours with one planted fault each, unfair to some paradigm."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

SimulatedFault = partial(Fault, check="simulated", of="simulated_model", module="fake_llm.simulated")

SIMULATED_FAULTS: tuple[Fault, ...] = (
    SimulatedFault(
        "errors come from a stream: who asks more often has other luck",
        "_Luck._drawn",
        old="return random.Random(repr((self.seed, *about)))",
        new="return random  # type: ignore[return-value]",
        caught_by="the_same_request_has_the_same_reply",
        passes=("any_prompt_has_a_reply", "it_keeps_to_the_form_that_is_asked_for"),
    ),
    SimulatedFault(
        "the seed is forgotten: every model has the same luck",
        "_Luck._drawn",
        old="(self.seed, *about)",
        new="about",
        caught_by="seeds_differ",
        passes=("the_same_request_has_the_same_reply",),
    ),
    SimulatedFault(
        "it peeks at the size of the request, which tells the paradigms apart",
        "_read",
        old='"\\n".join(seen))',
        new='"\\n".join([*seen, str(request.tokens)]))',
        caught_by="only_what_is_shown_counts",
        passes=("the_same_request_has_the_same_reply", "seeds_differ"),
    ),
    SimulatedFault(
        "it knows the prices before anybody told it",
        "_read",
        old='"\\n".join(seen))',
        new='"\\n".join(["故宫门票 60 元一张", *seen]))',
        caught_by="it_knows_no_fact_before_it_is_shown",
        passes=("only_what_is_shown_counts",),
    ),
    SimulatedFault(
        "a prompt without messages makes it raise",
        "_read",
        old=' or [""]',
        new="",
        caught_by="any_prompt_has_a_reply",
        passes=("the_same_request_has_the_same_reply",),
    ),
    SimulatedFault(
        "it writes its actions in a form of its own",
        "_reply",
        old="return form(luck, shown)",
        new='return form(luck, shown).replace("Action: ", "I would now take ")',
        caught_by="it_keeps_to_the_form_that_is_asked_for",
        passes=("any_prompt_has_a_reply",),
    ),
)
