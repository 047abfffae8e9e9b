"""The pretend world: everything an Agent Loop touches, without a network, a key or a bill.

models.py          models that say what a script or a set of rules tells them
hostile.py         models that misbehave: stubborn, babbling, empty, raising, hanging, random by seed
simulated.py       a model that does errands, and errs by seed as models are known to
reader.py          a book to read page by page, and a model that knows only what stands in its prompt
recording.py       what a model was asked and answered, kept in a file, to be played back as a model
clock.py           a clock that stands still until it is told to move
tools.py           the articles' toy tools, and tools that fail in each way that a guard must handle
world.py           a small house with a cat in it, which changes by itself
storm.py           errands done while tools and model fail in every way that guards are for, by seed
errands.py         small tasks in 北京, their tools, and a check of each answer
small_language.py  a language so small that a model's program can be run without fear

A model here is what ``agentloop.World`` takes for one: any callable from a ``CallModel`` to text
or a ``Reply``. All state lives in the objects that a caller makes.
"""

from agentloop import count_tokens
from fake_llm.clock import FakeClock
from fake_llm.hostile import (
    babbling_model,
    empty_model,
    hanging_model,
    raising_model,
    random_model,
    stubborn_model,
    typical_replies,
)
from fake_llm.models import (
    FakeModel,
    RuleModel,
    ScriptedModel,
    ScriptEnded,
    calls,
    readable,
)
from fake_llm.recording import Exchange, PlaybackModel, Raised, Recording, RequestDiffers
from fake_llm.tools import (
    Cashier,
    JobQueue,
    SpoiledTool,
    broken_tool,
    error_by_value,
    flaky_tool,
    get_attraction,
    get_weather,
    hanging_tool,
    huge_result,
    odd_results,
)
from fake_llm.world import CatHouse

__all__ = [
    "Cashier",
    "CatHouse",
    "Exchange",
    "FakeClock",
    "FakeModel",
    "JobQueue",
    "PlaybackModel",
    "Raised",
    "Recording",
    "RequestDiffers",
    "RuleModel",
    "ScriptEnded",
    "ScriptedModel",
    "SpoiledTool",
    "babbling_model",
    "broken_tool",
    "calls",
    "count_tokens",
    "empty_model",
    "error_by_value",
    "flaky_tool",
    "get_attraction",
    "get_weather",
    "hanging_model",
    "hanging_tool",
    "huge_result",
    "odd_results",
    "raising_model",
    "random_model",
    "readable",
    "stubborn_model",
    "typical_replies",
]
