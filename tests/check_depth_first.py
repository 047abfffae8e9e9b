"""What a depth-first tree of thoughts promises: what any tree does, its visits bounded like a width."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from agentloop import Act, Finish, LoopContext, Program
from tests import check_tree_of_thoughts

Reason = Callable[[LoopContext], Program[Act | Finish]]


def as_breadth(depth_first: Any) -> Any:
    """A depth-first tree with the parameters of ``tree_of_thoughts``: width bounds its visits."""

    def tree(step: Any, propose: Any, evaluate: Any, depth: int, width: int, branches: int) -> Reason:
        visits = 1 + width * (depth - 1)
        made: Reason = depth_first(step, propose, evaluate, depth, 0.5, branches, visits)
        return made

    return tree


def put_under(promise: Callable[[Any], None]) -> Callable[[Any], None]:
    """A promise of any tree for a depth-first one, with the words in which it says what it means."""

    def keep(depth_first: Any) -> None:
        promise(as_breadth(depth_first))

    return update_wrapper(keep, promise)


PROMISES = {name: put_under(promise) for name, promise in check_tree_of_thoughts.PROMISES.items()}
