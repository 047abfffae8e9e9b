"""ReAct: reasoning and acting in turn (Yao et al., 2023; article A, ReAct Loop：推理与行动).

Thought, Action, Observation, and again: the reasoning is written out, each result is in the very
next prompt, and there is no plan made beforehand. All of it is one `reason` hook, since the loop
around it already is the cycle. The text protocol carries it here, as in the paper and in both
articles; ``paradigms/function_calling.py`` is the same thought in a model's native calls.
"""

from __future__ import annotations

from collections.abc import Callable

from agentloop import Act, Finish, LoopContext, Program, Toolbox
from paradigms.prompt import View, think, whole_history
from paradigms.text_protocol import contract, parse, render


def react(tools: Toolbox, view: View = whole_history) -> Callable[[LoopContext], Program[Act | Finish]]:
    """Make the ``reason`` hook of a ReAct loop: ``AgentLoop(react(tools))``.

    ``view`` chooses which finished turns the model is shown. The stop text keeps a model that
    supports it from inventing the Observation; where it does not, the parser cuts it.
    """
    return think(
        contract(tools),
        lambda reply: parse(reply.text, tools),
        render,
        view,
        stop=("\nObservation:",),
    )
