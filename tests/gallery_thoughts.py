"""Wrong inner loops for the gallery: our chain and our tree with one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

ChainFault = partial(Fault, check="chain", of="chain_of_thought", module="paradigms.chain_of_thought")
TreeFault = partial(Fault, check="tree", of="tree_of_thoughts", module="paradigms.tree_of_thoughts")
DepthFault = partial(TreeFault, check="depth_first", of="tree_depth_first")

CHAIN_FAULTS: tuple[Fault, ...] = (
    ChainFault(
        "it thinks until it feels like acting",
        "chain_of_thought",
        old="while len(thoughts) < depth:",
        new="while len(thoughts) < 50:",
        caught_by="it_ends_at_its_depth",
        passes=("it_ends_at_an_action",),
    ),
    ChainFault(
        "after the depth, the last thought is handed over as the decision",
        "chain_of_thought",
        old="                thoughts.append(decision.thought)\n",
        new="                thoughts.append(decision.thought)\n"
        "                if len(thoughts) == depth:\n                    return decision\n",
        caught_by="a_decision_after_the_depth_is_taken",
    ),
    ChainFault(
        "an action does not end it",
        "chain_of_thought",
        old="if not is_thought(decision):",
        new="if isinstance(decision, Finish):",
        caught_by="it_ends_at_an_action",
    ),
    ChainFault(
        "a thought never reaches the next prompt (EA16)",
        "show",
        old="    if thoughts:",
        new="    if not thoughts:",
        caught_by="each_thought_is_in_the_next_prompt",
        passes=("it_ends_at_its_depth", "the_turn_keeps_the_thoughts"),
    ),
    ChainFault(
        "the thoughts of the last round stay in working memory",
        "forget",
        old="    context.working_memory.pop(name, None)\n",
        new="",
        caught_by="each_thought_is_in_the_next_prompt",
        passes=("it_ends_at_its_depth",),
    ),
    ChainFault(
        "what to write now stays in working memory",
        "forget",
        old="    context.working_memory.pop(NOW, None)\n",
        new="",
        caught_by="working_memory_is_left_as_it_was",
        passes=("each_thought_is_in_the_next_prompt",),
    ),
    ChainFault(
        "the way to the decision is forgotten",
        "with_thoughts",
        old=" if thoughts else decision",
        new=" if not thoughts else decision",
        caught_by="the_turn_keeps_the_thoughts",
        passes=("it_ends_at_an_action",),
    ),
    ChainFault(
        "any number in the line is a confidence",
        "read_confidence",
        old="_NUMBER.fullmatch(",
        new="_NUMBER.search(",
        caught_by="what_is_no_confidence_ends_nothing",
        passes=("it_ends_when_it_is_sure",),
    ),
    ChainFault(
        "a confidence of 95 is taken for one of 0.95 or more",
        "read_confidence",
        old="return confidence if confidence <= 1 else None",
        new="return confidence",
        caught_by="what_is_no_confidence_ends_nothing",
        passes=("it_ends_when_it_is_sure",),
    ),
    ChainFault(
        "no confidence is a high one",
        "is_confident",
        old="confidence is not None and confidence >= enough",
        new="confidence is None or confidence >= enough",
        caught_by="what_is_no_confidence_ends_nothing",
        passes=("it_ends_when_it_is_sure",),
    ),
    ChainFault(
        "the threshold itself is not enough",
        "is_confident",
        old=">= enough",
        new="> enough",
        caught_by="it_ends_when_it_is_sure",
    ),
    ChainFault(
        "a call that cannot be read is taken for a thought",
        "is_thought",
        old="return decision == bare._replace(thought=decision.thought)",
        new="return isinstance(decision, Act) and decision.calls[0].problem is not None",
        caught_by="a_mistake_is_not_a_thought",
        passes=("it_ends_at_an_action",),
    ),
    ChainFault(
        "the thoughts in hand are lost when the account ends",
        "cut_short",
        old="    if not thoughts:\n",
        new="    if thoughts:\n",
        caught_by="every_thought_is_paid_for_and_none_is_lost",
        passes=("it_ends_at_its_depth",),
    ),
    ChainFault(
        "a depth of nothing is one thought",
        "chain_of_thought",
        old="while len(thoughts) < depth:",
        new="while len(thoughts) < max(depth, 1):",
        caught_by="a_depth_of_nothing_is_the_step_itself",
    ),
    ChainFault(
        "one chain of thoughts serves every run",
        "chain_of_thought",
        old="        thoughts: list[str] = []\n",
        new="        thoughts = chain_of_thought.__dict__.setdefault('thoughts', [])\n",
        caught_by="runs_share_nothing",
    ),
)

TREE_FAULTS: tuple[Fault, ...] = (
    TreeFault(
        "a breadth without a cap",
        "tree_of_thoughts",
        old="best_first(level)[:width]",
        new="best_first(level)",
        caught_by="its_caps_hold",
        passes=("it_decides_on_the_best_branch", "it_comes_back_from_a_wrong_way"),
    ),
    TreeFault(
        "only the best of a level is kept, whatever the width",
        "tree_of_thoughts",
        old="best_first(level)[:width]",
        new="best_first(level)[:1]",
        caught_by="it_comes_back_from_a_wrong_way",
        passes=("its_caps_hold",),
    ),
    TreeFault(
        "the worst are kept",
        "best_first",
        old=", reverse=True",
        new="",
        caught_by="it_decides_on_the_best_branch",
        passes=("its_caps_hold",),
    ),
    TreeFault(
        "the judge is not listened to",
        "best_first",
        old="sorted(branches, key=lambda branch: branch.rank, reverse=True)",
        new="list(branches)",
        caught_by="it_decides_on_the_best_branch",
        passes=("its_caps_hold", "among_equals_the_first_proposed_is_taken"),
    ),
    TreeFault(
        "a value that is none is let through",
        "_search",
        old="value if value is not None and 0 <= value <= 1 else None",
        new="1.0 if value is None else value",
        caught_by="unknown_is_not_a_pass",
        passes=("it_decides_on_the_best_branch",),
    ),
    TreeFault(
        "the last among equals is taken",
        "best_first",
        old="sorted(branches, key=lambda branch: branch.rank, reverse=True)",
        new="sorted(branches, key=lambda branch: branch.rank)[::-1]",
        caught_by="among_equals_the_first_proposed_is_taken",
        passes=("it_decides_on_the_best_branch",),
    ),
    TreeFault(
        "every proposal is judged, however many",
        "_search",
        old="[:branches]",
        new="[:]",
        caught_by="its_caps_hold",
    ),
    TreeFault(
        "the same thought is judged again and again",
        "_search",
        old="list(dict.fromkeys(proposed))",
        new="list(proposed)",
        caught_by="the_same_thought_is_judged_once",
    ),
    TreeFault(
        "one level too few",
        "tree_of_thoughts",
        old="range(depth)",
        new="range(max(depth - 1, 1))",
        caught_by="it_goes_as_deep_as_it_may",
        passes=("its_caps_hold",),
    ),
    TreeFault(
        "a level on which nothing grows wipes out the one before",
        "tree_of_thoughts",
        old="            if not level:\n                break\n            kept = best_first(level)[:width]\n"
        "        return kept[0]\n",
        new="            kept = best_first(level)[:width]\n        return kept[0] if kept else Branch()\n",
        caught_by="a_branch_may_end_early",
        passes=("without_a_proposal_the_step_decides_alone",),
    ),
    TreeFault(
        "what was judged is lost when the account ends",
        "_search",
        old="chosen or max(seen, key=lambda branch: branch.rank, default=Branch())",
        new="chosen or Branch()",
        caught_by="every_call_is_paid_for_and_the_best_is_kept",
        passes=("its_caps_hold",),
    ),
    TreeFault(
        "without a branch, one is made up",
        "_search",
        old="BRANCH, chosen.path)",
        new="BRANCH, chosen.path or ('I have no idea.',))",
        caught_by="without_a_proposal_the_step_decides_alone",
        passes=("a_branch_may_end_early",),
    ),
    TreeFault(
        "it waits between two judgments",
        "_search",
        old="                value = yield from",
        new="                yield __import__('agentloop').Sleep(0)\n                value = yield from",
        caught_by="nothing_outside_is_touched",
        passes=("its_caps_hold",),
    ),
    TreeFault(
        "the branch of the first run is taken in every run",
        "_search",
        old="            chosen = yield from search(grow)\n",
        new="            kept = _search.__dict__\n"
        "            chosen = kept.get('branch') or kept.setdefault('branch', (yield from search(grow)))\n",
        caught_by="runs_share_nothing",
    ),
)

DEPTH_FAULTS: tuple[Fault, ...] = (
    DepthFault(
        "depth-first: what is unknown passes the threshold",
        "tree_depth_first",
        old="child.value is not None and child.value >= threshold",
        new="child.value is None or child.value >= threshold",
        caught_by="unknown_is_not_a_pass",
        passes=("it_decides_on_the_best_branch",),
    ),
    DepthFault(
        "depth-first: there is no way back",
        "tree_depth_first",
        old="open_branches += reversed(passed)",
        new="open_branches = passed[:1]",
        caught_by="it_comes_back_from_a_wrong_way",
        passes=("its_caps_hold", "it_decides_on_the_best_branch"),
    ),
    DepthFault(
        "depth-first: it visits as much as there is",
        "tree_depth_first",
        old="for _ in range(visits):",
        new="while True:",
        caught_by="its_caps_hold",
        passes=("it_comes_back_from_a_wrong_way",),
    ),
    DepthFault(
        "depth-first: at the end of a branch it stands with empty hands",
        "tree_depth_first",
        old="longest = max([longest, *passed], key=lambda branch: len(branch.path))",
        new="longest = open_branches[-1] if open_branches else Branch()",
        caught_by="a_branch_may_end_early",
        passes=("it_decides_on_the_best_branch", "it_goes_as_deep_as_it_may"),
    ),
    DepthFault(
        "depth-first: it turns back one level too early",
        "tree_depth_first",
        old="len(longest.path) == depth",
        new="len(longest.path) >= max(depth - 1, 1)",
        caught_by="it_goes_as_deep_as_it_may",
        passes=("its_caps_hold",),
    ),
    # What both searches share, and the same promises catch.
    *(
        fault._replace(name=f"depth-first: {fault.name}", check="depth_first", of="tree_depth_first")
        for fault in TREE_FAULTS
        if fault.function in ("_search", "best_first")
    ),
)
