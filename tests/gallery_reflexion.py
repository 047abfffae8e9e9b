"""Wrong versions of Reflexion: ours with one planted fault each, the article's own among them."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

ReflexionFault = partial(Fault, check="reflexion", of="Reflexion", module="paradigms.reflexion")

REFLEXION_FAULTS: tuple[Fault, ...] = (
    ReflexionFault(
        "EA33: the lessons never reach the model",
        "informed",
        old="    return replace(actor, perceive=perceive)",
        new="    return actor",
        caught_by="lessons_reach_the_next_prompts",
        passes=("the_best_answer_is_kept",),
    ),
    ReflexionFault(
        "the lessons take the place of what the actor itself perceives",
        "informed",
        old="{**(perceived or {}), LESSONS: memory}",
        new="{LESSONS: memory}",
        caught_by="lessons_reach_the_next_prompts",
    ),
    ReflexionFault(
        "EA34: an answer that scores 0 is thrown away",
        "best_of",
        old="default=None)",
        new="default=None) if any(trial.score for trial in trials) else None",
        caught_by="the_best_answer_is_kept",
    ),
    ReflexionFault(
        "R04: a later trial takes the place of the best",
        "best_of",
        old="max(trials, key=worth, default=None)",
        new="trials[-1] if trials else None",
        caught_by="the_best_answer_is_kept",
        passes=("it_stops_when_an_answer_passes_or_no_trial_is_left",),
    ),
    ReflexionFault(
        "R04: of equals, the later wins",
        "best_of",
        old="max(trials,",
        new="max(reversed(trials),",
        caught_by="the_best_answer_is_kept",
    ),
    ReflexionFault(
        "a judge that nobody could understand counts as a pass",
        "Reflexion._passes",
        old="trial.score is not None and trial.score >= self.threshold",
        new="(trial.score is None or trial.score >= self.threshold)",
        caught_by="an_unknown_score_is_no_pass",
    ),
    ReflexionFault(
        "a score is believed whatever it is",
        "Reflexion._judged",
        old=" or not is_score(judgement.score)",
        new="",
        caught_by="an_unknown_score_is_no_pass",
        passes=("the_best_answer_is_kept",),
    ),
    ReflexionFault(
        "the judge always passes",
        "Reflexion._passes",
        old="trial.score >= self.threshold",
        new="trial.score >= 0",
        caught_by="it_stops_when_an_answer_passes_or_no_trial_is_left",
    ),
    ReflexionFault(
        "a score beyond the threshold is asked for",
        "Reflexion._passes",
        old="trial.score >= self.threshold",
        new="trial.score > self.threshold",
        caught_by="it_stops_when_an_answer_passes_or_no_trial_is_left",
    ),
    ReflexionFault(
        "EA35: a trial without an answer passes",
        "Reflexion._passes",
        old="trial.result.answer is not None and ",
        new="",
        caught_by="no_answer_is_no_pass",
    ),
    ReflexionFault(
        "EA40: a trial is kept only once it was judged",
        "Reflexion._program",
        old="_reflected(trials, limit.reason)",
        new="_reflected([trial for trial in trials if trial.judgement], limit.reason)",
        caught_by="an_account_run_dry_loses_nothing",
        passes=("the_best_answer_is_kept",),
    ),
    ReflexionFault(
        "an account run dry is not told from a last trial",
        "Reflexion._program",
        old="_reflected(trials, limit.reason)",
        new="_reflected(trials, StopReason.MAX_ITERATIONS)",
        caught_by="an_account_run_dry_loses_nothing",
    ),
    ReflexionFault(
        "R04: a crash loses the best",
        "Reflexion._program",
        old="        if reflected.answer is None:\n            raise\n        return reflected",
        new="        raise",
        caught_by="a_crash_loses_nothing",
        passes=("an_account_run_dry_loses_nothing",),
    ),
    ReflexionFault(
        "a bug is hidden although there is no answer",
        "Reflexion._program",
        old="        if reflected.answer is None:\n            raise\n",
        new="",
        caught_by="a_crash_loses_nothing",
    ),
    ReflexionFault(
        "the last trial is reflected upon, for nobody",
        "Reflexion._trials",
        old="if number < self.trials:",
        new="if True:",
        caught_by="it_reflects_only_where_a_trial_follows",
        passes=("the_best_answer_is_kept",),
    ),
    ReflexionFault(
        "EA40: a failing reflector ends it",
        "Reflexion._lesson",
        old="except (EffectFailed, LimitReached):",
        new="except LimitReached:",
        caught_by="a_failing_reflector_loses_nothing",
    ),
    ReflexionFault(
        "EA38: memory grows without bound",
        "remember",
        old="[-capacity:]",
        new="",
        caught_by="memory_is_bounded_and_without_repeats",
        passes=("lessons_reach_the_next_prompts",),
    ),
    ReflexionFault(
        "EA38: the oldest lessons are kept",
        "remember",
        old="[-capacity:]",
        new="[:capacity]",
        caught_by="memory_is_bounded_and_without_repeats",
    ),
    ReflexionFault(
        "a lesson that is learned again is said again",
        "remember",
        old="_words(known.text) != _words(lesson.text)",
        new="known.text != lesson.text",
        caught_by="memory_is_bounded_and_without_repeats",
    ),
    ReflexionFault(
        "EA38: memory outlives its task",
        "Reflexion._trials",
        old="lessons: tuple[Lesson, ...] = ()\n    for number in range(1, self.trials + 1):\n",
        new="lessons = vars(self).get('memory', ())\n    for number in range(1, self.trials + 1):\n"
        "        vars(self)['memory'] = lessons\n",
        caught_by="memory_is_of_one_task",
    ),
    ReflexionFault(
        "nobody holds it to an account",
        "Reflexion.run",
        old="bounded(self._program(task), self.limits, task)",
        new="self._program(task)",
        caught_by="effects_stay_within_the_bound",
    ),
    ReflexionFault(
        "lessons are told with the time of day",
        "informed",
        old='["", *told,',
        new='[str(__import__("time").perf_counter_ns()), *told,',
        caught_by="the_same_story_is_told_the_same",
        passes=("lessons_reach_the_next_prompts",),
    ),
    ReflexionFault(
        "one trial too many",
        "Reflexion._trials",
        old="range(1, self.trials + 1)",
        new="range(1, self.trials + 2)",
        caught_by="it_stops_when_an_answer_passes_or_no_trial_is_left",
    ),
)
