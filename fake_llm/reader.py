"""A model that reads a book page by page, and then answers from what stands in its prompt alone.

What is simulated. The ``Guidebook`` is a task of any length that plants facts: each page has a stamp, and at
the end some stamps are asked for, early, middle and late ones. The ``reader`` asks for the next page after
the latest that it is shown, and after the last page it reports each stamp that it still finds in its prompt;
of the others it says that it does not know. So what a context strategy kept can be counted.

What it can be given in addition, each a simulation with chosen figures, not measured ones:

- a window: like a provider, it refuses a request that is larger
- a recall that depends on where in the prompt a fact stands and how long the prompt is
  (``lost_in_the_middle``, after Liu et al., 2023)
- as a writer of summaries, a chance to lose each fact, whenever one passes through a summary

What happens by chance is drawn from the seed and the fact in its surroundings, never from a stream: the same
request has the same reply.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agentloop import CallModel, Reply, estimate_tokens
from fake_llm.models import FakeModel, calls

UNKNOWN = "不知道"
_PAGE = re.compile(r"第(\d+)页，共(\d+)页")
_STAMP = re.compile(r"第(\d+)页的印章是(\d+)")
_ANSWERED = re.compile(r"第(\d+)页：(\d+)")
_ASKED = re.compile(r"第(\d+)页(?=[、。])")

_PLACES = ("颐和园", "北海", "景山", "鼓楼", "故宫", "天坛", "雍和宫", "长城")
_WORDS = "这里的红墙和古树都很有名，早上人少，适合慢慢走一圈，累了可以在茶馆里坐一会儿。"


class Guidebook:
    """A guide to 北京 of so many ``pages``, each read in a turn of about ``tokens`` tokens (article B: 200).

    ``asked`` are the pages whose stamps the task asks for: an early, a middle and a late one, if nothing else
    is said. Raises ``ValueError`` for a book without pages, and for a page that it does not have.
    """

    def __init__(self, pages: int, asked: Sequence[int] | None = None, tokens: int = 200) -> None:
        if pages < 1:
            raise ValueError(f"a guidebook has at least 1 page, not {pages!r}")
        self.pages = pages
        self.asked = tuple(dict.fromkeys(asked or (1, (pages + 1) // 2, max(pages - 2, 1))))
        if not all(1 <= page <= pages for page in self.asked):
            raise ValueError(f"the pages asked for must be from 1 to {pages}, not {self.asked}")
        wanted = "、".join(f"第{page}页" for page in self.asked)
        self.task = f"把北京导游册一页一页读完，从第1页开始。然后报出这几页的印章：{wanted}。"
        self._filler = max(tokens - 40, 0)  # the rest of a turn takes about forty

    def read_page(self, page: int) -> str:
        """Read one page of the guidebook."""
        if not 1 <= page <= self.pages:
            raise ValueError(f"the guidebook has the pages 1 to {self.pages}")
        place = _PLACES[page % len(_PLACES)]
        words = (_WORDS * (self._filler // len(_WORDS) + 1))[: self._filler]
        return f"第{page}页，共{self.pages}页。{place}。{words}第{page}页的印章是{_stamp(page)}。"

    def answered(self, answer: str | None) -> tuple[bool, ...]:
        """For each page that was asked for, in this order: whether the answer tells its stamp."""
        told = {int(page): stamp for page, stamp in _ANSWERED.findall(answer or "")}
        return tuple(told.get(page) == str(_stamp(page)) for page in self.asked)


def _stamp(page: int) -> int:
    """The stamp of a page: four digits that nobody guesses from the page's number."""
    return page * 7919 % 9000 + 1000


#: From where a fact stands in the prompt (0 the start, 1 the end) and the prompt's tokens: the chance that it
#: is noticed.
Recall = Callable[[float, int], float]


def sees_all(position: float, tokens: int) -> float:
    """The recall of a reader that overlooks nothing."""
    return 1.0


def lost_in_the_middle(position: float, tokens: int) -> float:
    """The recall of a reader that minds the beginning and the end, and the middle the less the longer it is.

    Simulated after Liu et al., 2023: the curve has the shape of theirs, and its figures are chosen. Up to
    1,000 tokens nothing is lost; from 10,000 on the very middle is noticed one time in five.
    """
    length = min(max((tokens - 1_000) / 9_000, 0.0), 1.0)
    depth = 1.0 - abs(2 * position - 1)  # 0 at both ends, 1 in the middle
    return 1.0 - 0.8 * length * depth


def reader(
    *, window: int | None = None, recall: Recall = sees_all, loses: float = 0.0, seed: int = 0
) -> FakeModel:
    """Make the model. It raises ``ValueError`` for a request above ``window`` tokens, as a provider does.

    ``recall`` says how likely it is to notice a fact in its prompt; where it is asked to summarise, it loses
    each fact with the chance ``loses``.
    """

    def respond(request: CallModel) -> str | Reply:
        if window is not None and request.tokens > window:
            raise ValueError(f"{request.tokens} tokens are more than the context window of {window}.")
        if request.messages[0].content.startswith("Summarise"):
            return _summary(request, loses, seed)
        page = _next_page(request)
        if page is None:
            return _answer(request, recall, seed)
        if request.tools:
            return calls(("read_page", {"page": page}))
        return f"Thought: 读第{page}页。\nAction: read_page(page={page})"

    return FakeModel(respond)


def _next_page(request: CallModel) -> int | None:
    """The page after the latest one that is shown; ``None`` after the last."""
    for message in reversed(request.messages[2:]):
        seen = _PAGE.search(message.content)
        if seen:
            page, pages = int(seen[1]), int(seen[2])
            return page + 1 if page < pages else None
    return 1


def _asked(request: CallModel) -> list[int]:
    """The pages whose stamps the task asks for."""
    task = request.messages[1].content
    return [int(page) for page in _ASKED.findall(task.partition("报出")[2])]


def _answer(request: CallModel, recall: Recall, seed: int) -> str:
    """Tell each stamp that was asked for and is noticed."""
    asked = _asked(request)
    known = dict(_noticed(request, asked, recall, seed))
    told = "；".join(f"第{page}页：{known.get(page, UNKNOWN)}" for page in asked)
    return told if request.tools else f"Thought: 读完了。\nAction: Finish[{told}]"


def _noticed(
    request: CallModel, asked: Sequence[int], recall: Recall, seed: int
) -> Iterator[tuple[int, str]]:
    """The stamps asked for that stand in the prompt, as far as they are noticed where they stand."""
    sizes = [estimate_tokens(message.content) for message in request.messages]
    total, before = sum(sizes), 0
    for message, size in zip(request.messages, sizes, strict=True):
        for found in _STAMP.finditer(message.content):
            page, position = int(found[1]), (before + size * found.start() / len(message.content)) / total
            if page in asked and _drawn(seed, found[0], position) < recall(position, total):
                yield page, found[2]
        before += size


def _summary(request: CallModel, loses: float, seed: int) -> str:
    """Write down which stamps that the task asks for stand in the prompt, but for those that are lost."""
    asked, shown = set(_asked(request)), "\n".join(message.content for message in request.messages[2:])
    kept = [
        found[0]
        for found in _STAMP.finditer(shown)
        if int(found[1]) in asked and _drawn(seed, found[0], shown) >= loses
    ]
    pages = [int(page) for page, _ in _PAGE.findall(shown)]
    read = [f"读到第{max(pages)}页。"] if pages else []
    return "\n".join([*read, *(f"{stamp}。" for stamp in dict.fromkeys(kept))]) or "还没有读到什么。"


def _drawn(*about: Any) -> float:
    return random.Random(repr(about)).random()
