"""The pretend world keeps its promises: each is an example, or a property of any text and any call."""

from __future__ import annotations

import copy
import json
import math
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    CallModel,
    Finish,
    Kind,
    Limits,
    LoopContext,
    Message,
    Observation,
    Program,
    Reply,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    Unavailable,
    Usage,
    World,
    drive,
    estimate_tokens,
)
from fake_llm import (
    Cashier,
    CatHouse,
    Exchange,
    FakeClock,
    FakeModel,
    JobQueue,
    PlaybackModel,
    Raised,
    Recording,
    RequestDiffers,
    RuleModel,
    ScriptedModel,
    ScriptEnded,
    babbling_model,
    broken_tool,
    calls,
    count_tokens,
    empty_model,
    error_by_value,
    flaky_tool,
    get_attraction,
    get_weather,
    hanging_model,
    hanging_tool,
    huge_result,
    odd_results,
    raising_model,
    random_model,
    readable,
    stubborn_model,
    typical_replies,
)
from fake_llm.recording import as_data

any_text = st.text(st.characters(), max_size=30)  # lone surrogates are among these characters
hanzi = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), max_size=200)
emoji = st.text(st.sampled_from("😀🚀🍵🐈🌧🧋"), max_size=50)


def ask(*contents: str) -> CallModel:
    return CallModel([Message("user", content) for content in contents])


# --- Scripts ----------------------------------------------------------------------------------


def test_a_script_is_given_in_order_and_tells_what_is_left() -> None:
    model = ScriptedModel(["one", Reply("two"), "three"])
    assert [model(ask("a")).text, model(ask("b")).text] == ["one", "two"]
    assert model.remaining == ("three",)


def test_a_script_that_ends_early_says_how_long_it_was_and_what_was_asked() -> None:
    model = ScriptedModel(["one", "two"])
    model(ask("a"))
    model(ask("b"))
    with pytest.raises(ScriptEnded, match="holds 2 replies.*'Observation: 晴'"):
        model(ask("task", "Observation: 晴"))


def test_a_request_without_messages_can_outlast_a_script_too() -> None:
    with pytest.raises(ScriptEnded, match="holds 0 replies"):
        ScriptedModel([])(CallModel([]))


def test_no_loop_takes_the_end_of_a_script_for_a_failing_model() -> None:
    assert not issubclass(ScriptEnded, Exception)
    ended = ScriptEnded(2, CallModel((Message("user", "题"),)))
    assert str(copy.copy(ended)) == str(ended), "it survives the way back from another process"
    for inline in (True, False):
        with pytest.raises(ScriptEnded):
            drive(asking_loop().run("task"), World(ScriptedModel([]), inline=inline))


@pytest.mark.parametrize("script", ["Finish[颐和园]", Reply("Finish[颐和园]")])
def test_a_script_that_is_a_single_reply_is_refused(script: Any) -> None:
    with pytest.raises(TypeError, match="a list of replies"):
        ScriptedModel(script)


def test_a_script_may_raise_and_may_look_at_the_request() -> None:
    model = ScriptedModel([ConnectionError("down"), lambda request: request.messages[-1].content.upper()])
    with pytest.raises(ConnectionError, match="down"):
        model(ask("a"))
    assert model(ask("b")).text == "B"


def test_a_failing_model_does_not_collect_the_frames_of_its_past() -> None:
    error = ConnectionError("down")
    model = raising_model(error)

    def frames() -> int:
        with pytest.raises(ConnectionError) as caught:
            model(ask("a"))
        return len(caught.traceback)

    assert frames() == frames() == frames()


@given(st.lists(any_text, max_size=8))
def test_any_script_is_told_word_for_word(script: list[str]) -> None:
    model = ScriptedModel(script)
    assert [model(ask("next")).text for _ in script] == script
    assert model.remaining == ()


# --- What a model remembers -------------------------------------------------------------------


@given(st.lists(any_text, min_size=1), any_text)
def test_requests_are_snapshots(contents: list[str], later: str) -> None:
    messages = [Message("user", content) for content in contents]
    tools = [{"name": "get_weather"}]
    model = ScriptedModel(["reply"])
    model(CallModel(messages, tools))
    messages.append(Message("user", later))
    tools.clear()
    (seen,) = model.requests
    assert [message.content for message in seen.messages] == contents
    assert seen.tools == ({"name": "get_weather"},)


def test_prompts_can_be_read_back() -> None:
    call = ToolCall("get_weather", {"city": "北京"}, "call_1_1_1")
    messages = [
        Message("system", "You are helpful."),
        Message("assistant", "先查天气。", (call,)),
        Message("tool", "Sunny", call_id="call_1_1_1"),
    ]
    model = ScriptedModel(["reply"])
    model(CallModel(messages))
    assert model.prompts == [
        "system: You are helpful.\n\n"
        "assistant: 先查天气。\n-> get_weather(city='北京')\n\n"
        "tool (call_1_1_1): Sunny"
    ]
    assert readable([]) == ""


def test_told_usage_is_kept_and_none_is_made_up() -> None:
    """What is not told, the account estimates."""
    request = ask("你好世界")
    assert ScriptedModel(["四个汉字"])(request) == Reply("四个汉字")
    assert ScriptedModel([Reply("四个汉字", usage=Usage(3, 0.5))])(request).usage == Usage(3, 0.5)
    assert ScriptedModel([calls(("get_weather", {"city": "北京"}))])(request).usage is None


def test_calls_are_written_as_a_provider_writes_them() -> None:
    reply = calls(("get_weather", {"city": "北京"}), ("pay", '{"amount": '), text="先查天气。")
    assert reply.text == "先查天气。"
    assert reply.tool_calls == (
        {"id": "call_1", "name": "get_weather", "arguments": '{"city": "北京"}'},
        {"id": "call_2", "name": "pay", "arguments": '{"amount": '},
    )


# --- Counting tokens (case X06) ---------------------------------------------------------------


@given(hanzi)
def test_chinese_counts_at_least_six_tenths_a_character(text: str) -> None:
    assert count_tokens([Message("user", text)]) >= 0.6 * len(text)


@given(emoji)
def test_emoji_count_at_least_one_each(text: str) -> None:
    assert count_tokens([Message("user", text)]) >= len(text)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_english_stays_near_a_quarter(text: str) -> None:
    assert len(text) / 4 <= count_tokens([Message("user", text)]) < len(text) / 4 + 1


@given(any_text, any_text)
def test_a_count_never_decreases_when_text_is_appended(text: str, more: str) -> None:
    assert estimate_tokens(text + more) >= estimate_tokens(text)
    prompt = [Message("user", text)]
    assert count_tokens([*prompt, Message("user", more)]) >= count_tokens(prompt)


def test_calls_in_a_message_are_counted() -> None:
    call = ToolCall("get_weather", {"city": "北京"})
    assert count_tokens([Message("assistant", "", (call,))]) == estimate_tokens("get_weather{'city': '北京'}")


# --- Rules ------------------------------------------------------------------------------------


def test_the_first_rule_that_applies_to_the_latest_message_answers() -> None:
    model = RuleModel(
        [
            ("Sunny", "Finish[颐和园]"),
            (lambda request: len(request.messages) > 2, "enough"),
            ("北京", lambda request: f"I saw {len(request.messages)} messages"),
        ],
        otherwise="Finish[不知道]",
    )
    assert model(ask("北京", "Sunny，北京")).text == "Finish[颐和园]"
    assert model(ask("a", "b", "北京")).text == "enough"
    assert model(ask("Sunny", "北京")).text == "I saw 2 messages"
    assert model(ask("Sunny", "上海")).text == "Finish[不知道]"
    assert model(CallModel([])).text == "Finish[不知道]"


# --- Hostile models ---------------------------------------------------------------------------


def test_a_stubborn_model_never_changes_its_mind() -> None:
    native = calls(("get_weather", {"city": "北京"}), usage=Usage(1))
    assert len({stubborn_model()(ask(str(n))).text for n in range(5)}) == 1
    model = stubborn_model(native)
    assert all(model(ask(str(n))) == native for n in range(5))


@given(st.integers(0, 5_000))
def test_babble_has_the_length_asked_for_and_no_label(characters: int) -> None:
    text = babbling_model(characters)(ask("task")).text
    assert len(text) == characters
    assert ":" not in text and "：" not in text and "[" not in text


def test_an_empty_model_is_empty_in_each_way() -> None:
    model = empty_model()
    said = [model(ask("task")) for _ in range(4)]
    assert said[1] is None
    assert all(not reply.text.strip() and not reply.tool_calls for reply in said if reply is not None)


def test_a_raising_model_is_an_observation_to_its_loop() -> None:
    result = drive(asking_loop().run("task"), World(raising_model(ConnectionError("503")), inline=True))
    assert result.stop is StopReason.TOO_MANY_FAILURES
    assert result.turns[0].observations[0].kind is Kind.UNAVAILABLE


def test_a_hanging_model_is_left_behind_on_time() -> None:
    clock = FakeClock()
    world = World(hanging_model(lambda: clock.advance(31)), clock=clock.now, inline=True)
    result = drive(asking_loop(Limits(seconds=60)).run("task"), world)
    assert result.stop is StopReason.WALL_CLOCK
    assert result.turns[0].observations[0].kind is Kind.TIMEOUT


def test_a_hanging_model_can_wait_for_an_event() -> None:
    event = threading.Event()
    event.set()
    assert hanging_model(event.wait, "late")(ask("task")).text == "late"


def answers(model: FakeModel, count: int) -> list[str]:
    """What a model says, exceptions too, in a form that can be compared."""
    said = []
    for _ in range(count):
        try:
            said.append(repr(model(ask("task"))))
        except Exception as error:
            said.append(repr(error))
    return said


@given(st.integers())
def test_a_random_model_says_the_same_for_the_same_seed(seed: int) -> None:
    assert answers(random_model(seed), 20) == answers(random_model(seed), 20)


def test_a_random_model_comes_to_say_everything() -> None:
    assert len(set(answers(random_model(1), 500))) == len(typical_replies())
    assert set(answers(random_model(1, ["a", "b"]), 50)) == set(answers(ScriptedModel(["a", "b"]), 2))


# --- The clock --------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6)))
def test_a_clock_moves_by_what_it_is_told_and_by_nothing_else(steps: list[float]) -> None:
    clock = FakeClock()
    for step in steps:
        before = clock.now()
        clock.sleep(step)
        assert clock.now() == before + step
    assert clock.slept == steps
    clock.advance(1)
    assert clock.slept == steps


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_a_clock_does_not_go_back_or_to_the_end_of_time(seconds: float) -> None:
    clock = FakeClock(5)
    with pytest.raises(ValueError, match="finite number of seconds from 0 up"):
        clock.sleep(seconds)
    assert (clock.now(), clock.slept) == (5, [])


# --- Tools ------------------------------------------------------------------------------------


def test_the_articles_tools_say_what_the_article_prints() -> None:
    assert get_weather("北京") == "北京当前天气：Sunny，气温 26 摄氏度"
    assert get_attraction("北京", "Sunny") == "颐和园（湖景 + 古建筑）、长城"
    assert get_attraction("北京", "暴雨") == "故宫博物院、国家博物馆"


@pytest.mark.parametrize("tool", [get_weather, lambda city: get_attraction(city, "Sunny")])
def test_an_unknown_city_is_answered_with_those_that_are_known(tool: Callable[[str], str]) -> None:
    with pytest.raises(LookupError, match="'亚特兰蒂斯'.*北京, 上海"):
        tool("亚特兰蒂斯")


def observe(tool: Callable[..., Any], **arguments: Any) -> Observation:
    toolbox = Toolbox([tool])
    return toolbox.execute(ToolCall(toolbox.names[0], arguments))


SPOILED = [
    flaky_tool(get_weather, 1),
    broken_tool(get_weather, PermissionError("no key")),
    hanging_tool(get_weather, lambda: None),
    error_by_value(get_weather),
    huge_result(get_weather),
    odd_results(get_weather),
]


@pytest.mark.parametrize("tool", SPOILED)
def test_a_spoiled_tool_looks_like_the_one_it_was_made_from(tool: Callable[..., Any]) -> None:
    assert Toolbox([tool]).schemas() == Toolbox([get_weather]).schemas()
    assert Toolbox([tool]).describe() == Toolbox([get_weather]).describe()


@given(st.integers(0, 10))
def test_a_flaky_tool_fails_so_many_times_and_then_works(times: int) -> None:
    tool = flaky_tool(get_weather, times)
    observed = [observe(tool, city="北京") for _ in range(times + 3)]
    assert [observation.ok for observation in observed] == [False] * times + [True] * 3
    assert all(observation.kind is Kind.UNCERTAIN for observation in observed[:times])
    assert tool.calls == [{"city": "北京"}] * (times + 3)


def test_a_broken_tool_always_raises() -> None:
    tool = broken_tool(get_weather, PermissionError("no key"))
    assert [observe(tool, city="北京").text for _ in range(3)] == [
        "get_weather failed with PermissionError: no key"
    ] * 3


def test_a_spoiled_tool_takes_its_arguments_like_the_real_one() -> None:
    tool = flaky_tool(get_attraction, 0)
    assert tool("北京", weather="Sunny") == get_attraction("北京", "Sunny")
    assert tool.calls == [{"city": "北京", "weather": "Sunny"}]
    with pytest.raises(TypeError):
        tool()


def test_a_hanging_tool_works_in_the_end() -> None:
    clock = FakeClock()
    assert hanging_tool(get_weather, lambda: clock.advance(40))(city="北京") == get_weather("北京")
    assert clock.now() == 40


def test_results_that_mislead_are_results_all_the_same() -> None:
    assert error_by_value(get_weather)(city="北京") == {"status": "error", "error": "service unavailable"}
    assert len(huge_result(get_weather, 12_345)(city="北京")) == 12_345
    tool = odd_results(get_weather)
    assert all(isinstance(observe(tool, city="北京").text, str) for _ in range(8))
    assert odd_results(get_weather, [7])(city="北京") == 7


@given(st.lists(st.floats(0.01, 1e6), max_size=5))
def test_every_payment_is_in_the_ledger(amounts: list[float]) -> None:
    cashier = Cashier()
    for amount in amounts:
        cashier.pay(amount)
    assert cashier.ledger == amounts


@pytest.mark.parametrize("amount", [0, -9, math.nan])
def test_nothing_is_paid_where_there_is_nothing_to_pay(amount: float) -> None:
    cashier = Cashier()
    assert not observe(cashier.pay, amount=amount).ok
    assert cashier.ledger == []


def test_polling_shows_progress_for_each_job_and_stays_done() -> None:
    jobs = JobQueue()
    assert [jobs.poll("j") for _ in range(6)] == ["10%", "40%", "70%", "95%", "done", "done"]
    assert jobs.poll("another") == "10%"
    with pytest.raises(ValueError, match="at least one"):
        JobQueue([])


# --- The house --------------------------------------------------------------------------------


def wise_step(seen: dict[str, Any]) -> ToolCall:
    """What to do about the cat, decided by what is there now."""
    carrying = seen["carries"] == "a fish"
    if not carrying and seen["room"] != "厨房":
        return ToolCall("move", {"room": "厨房"})
    if not carrying:
        return ToolCall("take_fish", {})
    if "the cat" in seen["sees"]:
        return ToolCall("feed_cat", {})
    if seen["hears"] != "nothing":
        return ToolCall("move", {"room": seen["hears"].removeprefix("a meow from ")})
    return ToolCall("look", {})


@given(st.integers())
def test_who_looks_again_each_time_feeds_the_cat(seed: int) -> None:
    house = CatHouse(seed)
    toolbox = Toolbox(house.tools)
    for _ in range(100):
        if house.goal_met:
            break
        assert toolbox.execute(wise_step(house.view())).ok
    assert house.goal_met


@pytest.mark.parametrize("way", [["阳台"], ["阳台", "书房"], ["客厅", "卧室"]])
def test_a_plan_made_from_the_first_look_fails_in_some_house(way: list[str]) -> None:
    fed = []
    for seed in range(20):
        house = CatHouse(seed)
        toolbox = Toolbox(house.tools)
        plan = [ToolCall("move", {"room": "厨房"}), ToolCall("take_fish", {})]
        plan += [ToolCall("move", {"room": room}) for room in way]
        for call in [*plan, ToolCall("feed_cat", {})]:
            toolbox.execute(call)
        fed.append(house.goal_met)
    assert not all(fed)


@given(st.integers(), st.lists(st.integers(0, 7), max_size=30))
def test_the_house_is_the_same_for_the_same_seed(seed: int, choices: list[int]) -> None:
    def story() -> list[str]:
        house = CatHouse(seed)
        toolbox = Toolbox(house.tools)
        rooms = ("客厅", "厨房", "阳台", "书房", "卧室")
        deeds = [ToolCall(name, {}) for name in ("look", "take_fish", "feed_cat")]
        deeds += [ToolCall("move", {"room": room}) for room in rooms]
        return [toolbox.execute(deeds[choice]).text for choice in choices]

    assert story() == story()


def test_what_cannot_be_done_says_why_and_takes_no_time() -> None:
    house = CatHouse()
    attempts: list[tuple[Callable[..., str], dict[str, str], str]] = [
        (house.move, {"room": "书房"}, "no door leads from 客厅 to 书房: doors lead to 卧室 and 厨房"),
        (house.take_fish, {}, "no fish to take in 客厅"),
        (house.feed_cat, {}, "you carry no fish"),
    ]
    for tool, arguments, why in attempts:
        observation = observe(tool, **arguments)
        assert not observation.ok and why in observation.text
    assert house.minute == 0


def test_what_is_done_takes_a_minute() -> None:
    house = CatHouse()
    house.look()
    house.move("厨房")
    house.take_fish()
    assert house.minute == house.view()["minute"] == 3


def test_a_loop_perceives_the_house_by_an_effect() -> None:
    house = CatHouse(3)
    memory: list[dict[str, Any]] = []

    def reason(context: LoopContext) -> Finish:
        memory.append(dict(context.working_memory))
        return Finish("ready")

    drive(AgentLoop(reason, perceive=house.perceive).run("喂猫"), World(inline=True))
    assert memory == [house.view()]
    assert json.loads(json.dumps(memory)) == memory
    assert house.minute == 0


# --- Recordings -------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(any_text, json_values, max_size=3)
tool_calls = st.builds(ToolCall, any_text, json_objects, any_text, st.none())
messages = st.builds(Message, any_text, any_text, st.lists(tool_calls, max_size=2).map(tuple), any_text)
requests = st.builds(
    CallModel,
    st.lists(messages, max_size=4).map(tuple),
    st.lists(json_objects, max_size=2).map(tuple),
    st.lists(any_text, max_size=2).map(tuple),
    st.integers(0, 10**6),
    st.just(math.inf),
    st.just(math.inf),
)
usages = st.none() | st.builds(Usage, st.integers(0, 10**6), st.floats(0, 1e6))
replies = st.builds(Reply, any_text, st.lists(json_values, max_size=2).map(tuple), usages)
moments = st.none() | st.integers(0, 600) | any_text
outcomes = replies | st.builds(
    Raised, st.sampled_from(["ConnectionError", "Überlastet"]), any_text, st.booleans(), moments
)
exchanges = st.lists(st.builds(Exchange, requests, outcomes), max_size=4)


def joined(value: Any) -> Any:
    """A value with each surrogate pair as the one character that it stands for, as JSON reads it."""
    return json.loads(json.dumps(value))


def recorded(exchanges: list[Exchange]) -> Recording:
    """A recording that was made by a model which answered like this."""
    recording = Recording(ScriptedModel([]))
    recording.exchanges.extend(exchanges)
    return recording


@given(exchanges)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_recording_comes_back_from_its_file(tmp_path: Path, exchanges: list[Exchange]) -> None:
    path = tmp_path / "run.jsonl"
    recorded(exchanges).save(path)
    path.read_bytes().decode("utf-8")  # the file is valid UTF-8, whatever was said
    assert joined(Recording.load(path).exchanges) == joined(exchanges)


@given(exchanges)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_loaded_recording_plays_back_what_was_said(tmp_path: Path, exchanges: list[Exchange]) -> None:
    path = tmp_path / "run.jsonl"
    recorded(exchanges).save(path)
    model = PlaybackModel(Recording.load(path))
    for request, outcome in exchanges:
        if isinstance(outcome, Raised):
            with pytest.raises(Exception) as caught:
                model(request)
            assert [type(caught.value).__name__, str(caught.value)] == joined(outcome[:2])
            assert isinstance(caught.value, Unavailable) == outcome.passing
            if isinstance(caught.value, Unavailable):
                assert joined(caught.value.retry_after) == joined(outcome.retry_after)
        else:
            assert joined(model(request)) == joined(outcome)
    with pytest.raises(ScriptEnded, match=f"holds {len(exchanges)} replies"):
        model(ask("one more"))


def test_a_recording_passes_on_and_keeps_what_a_model_says_and_raises(tmp_path: Path) -> None:
    recording = Recording(ScriptedModel(["晴", ConnectionError("down"), lambda request: 42]))
    assert recording(ask("a")).text == "晴"
    with pytest.raises(ConnectionError, match="down"):
        recording(ask("b"))
    with pytest.raises(TypeError, match="returned int"):
        recording(ask("c"))
    recording.save(tmp_path / "run.jsonl")
    loaded = Recording.load(tmp_path / "run.jsonl")
    assert loaded.exchanges == recording.exchanges
    assert "晴" in (tmp_path / "run.jsonl").read_text(encoding="utf-8")
    assert [exchange.outcome for exchange in loaded.exchanges][1:] == [
        Raised("ConnectionError", "down", passing=True),
        Raised("TypeError", "The model returned int; a model returns a Reply or text."),
    ]


@given(st.integers())
def test_a_loop_runs_the_same_on_its_recording(seed: int) -> None:
    recording = Recording(random_model(seed))

    def run(model: Callable[[CallModel], Reply]) -> Result:
        return drive(asking_loop().run("task"), World(model, clock=FakeClock().now, inline=True))

    first, again = run(recording), run(PlaybackModel(recording))
    assert again == first


def test_a_recording_holds_what_json_has_no_word_for(tmp_path: Path) -> None:
    call = ToolCall("f", {"a": (1, 2), "b": {3}, "c": {4: b"x"}}, problem=Observation("broken", False))
    request = CallModel([Message("assistant", "", (call,))])
    recording = Recording(ScriptedModel(["ok"]))
    recording(request)
    recording.save(tmp_path / "run.jsonl")
    loaded = Recording.load(tmp_path / "run.jsonl")
    assert loaded.exchanges[0].request.messages[0].calls[0].arguments == {
        "a": [1, 2],
        "b": "{3}",
        "c": {"4": "b'x'"},
    }
    assert PlaybackModel(loaded)(request).text == "ok"


def test_a_surrogate_pair_is_the_character_that_it_stands_for(tmp_path: Path) -> None:
    recording = Recording(ScriptedModel(["ok"]))
    recording(ask("\ud83d\ude00"))
    recording.save(tmp_path / "run.jsonl")
    assert PlaybackModel(Recording.load(tmp_path / "run.jsonl"))(ask("\ud83d\ude00")).text == "ok"


def test_the_time_allowed_may_differ_on_playback() -> None:
    recording = Recording(ScriptedModel(["晴"]))
    recording(ask("天气")._replace(allowed=30.0))
    assert PlaybackModel(recording)(ask("天气")._replace(allowed=12.5)).text == "晴"


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (ask("北京", "上海"), "上海"),
        (ask("北京"), '"stop": []'),
        (CallModel([Message("system", "北京"), Message("user", "天气")]), "system"),
        (ask("北京", "天气")._replace(tools=({"name": "pay"},)), "pay"),
        (ask("北京", "天气")._replace(stop=("Observation:",)), "Observation:"),
    ],
)
def test_a_request_that_was_not_recorded_is_refused(asked: CallModel, shown: str) -> None:
    recording = Recording(ScriptedModel(["一", "二"]))
    recording(ask("first"))
    recording(ask("北京", "天气"))
    model = PlaybackModel(recording)
    model(ask("first"))
    with pytest.raises(RequestDiffers, match="request 2 is not the one recorded") as caught:
        model(asked)
    assert shown in str(caught.value)
    assert len(model.remaining) == 1


def test_no_loop_takes_a_refused_playback_for_a_failing_model() -> None:
    assert not issubclass(RequestDiffers, Exception)
    recording = Recording(ScriptedModel(["晴"]))
    recording(ask("another task"))
    with pytest.raises(RequestDiffers):
        drive(asking_loop().run("task"), World(PlaybackModel(recording), inline=True))


def test_a_loaded_recording_answers_nothing_itself(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(b"")
    with pytest.raises(LookupError, match=r"PlaybackModel\(recording\)"):
        Recording.load(tmp_path / "run.jsonl")(ask("a"))


GOOD_LINE = (
    b'{"request": {"messages": [], "tools": [], "stop": [], "tokens": 0}, '
    b'"outcome": {"text": "ok", "tool_calls": [], "usage": null}}'
)


@pytest.mark.parametrize(
    "line",
    [
        GOOD_LINE[:-20],
        b"",
        b"\xff\xfe",
        b"{}",
        b"[1, 2]",
        b'"text"',
        b"[" * 100_000,
        GOOD_LINE.replace(b'"ok"', b"7"),
        GOOD_LINE.replace(b'"messages": []', b'"messages": [{"role": 5}]'),
        GOOD_LINE.replace(b'"messages": []', b'"messages": "text"'),
        GOOD_LINE.replace(b"null", b'{"tokens": -1, "cost": 0}'),
        GOOD_LINE.replace(b"null", b'{"tokens": "many"}'),
        GOOD_LINE.replace(b'"text"', b'"name"'),
    ],
)
def test_a_torn_or_foreign_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(GOOD_LINE + b"\n" + line + b"\n")
    with pytest.raises(ValueError, match=r"run\.jsonl, line 2: not an exchange of a recording"):
        Recording.load(path)


@given(json_values)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_foreign_file_is_never_more_than_a_value_error(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(ValueError, match="line 1"):
        Recording.load(path)


@given(exchanges.filter(bool), st.randoms())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_breaks_off_in_a_line_is_refused(
    tmp_path: Path, exchanges: list[Exchange], draw: random.Random
) -> None:
    path = tmp_path / "run.jsonl"
    recorded(exchanges).save(path)
    whole = path.read_bytes()
    last = whole[:-1].rfind(b"\n") + 1
    path.write_bytes(whole[: draw.randrange(last + 1, len(whole) - 1)])
    with pytest.raises(ValueError, match=f"line {len(exchanges)}"):
        Recording.load(path)


# --- Values as JSON ---------------------------------------------------------------------------


def test_data_for_json_keeps_names_and_fields() -> None:
    assert as_data((Kind.TIMEOUT, True, 1.5, None)) == ["TIMEOUT", True, 1.5, None]
    assert as_data(Limits(rounds=7))["rounds"] == 7
    assert as_data({1: {2}, "at": "北京"}) == {"1": "{2}", "at": "北京"}


def test_a_field_can_be_left_out_of_data_and_an_argument_of_its_name_is_not() -> None:
    call = ToolCall("look", {"problem": "dark"})
    assert as_data(call)["problem"] is None
    [data] = as_data([call], without=("problem",))
    assert data == {"name": "look", "arguments": {"problem": "dark"}, "id": ""}


# --- A loop to try models in ------------------------------------------------------------------


def asking_loop(limits: Limits = Limits()) -> AgentLoop:  # noqa: B008  # Limits is immutable
    """A loop that asks its model each round, and ends with the first text that names no action."""

    def reason(context: LoopContext) -> Program[Act | Finish]:
        shown = tuple(
            Message("user", observation.text) for turn in context.turns for observation in turn.observations
        )
        reply = (yield CallModel((Message("user", context.task), *shown))).value
        if isinstance(reply, Observation):
            return Act((ToolCall("", {}, problem=reply),))
        if reply.tool_calls or "Action" in reply.text:
            return Act((ToolCall("get_weather", {"city": "北京"}),), reply.text)
        return Finish(reply.text)

    return AgentLoop(reason, limits=limits)
