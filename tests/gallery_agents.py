"""Wrong versions of shared boards and of agents that write to each other: one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

AGENTS = "chapters.ch32_message_passing"
DraftFault = partial(Fault, check="draft", of="draft_of", module=AGENTS)
InboxFault = partial(Fault, check="inbox", of="Inbox", module=AGENTS)
ConversationFault = partial(Fault, check="conversation", of="Conversation", module=AGENTS)

BOARDS = "chapters.ch33_shared_state"
BoardFault = partial(Fault, check="board", of="Board", module=BOARDS)
UpdateFault = partial(Fault, check="update", of="update", module=BOARDS)

DRAFT_FAULTS: tuple[Fault, ...] = (
    DraftFault(
        "M01: the end is a word anywhere",
        "draft_of",
        old="done = lines[-1].strip() == MARKER",
        new="done = MARKER in text",
        caught_by="a_word_in_a_sentence_ends_nothing",
        passes=("the_first_line_may_name_the_receiver",),
    ),
    DraftFault(
        "M01: the end is a line anywhere",
        "draft_of",
        old="done = lines[-1].strip() == MARKER",
        new="done = MARKER in lines",
        caught_by="a_word_in_a_sentence_ends_nothing",
    ),
    DraftFault(
        "blanks behind the marker hide it",
        "draft_of",
        old="lines[-1].strip() == MARKER",
        new="lines[-1] == MARKER and len(lines) > 1",
        caught_by="the_marker_alone_on_the_last_line_is_the_end",
        passes=("a_word_in_a_sentence_ends_nothing", "the_first_line_may_name_the_receiver"),
    ),
    DraftFault(
        "an address on any line counts",
        "draft_of",
        old='    if lines and lines[0].startswith("To:"):\n        to = lines.pop(0)',
        new='    for place in [n for n, line in enumerate(lines) if line.startswith("To:")]:\n'
        "        to = lines.pop(place)",
        caught_by="the_first_line_may_name_the_receiver",
        passes=("a_word_in_a_sentence_ends_nothing",),
    ),
    DraftFault(
        "words are put into an empty letter",
        "draft_of",
        old=".strip(), done)",
        new='.strip() or "...", done)',
        caught_by="any_text_is_a_draft",
        passes=("a_word_in_a_sentence_ends_nothing",),
    ),
)

INBOX_FAULTS: tuple[Fault, ...] = (
    InboxFault(
        "what was read comes again",
        "Inbox.put",
        old="if letter.number > self._taken[letter.sender]:",
        new="if letter.number <= self._taken[letter.sender]:\n"
        "        self._taken[letter.sender] = letter.number - 1\n    if True:",
        caught_by="a_double_is_handed_out_once",
        passes=("a_senders_letters_come_in_the_order_they_were_sent",),
    ),
    InboxFault(
        "who overtakes is read first",
        "Inbox.next",
        old="if each.number == self._taken[each.sender] + 1",
        new="if each.number > self._taken[each.sender]",
        caught_by="a_senders_letters_come_in_the_order_they_were_sent",
        passes=("what_comes_in_order_is_handed_out_as_it_came", "a_double_is_handed_out_once"),
    ),
    InboxFault(
        "one counter for all senders",
        "Inbox.next",
        old="if each.number == self._taken[each.sender] + 1",
        new="if each.number == max(self._taken.values(), default=0) + 1 or each.number == 1",
        caught_by="whatever_the_post_does_each_is_read_once_in_order",
    ),
    InboxFault(
        "all wait for the first to come",
        "Inbox.next",
        old="next(turns, None)",
        new="next((each for each in list(self._came.values())[:1] if each in list(turns)), None)",
        caught_by="one_senders_gap_holds_up_nobody_else",
        passes=("what_comes_in_order_is_handed_out_as_it_came", "a_double_is_handed_out_once"),
    ),
    InboxFault(
        "last come, first served",
        "Inbox.next",
        old="self._came.values() if",
        new="reversed(self._came.values()) if",
        caught_by="what_comes_in_order_is_handed_out_as_it_came",
        passes=("a_double_is_handed_out_once", "a_senders_letters_come_in_the_order_they_were_sent"),
    ),
)

CONVERSATION_FAULTS: tuple[Fault, ...] = (
    ConversationFault(
        "an empty letter is an answer",
        "PostOffice.send",
        old="if done and not text.strip():",
        new="if False:",
        caught_by="a_letter_that_is_done_says_something",
        passes=("a_letter_that_is_done_ends_it", "a_word_ends_nothing"),
    ),
    ConversationFault(
        "all that somebody writes is read before it is asked whether all is over",
        "Conversation._answered",
        old="if office.ended is not None:",
        new="if False:",
        caught_by="letters_without_end_are_enough_at_the_bound",
        passes=("polite_agents_end_at_the_bound_on_messages", "a_letter_that_is_done_ends_it"),
    ),
    ConversationFault(
        "whatever is called a draft is sent",
        "_is_draft",
        old=" and all(isinstance(each, str) for each in (value.to, value.text))",
        new="",
        caught_by="a_bug_in_an_agent_reaches_the_caller",
        passes=("a_letter_that_is_done_says_something",),
    ),
    ConversationFault(
        "a letter that is done is one among others",
        "PostOffice.send",
        old="    if done:\n        self.ended = letter\n    elif to",
        new="    if to",
        caught_by="a_letter_that_is_done_ends_it",
        passes=("a_word_ends_nothing", "polite_agents_end_at_the_bound_on_messages"),
    ),
    ConversationFault(
        "who is done goes on writing",
        "PostOffice.send",
        old="if self.ended is not None:",
        new="if isinstance(self.ended, BrokenOff):",
        caught_by="a_letter_that_is_done_ends_it",
        passes=("polite_agents_end_at_the_bound_on_messages",),
    ),
    ConversationFault(
        "M01: the word in a letter ends it",
        "PostOffice.send",
        old="    if done:",
        new="    if done or MARKER in text:",
        caught_by="a_word_ends_nothing",
        passes=("a_letter_that_is_done_ends_it", "polite_agents_end_at_the_bound_on_messages"),
    ),
    ConversationFault(
        "M01: ping-pong without end",
        "PostOffice.send",
        old="if len(self.letters) == self._messages:",
        new="if False:",
        caught_by="polite_agents_end_at_the_bound_on_messages",
        passes=("a_letter_that_is_done_ends_it", "where_all_wait_it_is_over"),
    ),
    ConversationFault(
        "one letter more than is allowed",
        "PostOffice.send",
        old="len(self.letters) == self._messages",
        new="len(self.letters) > self._messages",
        caught_by="agents_that_never_want_to_stop_are_stopped",
        passes=("a_letter_that_is_done_ends_it", "where_all_wait_it_is_over"),
    ),
    ConversationFault(
        "all wait until the account is empty",
        "PostOffice.take",
        old="self.ended = self.ended or BrokenOff.DEADLOCK",
        new="pass",
        caught_by="where_all_wait_it_is_over",
        passes=("a_letter_that_is_done_ends_it", "polite_agents_end_at_the_bound_on_messages"),
    ),
    ConversationFault(
        "the last one awake is taken for a deadlock",
        "PostOffice.take",
        old="len(self._waiting) == len(self.inboxes)",
        new="len(self._waiting) >= len(self.inboxes) - 1",
        caught_by="who_still_works_is_waited_for",
        passes=("where_all_wait_it_is_over",),
    ),
    ConversationFault(
        "what is under way is forgotten",
        "PostOffice.take",
        old="self._under_way or any(",
        new="any(",
        caught_by="who_still_works_is_waited_for",
        passes=("where_all_wait_it_is_over", "polite_agents_end_at_the_bound_on_messages"),
    ),
    ConversationFault(
        "one after another, as in a round of chairs",
        "Conversation._together",
        old="yield Together(tuple(self._living(name, office) for name in self.agents))",
        new="for name in self.agents:\n        yield from self._living(name, office)",
        caught_by="each_goes_at_its_own_pace",
    ),
    ConversationFault(
        "a letter to nobody vanishes",
        "PostOffice.send",
        old="if to != POST:",
        new="if False:",
        caught_by="a_letter_to_nobody_comes_back",
        passes=("a_letter_that_is_done_ends_it", "where_all_wait_it_is_over"),
    ),
    ConversationFault(
        "the post office and a polite agent write to each other",
        "PostOffice.send",
        old="if to != POST:",
        new="if True:",
        caught_by="a_letter_to_nobody_comes_back",
    ),
    ConversationFault(
        "an agent reads all that was ever written",
        "Conversation._living",
        old="letter, tuple(earlier), office",
        new="letter, tuple(each for each in office.letters if each != letter), office",
        caught_by="an_agent_knows_its_own_letters_alone",
        passes=("a_letter_that_is_done_ends_it",),
    ),
    ConversationFault(
        "doubles and stragglers are answered as they come",
        "Inbox.next",
        old="if each.number == self._taken[each.sender] + 1",
        new="",
        caught_by="a_bad_post_changes_nothing_that_is_read",
        passes=("a_letter_that_is_done_ends_it", "where_all_wait_it_is_over"),
    ),
    ConversationFault(
        "a lost letter is not missed",
        "PostOffice.gaps",
        old="in inbox.gaps()]",
        new="in ()]",
        caught_by="a_lost_letter_is_named",
        passes=("where_all_wait_it_is_over",),
    ),
    ConversationFault(
        "an agent dies, and nobody hears of it",
        "Conversation._living",
        old="office.ended = office.ended or error",
        new="office.ended = office.ended or BrokenOff.DEADLOCK",
        caught_by="a_bug_in_an_agent_reaches_the_caller",
        passes=("a_letter_that_is_done_ends_it",),
    ),
    ConversationFault(
        "an empty account takes the letters with it",
        "Conversation.run",
        old="office.ended = office.ended or refused",
        new="raise",
        caught_by="the_account_ends_all_of_them",
        passes=("a_letter_that_is_done_ends_it",),
    ),
    ConversationFault(
        "the journal remembers what was taken, and the post office does not",
        "Conversation._living",
        old="letter = office.take(name)",
        new="from agentloop import Do\n"
        "            letter = (yield Do(f'mailbox of {name}', lambda: office.take(name))).value",
        caught_by="it_goes_on_from_wherever_it_was_broken_off",
        passes=("a_letter_that_is_done_ends_it", "where_all_wait_it_is_over"),
    ),
)

BOARD_FAULTS: tuple[Fault, ...] = (
    BoardFault(
        "lost update: nobody looks at what was seen",
        "Board.write",
        old="if clashes:",
        new="if False:",
        caught_by="what_is_newer_is_not_overwritten",
        passes=("what_is_written_is_read", "what_can_be_joined_never_clashes", "threads_lose_no_update"),
    ),
    BoardFault(
        "lost update: one version behind is near enough",
        "Board._clashes",
        old="> seen",
        new="> seen + 1",
        caught_by="any_writers_come_to_what_one_after_another_would",
        passes=("what_is_written_is_read", "what_can_be_joined_never_clashes"),
    ),
    BoardFault(
        "any write at all is a conflict",
        "Board._clashes",
        old="self._now.entries[key].version",
        new="self._now.version",
        caught_by="different_keys_do_not_clash",
        passes=("what_is_newer_is_not_overwritten", "what_is_written_is_read"),
    ),
    BoardFault(
        "keys that can be joined clash too",
        "Board._clashes",
        old="self._rules[key].merge is None and ",
        new="",
        caught_by="what_can_be_joined_never_clashes",
        passes=("what_is_newer_is_not_overwritten", "different_keys_do_not_clash"),
    ),
    BoardFault(
        "what does not clash is written all the same",
        "Board.write",
        old="if clashes:",
        new="if len(clashes) == len(comes):",
        caught_by="a_write_is_whole_or_nothing",
        passes=("what_is_newer_is_not_overwritten", "a_conflict_is_named"),
    ),
    BoardFault(
        "the conflict shows what was to be written, as if it stood there",
        "Board.write",
        old="clashes = {key: entries[key] for",
        new="clashes = {key: Entry(comes[key], version, writer) for",
        caught_by="a_conflict_is_named",
        passes=("what_is_newer_is_not_overwritten", "a_write_is_whole_or_nothing"),
    ),
    BoardFault(
        "a write does not say whose it is",
        "Board.write",
        old="version + 1, writer)",
        new="version + 1)",
        caught_by="what_is_written_is_read",
        passes=("what_is_newer_is_not_overwritten", "a_write_is_whole_or_nothing"),
    ),
    BoardFault(
        "readers are given the board itself",
        "Board.read",
        old="copy.deepcopy(self._now)",
        new="self._now",
        caught_by="a_snapshot_stays_as_it_was",
        passes=("nobody_sees_half_a_write",),
    ),
    BoardFault(
        "what was written stays its writer's own",
        "Board.write",
        old="copy.deepcopy(dict(changes))",
        new="dict(changes)",
        caught_by="a_snapshot_stays_as_it_was",
    ),
    BoardFault(
        "keys are written one by one, in sight of all",
        "Board.write",
        old="Entry(self._joined(key, value), version + 1, writer) for",
        new="entries.__setitem__(key, Entry(self._joined(key, value), version + 1, writer))"
        " or entries[key] for",
        caught_by="nobody_sees_half_a_write",
        passes=("what_is_written_is_read", "threads_lose_no_update"),
    ),
    BoardFault(
        "lost update: two threads write at once",
        "Board.write",
        old="with self._writing:",
        new="if True:",
        caught_by="threads_lose_no_update",
        passes=("any_writers_come_to_what_one_after_another_would", "nobody_sees_half_a_write"),
    ),
    BoardFault(
        "a version of the future is believed",
        "Board.write",
        old="not 0 <= seen <= version",
        new="not 0 <= seen",
        caught_by="what_makes_no_sense_is_refused",
    ),
)

UPDATE_FAULTS: tuple[Fault, ...] = (
    UpdateFault(
        "lost update: it writes on what it never looked at",
        "update",
        old="change(snapshot), snapshot.version)",
        new="change(snapshot), board.read().version)",
        caught_by="after_a_conflict_it_looks_again",
    ),
    UpdateFault(
        "it looks once, and then repeats itself",
        "update",
        old="    for _ in range(tries):\n        snapshot = yield from read(board)\n",
        new="    snapshot = yield from read(board)\n    for _ in range(tries):\n",
        caught_by="many_at_once_are_all_counted",
    ),
    UpdateFault(
        "it tries again without end",
        "update",
        old="for _ in range(tries):",
        new="while True:",
        caught_by="it_gives_up_and_says_what_stood_in_its_way",
        passes=("after_a_conflict_it_looks_again", "many_at_once_are_all_counted"),
    ),
    UpdateFault(
        "the board is written behind the journal's back",
        "update",
        old="yield from write(board, writer, change(snapshot), snapshot.version)",
        new="board.write(writer, change(snapshot), snapshot.version)",
        caught_by="a_replay_does_not_write_again",
        passes=("after_a_conflict_it_looks_again", "many_at_once_are_all_counted"),
    ),
    UpdateFault(
        "no tries are a number of tries",
        "update",
        old='    require("tries", tries, 1)\n',
        new="    written = 0\n",
        caught_by="tries_are_at_least_one",
        passes=("after_a_conflict_it_looks_again", "many_at_once_are_all_counted"),
    ),
)
