"""Wrong parsers, readers and toolboxes for the gallery: ours with one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

ParserFault = partial(Fault, check="parser", of="parse", module="paradigms.text_protocol")
LiteralFault = partial(ParserFault, of="paradigms.text_protocol:parse", module="paradigms.literals")
ReaderFault = partial(Fault, check="reader", of="read", module="paradigms.function_calling")
ToolboxFault = partial(Fault, check="toolbox", of="Toolbox")

PROTOCOL_FAULTS: tuple[Fault, ...] = (
    ParserFault(
        "P01, EA30: what the model invented as an observation is kept and read",
        "_clean",
        old="    reply = reply[: end.start()].rstrip() if end else reply\n",
        new="",
        caught_by="the_cases_come_out_right",
        passes=("no_part_of_a_call_is_run",),
    ),
    ParserFault(
        "P13: what was only thought of is done",
        "_clean",
        old="_without_thinking(text)",
        new="text",
        caught_by="the_first_instruction_wins",
        passes=("no_part_of_a_call_is_run", "what_is_written_is_read"),
    ),
    ParserFault(
        "what cannot be read is raised, not reported",
        "parse",
        old="except Unreadable as problem:",
        new="except KeyError as problem:",
        caught_by="it_never_breaks_down",
    ),
    ReaderFault(
        "EA27: what cannot be read of a call is replaced by nothing",
        "_call",
        old=', problem=Observation(f"{problem} {_RIGHT}", False, Kind.MALFORMED)',
        new="",
        caught_by="the_cases_come_out_right",
        passes=("arguments_are_kept",),
    ),
    ReaderFault(
        "a call that cannot be read is dropped from its batch",
        "read",
        old="[_call(raw, tools) for raw in reply.tool_calls]",
        new="[call for raw in reply.tool_calls if not (call := _call(raw, tools)).problem]",
        caught_by="it_never_breaks_down",
        passes=("arguments_are_kept",),
    ),
    ReaderFault(
        "T02: a value that looks like JSON is decoded",
        "_decoded",
        old="        return arguments\n",
        new="        return {\n"
        "            name: int(value) if isinstance(value, str) and value.isdecimal() and value.isascii()"
        " and value[0] != '0' else value\n"
        "            for name, value in arguments.items()\n"
        "        }\n",
        caught_by="arguments_are_kept",
        passes=("the_cases_come_out_right",),
    ),
    ToolboxFault(
        "where the name is unknown, the nearest tool is run",
        "Toolbox.prepare",
        old="    if tool is None:\n",
        new="    import difflib\n\n"
        "    near = difflib.get_close_matches(str(call.name), self.names, 1)\n"
        "    if tool is None and near:\n"
        "        return self.prepare(call._replace(name=near[0]))\n"
        "    if tool is None:\n",
        caught_by="an_unknown_name_runs_nothing",
        passes=("it_answers_any_call", "it_enters_no_tool_with_what_does_not_fit"),
    ),
    ToolboxFault(
        "a call that could not be read is made with what is left of it",
        "Toolbox.prepare",
        old="if call.problem is not None:",
        new="if False:",
        caught_by="a_call_that_could_not_be_read_runs_nothing",
        passes=("it_answers_any_call",),
    ),
    ToolboxFault(
        "arguments that nobody asked for are dropped, and the tool is run without them",
        "_Tool.check",
        old='problems.append(f"unexpected argument {_shown(name)}")',
        new="pass",
        caught_by="it_enters_no_tool_with_what_does_not_fit",
        passes=("it_answers_any_call", "what_a_schema_promises_is_accepted"),
    ),
    ToolboxFault(
        "True counts as a whole number",
        "_Tool.check",
        old="type(value) in parameter.exact",
        new="isinstance(value, parameter.exact)",
        caught_by="it_enters_no_tool_with_what_does_not_fit",
        passes=("what_a_schema_promises_is_accepted",),
    ),
    ToolboxFault(
        "the model is not shown what a parameter takes",
        "_Tool.schema",
        old="name: _schema(parameter.annotation) for",
        new="name: {} for",
        caught_by="what_a_schema_promises_is_accepted",
        passes=("it_enters_no_tool_with_what_does_not_fit", "a_text_is_never_altered"),
    ),
    ToolboxFault(
        "a text is tidied up on its way into a tool",
        "_Tool.check",
        old="    for name, value in arguments.items():\n",
        new="    for name, value in arguments.items():\n"
        "        value = value.strip() if isinstance(value, str) else value\n",
        caught_by="a_text_is_never_altered",
        passes=("it_enters_no_tool_with_what_does_not_fit",),
    ),
    ToolboxFault(
        "T06: a TypeError inside a tool is called a bad call",
        "Toolbox.execute",
        old="        return self.failure(call, error)\n",
        new="        if isinstance(error, TypeError):\n"
        "            return self._failed(Kind.BAD_ARGUMENTS, str(error))\n"
        "        return self.failure(call, error)\n",
        caught_by="a_bug_of_the_tool_is_not_blamed_on_the_model",
        passes=("it_answers_any_call", "it_enters_no_tool_with_what_does_not_fit"),
    ),
    ToolboxFault(
        "C09: whatever looks like a lost connection is said to do no harm again",
        "Toolbox.failure",
        old="isinstance(error, ConnectionRefusedError)",
        new="True",
        caught_by="a_fault_that_may_pass_says_whether_to_try_again",
        passes=("a_bug_of_the_tool_is_not_blamed_on_the_model",),
    ),
    ToolboxFault(
        "that a tool may be repeated is taken to mean that it did nothing",
        "Toolbox.failure",
        old="isinstance(error, ConnectionRefusedError)",
        new="isinstance(error, ConnectionRefusedError) or self.is_idempotent(call.name)",
        caught_by="a_fault_that_may_pass_says_whether_to_try_again",
    ),
    ToolboxFault(
        "what the server said of when to come back is lost",
        "Toolbox.failure",
        old="Kind.UNAVAILABLE, text, error.retry_after)",
        new="Kind.UNAVAILABLE, text)",
        caught_by="a_fault_that_may_pass_says_whether_to_try_again",
    ),
    ToolboxFault(
        "U01: a result that is no text is handed on as it is",
        "Toolbox.observe",
        old="(cut(text, self._max_characters), ok is True, kind, retry_after)",
        new="(result, ok is True, kind, retry_after)",
        caught_by="results_become_text",
        passes=("an_unknown_name_runs_nothing",),
    ),
    ToolboxFault(
        "a name that is no text brings it down",
        "Toolbox.prepare",
        old="self._tools.get(call.name) if isinstance(call.name, str) else None",
        new="self._tools.get(call.name)",
        caught_by="it_answers_any_call",
        passes=("it_enters_no_tool_with_what_does_not_fit",),
    ),
    ParserFault(
        "an argument that is empty is left out",
        "_object",
        old="    return read_object(reply, position)\n",
        new="    arguments, end = read_object(reply, position)\n"
        "    return {name: value for name, value in arguments.items() if value not in ('', [], {})}, end\n",
        caught_by="what_is_written_is_read",
        passes=("the_cases_come_out_right", "no_part_of_a_call_is_run"),
    ),
    LiteralFault(
        "how deep brackets lie is not counted",
        "read_items",
        old="_value(text, token, depth)",
        new="_value(text, token, 1)",
        caught_by="long_replies_are_read",
        passes=("the_cases_come_out_right", "no_part_of_a_call_is_run"),
    ),
    LiteralFault(
        "a call that breaks off after a comma is made with what there is",
        "read_items",
        old="        if token is None:\n",
        new="        if token is None and name is None and not text[position:].strip():\n"
        "            return values, named, position\n"
        "        if token is None:\n",
        caught_by="no_part_of_a_call_is_run",
        passes=("the_cases_come_out_right", "what_is_written_is_read"),
    ),
)
