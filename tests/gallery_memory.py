"""Wrong versions of the layers of memory and of the staged view: ours with one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

Layer = partial(Fault, module="paradigms.memory")
StoreFault = partial(Fault, check="store", of="Store", module="paradigms.store")
MemoryFault = partial(Layer, check="memory", of="memory_on")
NotebookFault = partial(Layer, check="notebook", of="Notebook")
ShelfFault = partial(Layer, check="shelf", of="shelved")
SubAgentFault = partial(Layer, check="sub_agent", of="delegating", function="delegating")
StagedFault = partial(Fault, check="staged", of="staged", module="chapters.ch29_staged_context")

STORE_FAULTS: tuple[Fault, ...] = (
    StoreFault(
        "texts are written as strict UTF-8, and a lone surrogate ends the run",
        "as_bytes",
        old='text.encode("utf-8", "surrogatepass")',
        new='text.encode("utf-8", "replace")',
        caught_by="any_text_comes_back_as_it_was",
        passes=("a_later_run_finds_it", "each_shelf_is_bounded"),
    ),
    StoreFault(
        "the name of a shelf is left to SQLite, which takes no lone surrogate",
        "Store.put",
        old="on, named, said = map(as_bytes, (shelf, name, text))",
        new="on, named, said = shelf, as_bytes(name), as_bytes(text)",
        caught_by="any_text_comes_back_as_it_was",
    ),
    StoreFault(
        "who asks for one name is given the whole shelf",
        "Store.kept",
        old="[] if name is None else [as_bytes(name)]",
        new="[]",
        caught_by="what_stands_under_one_name_can_be_asked_for",
        passes=("a_later_run_finds_it", "each_shelf_is_bounded"),
    ),
    StoreFault(
        "a file that is busy is called broken",
        "Store._opened",
        old="== sqlite3.SQLITE_BUSY",
        new="== -1",
        caught_by="busy_is_not_broken",
        passes=("many_at_once_lose_nothing", "where_no_file_can_be_it_says_so"),
    ),
    StoreFault(
        "what was kept is never committed",
        "Store._opened",
        old='database.execute("COMMIT")',
        new="pass",
        caught_by="a_later_run_finds_it",
    ),
    StoreFault(
        "a text that is kept again stays as old as it was",
        "Store.put",
        old="INSERT OR REPLACE INTO",
        new="INSERT OR IGNORE INTO",
        caught_by="the_newest_stands_last_and_nothing_twice",
        passes=("any_text_comes_back_as_it_was", "a_later_run_finds_it"),
    ),
    StoreFault(
        "a note in place of another clears the whole shelf",
        "Store.put",
        old='"DELETE FROM kept WHERE shelf = ? AND name = ?", (on, named)',
        new='"DELETE FROM kept WHERE shelf = ?", (on,)',
        caught_by="instead_takes_the_place_of_the_name_alone",
        passes=("the_newest_stands_last_and_nothing_twice",),
    ),
    StoreFault(
        "the capacity is that of the whole file",
        "Store.put",
        old="kept WHERE shelf = ? AND rowid NOT IN",
        new="kept WHERE ? NOTNULL AND rowid NOT IN",
        caught_by="each_shelf_is_bounded",
        passes=("a_later_run_finds_it",),
    ),
    StoreFault(
        "the oldest stay, and the new ones are forgotten",
        "Store.put",
        old="ORDER BY rowid DESC",
        new="ORDER BY rowid",
        caught_by="each_shelf_is_bounded",
    ),
    StoreFault(
        "nobody waits for a thread that is writing",
        "Store._opened",
        old="timeout=self._wait,",
        new="timeout=0.0,",
        caught_by="many_at_once_lose_nothing",
        passes=("a_later_run_finds_it",),
    ),
    StoreFault(
        "a table is made wherever there is none",
        "Store._opened",
        old="_recognise(database, self._path)",
        new="""columns = "shelf BLOB, name BLOB, text BLOB, UNIQUE (shelf, name, text)"
            database.execute(f"CREATE TABLE IF NOT EXISTS kept ({columns})")""",
        caught_by="what_is_no_store_is_refused_and_left_alone",
        passes=("any_text_comes_back_as_it_was", "where_no_file_can_be_it_says_so"),
    ),
    StoreFault(
        "what SQLite says of a file is not translated",
        "Store._opened",
        old="except sqlite3.Error as error",
        new="except ArithmeticError as error",
        caught_by="where_no_file_can_be_it_says_so",
        passes=("many_at_once_lose_nothing",),
    ),
)

MEMORY_FAULTS: tuple[Fault, ...] = (
    MemoryFault(
        "Chinese is split at spaces, of which it has none",
        "terms",
        old='pairs if pairs and re.match(f"[{_UNSPACED}]", run) else [run]',
        new="[run]",
        caught_by="a_task_in_other_words_recalls_it",
        passes=("what_was_kept_on_a_task_is_recalled_on_it",),
    ),
    MemoryFault(
        "words are cut into pairs of letters too",
        "terms",
        old='pairs if pairs and re.match(f"[{_UNSPACED}]", run) else [run]',
        new="pairs or [run]",
        caught_by="what_has_nothing_in_common_stays_where_it_is",
        passes=("a_lesson_is_recalled_once",),
    ),
    MemoryFault(
        "a text without words is like nothing, itself included",
        "terms",
        old="found or Counter([text])",
        new="found",
        caught_by="what_was_kept_on_a_task_is_recalled_on_it",
        passes=("a_task_in_other_words_recalls_it",),
    ),
    MemoryFault(
        "capital letters make another word",
        "terms",
        old="text.lower()",
        new="text",
        caught_by="a_task_in_other_words_recalls_it",
    ),
    MemoryFault(
        "every term weighs the same",
        "likeness",
        old="count * (math.log((1 + len(texts)) / (1 + holding[term])) + 1)",
        new="float(count)",
        caught_by="what_few_lessons_say_weighs_more",
        passes=("a_task_in_other_words_recalls_it",),
    ),
    MemoryFault(
        "everything is recalled",
        "most_like",
        old=" if best[place] >= LEAST",
        new="",
        caught_by="what_has_nothing_in_common_stays_where_it_is",
        passes=("a_task_in_other_words_recalls_it",),
    ),
    MemoryFault(
        "only the lesson is looked at, not the task that taught it",
        "most_like",
        old="max(values[place], values[place + len(named)])",
        new="values[place + len(named)]",
        caught_by="what_was_kept_on_a_task_is_recalled_on_it",
    ),
    MemoryFault(
        "the worst comes first",
        "most_like",
        old="key=lambda place: (-best[place], -place)",
        new="key=lambda place: (best[place], -place)",
        caught_by="what_few_lessons_say_weighs_more",
        passes=("what_was_kept_on_a_task_is_recalled_on_it",),
    ),
    MemoryFault(
        "what two tasks taught is said twice",
        "SimilarMemory.recall",
        old="list(dict.fromkeys(found))",
        new="found",
        caught_by="a_lesson_is_recalled_once",
    ),
    MemoryFault(
        "each run remembers in a file of its own",
        "memory_on",
        old="Store(path)",
        new="Store(f'{path} {__import__(\"uuid\").uuid4()}')",
        caught_by="a_later_run_remembers",
        passes=("what_was_kept_on_a_task_is_recalled_on_it",),
    ),
    MemoryFault(
        "of each task the last lesson alone is kept",
        "SimilarMemory.keep",
        old='put("lessons", task, lesson)',
        new='put("lessons", task, lesson, instead=True)',
        caught_by="two_loops_may_use_it_at_once",
        passes=("a_later_run_remembers", "a_task_in_other_words_recalls_it"),
    ),
)

NOTEBOOK_FAULTS: tuple[Fault, ...] = (
    NotebookFault(
        "notes on one topic pile up",
        "Notebook.write_note",
        old=", instead=True",
        new="",
        caught_by="a_new_note_on_a_topic_replaces_the_old_one",
        passes=("a_note_is_shown_and_can_be_read",),
    ),
    NotebookFault(
        "all notes are shown, however many",
        "Notebook.shown",
        old="break",
        new="pass",
        caught_by="what_is_shown_fits_its_room",
        passes=("a_note_is_shown_and_can_be_read", "a_new_note_on_a_topic_replaces_the_old_one"),
    ),
    NotebookFault(
        "the oldest notes are shown, and the newest left out",
        "Notebook.shown",
        old="in reversed(notes)",
        new="in notes",
        caught_by="what_is_shown_fits_its_room",
    ),
    NotebookFault(
        "a note is shown as it was written, line breaks and all",
        "Notebook.shown",
        old='on_one_line(f"{topic}: {text}", NOTE)',
        new='f"{topic}: {text}"',
        caught_by="what_is_shown_fits_its_room",
    ),
    NotebookFault(
        "EA38: every task writes into the same book",
        "Notebook.__init__",
        old='f"notes of {name}"',
        new='"notes"',
        caught_by="a_notebook_belongs_to_its_task",
    ),
    NotebookFault(
        "an empty note is a note",
        "Notebook.write_note",
        old="if not topic.strip() or not text.strip():",
        new="if False:",
        caught_by="an_empty_note_is_refused",
    ),
    NotebookFault(
        "every note is read out, whatever was asked for",
        "most_like",
        old=" if best[place] >= LEAST",
        new="",
        caught_by="a_note_is_shown_and_can_be_read",
    ),
    NotebookFault(
        "each notebook has a shelf of its own, whatever its name",
        "Notebook.__init__",
        old='f"notes of {name}"',
        new="f\"notes of {name}, {__import__('uuid').uuid4()}\"",
        caught_by="a_later_run_finds_its_notes",
        passes=("a_new_note_on_a_topic_replaces_the_old_one", "a_notebook_belongs_to_its_task"),
    ),
)

SHELF_FAULTS: tuple[Fault, ...] = (
    ShelfFault(
        "every result goes onto the shelf",
        "shelved",
        old="if len(text) <= 2 * results.part:",
        new="if not text:",
        caught_by="what_is_short_is_left_as_it_is",
    ),
    ShelfFault(
        "a part that was read is too long itself, and goes back onto the shelf",
        "shelved",
        old="if len(text) <= 2 * results.part:",
        new="if len(text) <= results.part:",
        caught_by="a_part_is_not_stored_again",
        passes=("what_is_long_is_shown_in_part",),
    ),
    ShelfFault(
        "what failed becomes a result",
        "shelved",
        old="return seen._replace(text=results.shown(handle, text))",
        new="return Observation(results.shown(handle, text))",
        caught_by="what_failed_is_still_a_failure",
        passes=("what_is_long_is_shown_in_part", "reading_on_brings_all_of_it"),
    ),
    ShelfFault(
        "a full disk puts the whole result into the prompt",
        "shelved",
        old="{cut(text, results.part)}",
        new="{text}",
        caught_by="a_store_that_fails_fails_no_run",
    ),
    ShelfFault(
        "a result is lost where keeping it is refused",
        "shelved",
        old="(EffectFailed, LimitReached, Interrupted)",
        new="EffectFailed",
        caught_by="what_is_in_hand_outlives_the_run",
        passes=("a_store_that_fails_fails_no_run",),
    ),
    ShelfFault(
        "the guard stores by itself, not by an effect",
        "shelved",
        old='handle = (yield Do("keep a result", lambda: results.keep(text), repeatable=True)).value',
        new="handle = results.keep(text)",
        caught_by="a_replay_touches_no_store",
        passes=("what_is_long_is_shown_in_part", "a_part_is_not_stored_again"),
    ),
    ShelfFault(
        "the model is shown where a result ends, and not where it goes on",
        "shelved",
        old="seen._replace(text=results.shown(handle, text))",
        new="seen._replace(text=cut(text, results.part))",
        caught_by="what_is_long_is_shown_in_part",
        passes=("what_is_short_is_left_as_it_is",),
    ),
    ShelfFault(
        "a result is tidied up before its beginning is shown, but not before it is kept",
        "shelved",
        old="results.shown(handle, text)",
        new='results.shown(handle, " ".join(text.split()))',
        caught_by="reading_on_brings_all_of_it",
        passes=("what_is_long_is_shown_in_part", "a_part_is_not_stored_again"),
    ),
)

SUB_AGENT_FAULTS: tuple[Fault, ...] = (
    SubAgentFault(
        "a limit that is reached inside of it brings the parent down",
        old="        if result.answer is None:\n",
        new="        if result.account_closed:\n"
        "            raise RuntimeError(result.summary)\n"
        "        if result.answer is None:\n",
        caught_by="it_spends_from_the_account_of_its_parent",
        passes=("its_failure_is_an_observation",),
    ),
    SubAgentFault(
        "a person's stop inside of it brings the parent down",
        old="        if result.answer is None:\n",
        new="        if result.control.stop.name == 'HUMAN':\n"
        "            raise RuntimeError(result.summary)\n"
        "        if result.answer is None:\n",
        caught_by="a_person_stops_both",
        passes=("it_spends_from_the_account_of_its_parent",),
    ),
    SubAgentFault(
        "a sub-agent without an answer is a success",
        old="Observation(cut(result.summary, longest), False, Kind.TOOL_ERROR)",
        new="Observation(cut(result.summary, longest))",
        caught_by="its_failure_is_an_observation",
        passes=("its_answer_is_what_the_parent_observes",),
    ),
    SubAgentFault(
        "its whole run is handed back, not its answer",
        old="return Observation(cut(str(result.answer), longest))",
        new="return Observation(str(result.turns))",
        caught_by="its_turns_stay_its_own",
        passes=("it_spends_from_the_account_of_its_parent",),
    ),
    SubAgentFault(
        "a long answer is handed over whole",
        old="cut(str(result.answer), longest)",
        new="str(result.answer)",
        caught_by="a_long_answer_is_cut",
        passes=("its_answer_is_what_the_parent_observes",),
    ),
    SubAgentFault(
        "a call that failed is delegated all the same",
        old="if call.name not in agents or not seen.ok:",
        new="if call.name not in agents:",
        caught_by="a_call_that_cannot_be_made_is_not_delegated",
        passes=("other_calls_are_none_of_its_business",),
    ),
    SubAgentFault(
        "a bug in a hook is told to the parent's model",
        old="result = yield from agents[call.name].run(seen.text)",
        new="""try:
            result = yield from agents[call.name].run(seen.text)
        except Exception as error:
            return Observation(str(error), False, Kind.TOOL_ERROR)""",
        caught_by="a_bug_in_it_is_a_bug",
        passes=("its_failure_is_an_observation", "a_person_stops_both"),
    ),
    SubAgentFault(
        "it is handed the arguments as they were written, not the task in them",
        old="run(seen.text)",
        new="run(str(call.arguments))",
        caught_by="its_answer_is_what_the_parent_observes",
        passes=("its_failure_is_an_observation", "its_turns_stay_its_own"),
    ),
    SubAgentFault(
        "what cannot be worked on counts as done",
        old="        if result.answer is None:\n",
        new="        if not result.control.rounds:\n"
        "            return Observation('done')\n"
        "        if result.answer is None:\n",
        caught_by="an_empty_task_is_not_worked_on",
        passes=("its_failure_is_an_observation", "its_answer_is_what_the_parent_observes"),
    ),
    SubAgentFault(
        "whoever is named later is an agent too, and so an agent can be given itself",
        old="    agents = dict(agents)\n",
        new="",
        caught_by="no_agent_can_be_given_itself",
        passes=("its_answer_is_what_the_parent_observes",),
    ),
    SubAgentFault(
        "the results of all tools are cut, not those of sub-agents alone",
        old="            return seen\n",
        new="            return seen._replace(text=on_one_line(seen.text, 20))\n",
        caught_by="other_calls_are_none_of_its_business",
        passes=("its_answer_is_what_the_parent_observes", "a_long_answer_is_cut"),
    ),
)

STAGED_FAULTS: tuple[Fault, ...] = (
    StagedFault(
        "planning sees as little as executing",
        "staged",
        old="            return prompt.turns\n",
        new="            return prompt.turns[-last:]\n",
        caught_by="planning_sees_everything",
    ),
    StagedFault(
        "executing sees everything after the plan",
        "staged",
        old="first = max(planned + 1, len(prompt.turns) - last)",
        new="first = planned + 1",
        caught_by="executing_sees_the_plan_and_the_last_turns",
        passes=("planning_sees_everything",),
    ),
    StagedFault(
        "the plan leaves the window like any turn",
        "staged",
        old="return (*before, prompt.turns[planned], *between, *prompt.turns[first:])",
        new="return (*before, *between, *prompt.turns[first:])",
        caught_by="executing_sees_the_plan_and_the_last_turns",
        passes=("planning_sees_everything",),
    ),
    StagedFault(
        "the last turns are shown twice where the plan is one of them",
        "staged",
        old="first = max(planned + 1, len(prompt.turns) - last)",
        new="first = max(0, len(prompt.turns) - last)",
        caught_by="executing_sees_the_plan_and_the_last_turns",
        passes=("planning_sees_everything",),
    ),
    StagedFault(
        "the first plan counts for ever",
        "_latest_plan",
        old="            planned = place\n",
        new="            planned = place if planned is None else planned\n",
        caught_by="the_latest_plan_is_the_plan",
        passes=("executing_sees_the_plan_and_the_last_turns", "a_plan_that_failed_is_none"),
    ),
    StagedFault(
        "a plan that was refused counts",
        "_latest_plan",
        old=" and observation.ok",
        new="",
        caught_by="a_plan_that_failed_is_none",
        passes=("the_latest_plan_is_the_plan",),
    ),
    StagedFault(
        "the gap between plan and step is not marked",
        "staged",
        old="*between, ",
        new="",
        caught_by="what_is_left_out_is_marked",
        passes=("executing_sees_the_plan_and_the_last_turns", "its_views_are_views"),
    ),
    StagedFault(
        "the plan is kept with the view, for all runs",
        "_latest_plan",
        old="    turns = prompt.context.turns\n",
        new="    turns = prompt.context.turns\n    prompt.context.private = vars(view)\n",
        caught_by="one_view_serves_many_runs",
        passes=("executing_sees_the_plan_and_the_last_turns", "the_latest_plan_is_the_plan"),
    ),
    StagedFault(
        "X01: the plan is shown without what came of it",
        "staged",
        old="prompt.turns[planned], *between",
        new="Block(prompt.turns[planned].messages[:1], prompt.turns[planned].tokens), *between",
        caught_by="its_views_are_views",
        passes=("executing_sees_the_plan_and_the_last_turns", "what_is_left_out_is_marked"),
    ),
    StagedFault(
        "each turn that is left out is marked by itself",
        "staged",
        old="(left_out(planned + 2, first),) if first > planned + 1 else ()",
        new="[left_out(number, number) for number in range(planned + 2, first + 1)]",
        caught_by="a_step_costs_the_same_however_long_the_run",
        passes=("executing_sees_the_plan_and_the_last_turns", "what_is_left_out_is_marked"),
    ),
    StagedFault(
        "a plan that was mended after it was refused is none",
        "_latest_plan",
        old="and observation.ok for",
        new="and observation.ok and not (place and not turns[place - 1].observations[0].ok) for",
        caught_by="any_run_is_shown_as_it_stands",
        passes=("the_latest_plan_is_the_plan", "a_plan_that_failed_is_none"),
    ),
)
