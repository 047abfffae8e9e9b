"""Chapter 05: a reply is text until a parser has read it, and an unreadable one is an observation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Finish,
    Kind,
    LoopError,
    Reply,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    drive,
)
from chapters.ch05_thought_action_observation import (
    IN_ARTICLE_A,
    IN_ARTICLE_B,
    PLAIN_TEXT,
    TASK,
    TOOLS,
    Reader,
    act_by_regex,
    article_a_base,
    article_a_react,
    article_b,
    by_protocol,
    by_regex,
    forgetful_model,
)
from fake_llm import ScriptedModel
from paradigms.function_calling import read
from paradigms.prompt import think
from paradigms.react import react
from paradigms.text_protocol import contract, parse, render
from tests.check_parser import PROMISES, Parse

BOX = Toolbox(TOOLS)
SAMPLES = dict((*IN_ARTICLE_A, *IN_ARTICLE_B))


def call(reply: str) -> ToolCall:
    """The one call that ``parse`` finds in a reply, which must be readable."""
    decision = parse(reply, BOX)
    assert isinstance(decision, Act)
    assert decision.calls[0].problem is None
    return decision.calls[0]


def answer(reply: str) -> str:
    decision = parse(reply, BOX)
    assert isinstance(decision, Finish)
    assert isinstance(decision.answer, str)
    return decision.answer


def problem(reply: str) -> Kind:
    decision = parse(reply, BOX)
    assert isinstance(decision, Act)
    assert decision.calls[0].problem is not None
    return decision.calls[0].problem.kind


# --- The nine replies -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SAMPLES)
def test_what_the_regexes_get_wrong_the_protocol_gets_right(kind: str) -> None:
    readers: tuple[Reader, ...] = (article_b,)
    if kind in dict(IN_ARTICLE_A):
        readers = (article_a_base, article_a_react)
    for reader in readers:
        assert by_regex(reader, SAMPLES[kind]) != by_protocol(SAMPLES[kind], BOX)


def test_an_argument_that_is_lost_and_a_city_that_is_another() -> None:
    assert article_b(SAMPLES["a number"]).arguments == {"city": "上海"}
    assert call(SAMPLES["a number"]).arguments == {"city": "上海", "days": 3}
    assert article_b(SAMPLES["two calls on one line"]).arguments == {"city": "上海"}
    assert call(SAMPLES["two calls on one line"]).arguments == {"city": "北京"}


# --- The articles' regular expressions, erratum by erratum ------------------------------------


def test_EB01_the_truncation_regex_as_printed_misses_a_pair_on_two_lines() -> None:
    two_pairs = 'Thought: a\nAction: get_weather(city="北京")\nThought: b\nAction: get_weather(city="上海")'
    decision = parse(two_pairs, BOX)
    assert decision.thought == 'Thought: a\nAction: get_weather(city="北京")'
    one_line = 'Thought: a Action: get_weather(city="北京")\nThought: b Action: get_weather(city="上海")'
    assert article_b(one_line).arguments == {"city": "北京"}, "where there is no line end, it does cut"


@pytest.mark.parametrize(
    "reply",
    [
        'Thought: 然后写 Action: 就行。\nAction: get_weather(city="北京")',
        'Thought: 查天气。\nAction: get_weather(city="北京") 谢谢！',
        'Thought: 查天气。\nAction: get_weather(city="北京") Observation: 晴',
        'Thought：查天气。\nAction：get_weather(city="北京")',
        'Action: get_weather(city="北京")',
    ],
)
def test_EB02_edges_of_the_first_pair(reply: str) -> None:
    assert call(reply)[:2] == ("get_weather", {"city": "北京"})
    assert "晴" not in parse(reply, BOX).thought


def test_EB03_the_article_s_own_example_runs() -> None:
    example = SAMPLES["the article's own example"]
    assert by_regex(article_b, example).startswith("CRASH TypeError")
    assert call(example).arguments == {"city": "北京"}


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("city='北京', days=3", {"city": "北京", "days": 3}),
        ("city = “北京”", {"city": "北京"}),
        ('city="北京", days=null', {"city": "北京", "days": None}),
        (r'city="say \"北京\""', {"city": 'say "北京"'}),
        ("""city='他说 days="3"'""", {"city": '他说 days="3"'}),
    ],
)
def test_EB04_no_argument_is_dropped_cut_or_invented(written: str, arguments: dict[str, object]) -> None:
    reply = f"Action: get_forecast({written})"
    assert call(reply).arguments == arguments
    assert article_b(reply).arguments != arguments


@pytest.mark.parametrize("name", ["amap.get_weather", "indoor-get_weather"])
def test_EB05_another_tool_is_not_run_for_a_name_that_ends_like_it(name: str) -> None:
    reply = f'Action: {name}(city="北京")'
    assert article_b(reply).name == "get_weather"
    assert call(reply).name == name
    assert BOX.execute(call(reply)).kind is Kind.UNKNOWN_TOOL


@pytest.mark.parametrize("written", ['get_weather (city="北京")', 'get_weather（city="北京"）'])
def test_EB05_a_space_or_a_wide_bracket_after_the_name_is_read(written: str) -> None:
    assert by_regex(article_b, f"Action: {written}").startswith("CRASH")
    assert call(f"Action: {written}")[:2] == ("get_weather", {"city": "北京"})


def test_EB06_brackets_end_where_they_are_closed() -> None:
    nested = 'Action: get_weather(city="北京 (市区)")'
    assert call(nested).arguments == article_b(nested).arguments == {"city": "北京 (市区)"}
    several_lines = 'Action: get_weather(\n  city="北京"\n)'
    assert call(several_lines).arguments == {"city": "北京"}
    assert by_regex(article_b, several_lines).startswith("CRASH AttributeError")


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (PLAIN_TEXT, Kind.MALFORMED),
        ('Action: get_wether(city="北京")', Kind.UNKNOWN_TOOL),
        ('Action: get_weather(town="北京")', Kind.BAD_ARGUMENTS),
        ('Action: get_weather(city="火星")', Kind.TOOL_ERROR),
    ],
)
def test_EB07_whatever_is_wrong_becomes_an_observation(reply: str, kind: Kind) -> None:
    assert by_regex(article_b, reply).startswith("CRASH")
    decision = parse(reply, BOX)
    assert isinstance(decision, Act)
    assert BOX.execute(decision.calls[0]).kind is kind


def test_EB08_an_answer_is_looked_for_before_a_tool() -> None:
    mentions_a_tool = SAMPLES["an answer that mentions a tool"]
    assert article_b(mentions_a_tool).name == "get_weather"
    assert 'get_weather(city="广州")' in answer(mentions_a_tool)
    assert answer("Action: Finish[第一 [1]\n第二]") == "第一 [1]\n第二"
    assert problem("Action: Finish[没有写完") is Kind.MALFORMED


def test_EA12_an_answer_is_the_answer_alone() -> None:
    assert answer("Thought: done.\n[FINAL_ANSWER] 颐和园 [/FINAL_ANSWER]") == "颐和园"
    assert answer("[TASK_COMPLETE] 颐和园") == "颐和园"
    assert article_a_base("颐和园 [FINAL_ANSWER]") == Finish("")
    assert problem("[FINAL_ANSWER]") is Kind.MALFORMED


def test_EA13_a_marker_that_is_only_mentioned_ends_nothing() -> None:
    mention = SAMPLES["it speaks of the marker"]
    assert isinstance(article_a_react(mention), Finish)
    assert call(mention)[:2] == ("get_weather", {"city": "北京"})


def test_EA14_arguments_are_a_mapping_and_may_run_over_lines() -> None:
    reply = 'Action: get_forecast Args: {"city": "北京",\n "days": 3}'
    naive = article_a_base(reply)
    assert naive is not None and naive[1] == '{"city": "北京",', "a text, and only its first line"
    assert call(reply).arguments == {"city": "北京", "days": 3}


@pytest.mark.parametrize("name", ["weather-api", "amap.weather", "[get_weather]", "查询天气"])
@pytest.mark.parametrize("colon", [":", "："])
def test_EA15_names_are_matched_whole_and_either_colon_is_one(name: str, colon: str) -> None:
    reply = f'Action{colon} {name} Args{colon} {{"city": "北京"}}'
    assert call(reply)[:2] == (name.strip("[]"), {"city": "北京"})
    if name != "查询天气" or colon == "：":
        assert article_a_base(reply) is None, "silently no action"


def test_EA26_arguments_are_data_and_are_never_run() -> None:
    code = 'Action: get_weather Args: {"city": __import__("os").getcwd()}'
    assert problem(code) is Kind.MALFORMED
    assert "getcwd" in parse(code, BOX).thought, "it is kept as what the model said, and nothing else"


def test_EA27_json_is_read_as_json_and_a_broken_one_reaches_no_tool() -> None:
    reply = 'Action: get_forecast Args: {"city": "北京", "fresh": true, "unit": null}'
    assert call(reply).arguments == {"city": "北京", "fresh": True, "unit": None}
    broken = 'Action: get_forecast Args: {"city": "北京"'
    naive = article_a_react(broken)
    assert isinstance(naive, ToolCall) and "raw" in naive.arguments, "made-up arguments"
    assert problem(broken) is Kind.MALFORMED


def test_EA28_braces_inside_an_object_or_a_text_are_no_end_of_it() -> None:
    assert call(SAMPLES["a bracket inside a text"]).arguments == {"city": "北京", "weather": "Snowy {大雪}"}
    nested = 'Action: get_forecast Args: {"city": {"name": "北京"}, "days": 3}'
    assert call(nested).arguments == {"city": {"name": "北京"}, "days": 3}


def test_EA29_a_value_without_a_name_goes_to_the_parameter_of_the_tool() -> None:
    bare = 'Action: get_weather Args: "北京"'
    naive = article_a_react(bare)
    assert isinstance(naive, ToolCall) and naive.arguments == {"query": '"北京"'}
    assert call(bare).arguments == {"city": "北京"}


def test_EA30_what_the_model_observed_by_itself_is_cut() -> None:
    invented = SAMPLES["it invents the observation, and an answer"]
    assert isinstance(article_a_react(invented), Finish), "no tool ran, and the answer is made up"
    assert call(invented)[:2] == ("get_weather", {"city": "哈尔滨"})
    assert "30°C" not in parse(invented, BOX).thought


def test_EA31_the_answer_of_the_article_s_second_example_holds_no_label() -> None:
    example = "Thought: 根据天气结果，建议用户带伞。\nAction: [FINAL_ANSWER] Args: 建议带伞，可能有雨。"
    assert answer(example) == "建议带伞，可能有雨。"
    assert article_a_react(example) == Finish("Args: 建议带伞，可能有雨。")


def test_EB14_the_protocol_decides_what_plain_text_is() -> None:
    assert problem(PLAIN_TEXT) is Kind.MALFORMED
    assert isinstance(read(Reply(PLAIN_TEXT), BOX), Finish)


def test_EX02_one_parser_reads_the_protocols_of_both_articles() -> None:
    for reply in (
        'Action: get_weather Args: {"city": "北京"}',
        'Action: get_weather(city="北京")',
    ):
        assert call(reply)[:2] == ("get_weather", {"city": "北京"})
    assert by_regex(article_b, 'Action: get_weather Args: {"city": "北京"}').startswith("CRASH")
    assert article_a_react('Action: get_weather(city="北京")') is None


# --- In a loop --------------------------------------------------------------------------------


def test_a_regex_ends_the_run_with_a_bug_where_the_protocol_reports() -> None:
    naive = AgentLoop(think(contract(BOX), act_by_regex, render))
    with pytest.raises(LoopError) as ended:
        drive(naive.run(TASK), World(forgetful_model(), BOX, inline=True))
    assert isinstance(ended.value.__cause__, AttributeError)
    assert ended.value.result.stop is StopReason.ERROR


def test_an_unreadable_reply_costs_a_round_and_no_tool_call_and_is_mended() -> None:
    result = drive(AgentLoop(react(BOX)).run(TASK), World(forgetful_model(), BOX, inline=True))
    assert result.stop is StopReason.FINAL_ANSWER
    seen = [observation.kind for turn in result.turns for observation in turn.observations]
    assert seen == [Kind.MALFORMED, Kind.MALFORMED, Kind.RESULT]
    assert (result.control.rounds, result.control.tool_calls) == (4, 1)


def test_the_model_is_shown_what_was_wrong_in_its_next_prompt() -> None:
    model = forgetful_model()
    drive(AgentLoop(react(BOX)).run(TASK), World(model, BOX, inline=True))
    assert "Observation: 未能解析到 Action 字段" in model.prompts[1]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=6))
def test_no_text_without_an_instruction_ends_a_run_well(replies: list[str]) -> None:
    """Each becomes an observation, and neither an exception nor an answer."""
    replies = [reply for reply in replies if isinstance(parse(reply, BOX), Act)]
    model = ScriptedModel([*replies, "Action: Finish[好]"])
    result = drive(AgentLoop(react(BOX)).run(TASK), World(model, BOX, inline=True))
    if len(replies) < result.limits.failures:
        assert (result.answer, len(result.turns)) == ("好", len(replies) + 1)
    else:
        assert result.stop is StopReason.TOO_MANY_FAILURES


# --- Planted faults: the articles' own readers ------------------------------------------------


def as_parse(read_reply: Reader) -> Parse:
    """One of the articles' readers in the shape of a ``parse``."""

    def parse_naively(text: str, tools: Toolbox) -> Act | Finish:
        decision = read_reply(text)
        return decision if isinstance(decision, Finish) else Act((decision or ToolCall("", {}),), text)

    return parse_naively


@pytest.mark.parametrize("reader", [article_a_base, article_a_react, article_b])
def test_the_workbench_rejects_each_of_the_articles_readers(reader: Reader) -> None:
    with pytest.raises(AssertionError):
        PROMISES["the_cases_come_out_right"](as_parse(reader))
