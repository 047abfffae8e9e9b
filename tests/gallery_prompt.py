"""Wrong versions of what a model is shown (think, views, recall), and of a model that plans with it."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

ThinkFault = partial(Fault, check="think", of="think", module="paradigms.prompt")
ViewFault = partial(
    Fault,
    function="whole_history",
    old="    return prompt.turns\n",
    check="view",
    of="whole_history",
    module="paradigms.prompt",
)
RecallFault = partial(
    Fault,
    function="recall",
    old="[note for topic, note in notes.items() if topic in task]",
    check="recall",
    of="recall",
    module="chapters.ch04_reassembling_the_input",
)
RobotFault = partial(
    Fault, function="plan", check="robot", of="plan", module="chapters.ch01_one_shot_vs_loop"
)

THINK_FAULTS: tuple[Fault, ...] = (
    ThinkFault(
        "EA16: working memory never reaches the prompt",
        "Prompt.refresh",
        old=" if memory else ",
        new=" if False else ",
        caught_by="working_memory_is_shown_as_it_is_now",
    ),
    ThinkFault(
        "what has left working memory is still shown",
        "Prompt.refresh",
        old=" if memory else (self.opening,)",
        new=" if memory else self.head",
        caught_by="working_memory_is_shown_as_it_is_now",
    ),
    ThinkFault(
        "EA17: the whole history is sent twice",
        "think",
        old="(*prompt.head, *shown)",
        new="(*prompt.head, *shown, *shown)",
        caught_by="history_stands_once_whole_and_in_order",
    ),
    ThinkFault(
        "EA18: the tools are not sent along",
        "think",
        old="CallModel(tuple(messages), tools, stop, tokens)",
        new="CallModel(tuple(messages), (), stop, tokens)",
        caught_by="tools_and_stop_texts_are_sent_along",
    ),
    ThinkFault(
        "EB11: tool definitions are sent and not counted",
        "think",
        old="tokens = tools_tokens\n",
        new="tokens = 0\n",
        caught_by="announced_is_what_is_sent",
    ),
    ThinkFault(
        "EB16: a view that drops old messages drops the task first",
        "think",
        old="(*prompt.head, *shown)",
        new="shown or prompt.head",
        caught_by="system_prompt_and_task_come_first_and_once",
    ),
    ThinkFault(
        "every turn is rendered anew in every round",
        "Prompt.refresh",
        old="for turn in",
        new="self.turns.clear()\n    for turn in",
        caught_by="a_turn_is_rendered_once",
    ),
    ThinkFault(
        "the view is not asked",
        "think",
        old="shown = view(prompt)",
        new="shown = prompt.turns",
        caught_by="the_view_chooses_among_turns_alone",
    ),
    ThinkFault(
        "a model that failed is read like one that answered",
        "think",
        old="report(reply) if isinstance(reply, Observation) else read(reply)",
        new="read(Reply(reply.text))",
        caught_by="the_reply_is_read_and_a_failure_is_reported",
    ),
    ThinkFault(
        "all runs share one prompt",
        "think",
        old="    def reason(context: LoopContext) -> Program[Act | Finish]:\n"
        "        prompt = context.private.get(reason)",
        new="    shared: dict = {}\n\n"
        "    def reason(context: LoopContext) -> Program[Act | Finish]:\n"
        "        context.private = shared\n"
        "        prompt = context.private.get(reason)",
        caught_by="runs_share_nothing",
    ),
)

VIEW_FAULTS: tuple[Fault, ...] = (
    ViewFault(
        "B-10: nothing is put back",
        new="    return ()\n",
        caught_by="the_latest_turn_is_shown",
        passes=("turns_keep_their_order", "calls_and_results_stay_together"),
    ),
    ViewFault(
        "the first turns alone are shown",
        new="    return prompt.turns[:3]\n",
        caught_by="the_latest_turn_is_shown",
        passes=("turns_keep_their_order",),
    ),
    ViewFault(
        "the latest turn is shown first",
        new="    return prompt.turns[::-1]\n",
        caught_by="turns_keep_their_order",
        passes=("the_latest_turn_is_shown", "calls_and_results_stay_together"),
    ),
    ViewFault(
        "the latest turn is shown twice",
        new="    return [*prompt.turns, *prompt.turns[-1:]]\n",
        caught_by="turns_keep_their_order",
        passes=("the_latest_turn_is_shown",),
    ),
    ViewFault(
        "EB16: the last messages are shown, not the last turns",
        new="    messages = [message for each in prompt.turns for message in each.messages]\n"
        "    return [block(message) for message in messages[-4:]]\n",
        caught_by="calls_and_results_stay_together",
        passes=("sizes_are_true",),
    ),
    ViewFault(
        "X01: results are shown without their calls",
        new="    return [block(*each.messages[1:]) for each in prompt.turns]\n",
        caught_by="calls_and_results_stay_together",
        passes=("sizes_are_true", "history_and_head_are_not_touched"),
    ),
    ViewFault(
        "old turns are deleted, not hidden",
        new="    del prompt.turns[:-2]\n    return prompt.turns\n",
        caught_by="history_and_head_are_not_touched",
        passes=("sizes_are_true",),
    ),
    ViewFault(
        "the run's own turns are deleted",
        new="    del prompt.context.turns[:-2]\n    return prompt.turns[-2:]\n",
        caught_by="history_and_head_are_not_touched",
    ),
    ViewFault(
        "messages are shown in the place of blocks",
        new="    return [message for each in prompt.turns for message in each.messages]\n",
        caught_by="it_shows_blocks",
    ),
    ViewFault(
        "it asks the model what to show, and never chooses",
        new="    while True:\n        yield CallModel(prompt.opening.messages)\n",
        caught_by="it_shows_blocks",
    ),
    ViewFault(
        "blocks lie about their size",
        new="    return [each._replace(tokens=1) for each in prompt.turns]\n",
        caught_by="sizes_are_true",
        passes=("turns_keep_their_order", "calls_and_results_stay_together"),
    ),
)

RECALL_FAULTS: tuple[Fault, ...] = (
    RecallFault(
        "only what a task begins with is looked up",
        new="[note for topic, note in notes.items() if task.startswith(topic)]",
        caught_by="note_of_each_topic_that_is_mentioned",
        passes=("nothing_but_notes", "the_notes_stay_as_they_are"),
    ),
    RecallFault(
        "the topic is told as a part of the note",
        new='[f"{topic}：{note}" for topic, note in notes.items() if topic in task]',
        caught_by="nothing_but_notes",
        passes=("the_notes_stay_as_they_are",),
    ),
    RecallFault(
        "all that is known is recalled, whatever the task",
        new="list(notes.values())",
        caught_by="what_has_nothing_to_do_with_the_task_stays_where_it_is",
        passes=("note_of_each_topic_that_is_mentioned", "the_notes_stay_as_they_are"),
    ),
    RecallFault(
        "a note that was recalled is used up",
        new="[notes.pop(topic) for topic in list(notes) if topic in task]",
        caught_by="the_notes_stay_as_they_are",
    ),
)

ROBOT_FAULTS: tuple[Fault, ...] = (
    RobotFault(
        "EA27: it takes the fish with an argument that the tool does not have",
        old='("take_fish", {})',
        new='("take_fish", {"room": "厨房"})',
        caught_by="its_steps_can_be_made",
        passes=("it_says_so_only_when_it_is_true",),
    ),
    RobotFault(
        "a cat that was seen counts as fed",
        old='if "purrs" in shown:',
        new='if "You see the cat" in shown:',
        caught_by="it_says_so_only_when_it_is_true",
        passes=("its_steps_can_be_made", "it_knows_only_what_it_is_shown"),
    ),
    RobotFault(
        "B-9: where it heard a cat last it looks first, in whichever house that was",
        old='shown, otherwise="阳台")  # cats like the sun\n',
        new='shown, otherwise=plan.__dict__.get("cat", "阳台"))\n    plan.__dict__["cat"] = cat\n',
        caught_by="it_knows_only_what_it_is_shown",
        passes=("its_steps_can_be_made", "it_says_so_only_when_it_is_true"),
    ),
    RobotFault(
        "B-60: it reads the last message alone",
        old="readable(request.messages)",
        new="readable(request.messages[-1:])",
        caught_by="every_cat_is_fed",
        passes=("its_steps_can_be_made", "it_knows_only_what_it_is_shown"),
    ),
)
