"""Wrong versions of checkpoints: ours with one planted fault each, the faults of real ones among them."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

CheckpointFault = partial(Fault, check="checkpoints", of="Checkpoints", module="chapters.ch31_checkpoints")

CHECKPOINT_FAULTS: tuple[Fault, ...] = (
    CheckpointFault(
        "K01: what is begun is not written down, and a payment is made again",
        "Checkpoints.intend",
        old="        super().intend(address, asked)\n",
        new="        Journal.intend(self, address, asked)\n",
        caught_by="broken_off_anywhere_it_goes_on",
        passes=("transitions_are_kept_as_they_were_taken", "each_moment_can_be_seen_again"),
    ),
    CheckpointFault(
        "the transitions after the last effect are lost",
        "Checkpoints._keep_last",
        old="        self._keep()\n",
        new="        pass\n",
        caught_by="transitions_are_kept_as_they_were_taken",
    ),
    CheckpointFault(
        "a program that was refused replaces what is there",
        "Checkpoints._keep_last",
        old="len(self.transitions) == self._known < len(self._taken)",
        new="self._known < len(self._taken)",
        caught_by="another_program_is_refused_and_changes_nothing",
        passes=("transitions_are_kept_as_they_were_taken", "with_other_limits_it_goes_on"),
    ),
    CheckpointFault(
        "the end at an old limit stays in the file",
        "Checkpoints._keep",
        old='self.database.execute("DELETE FROM transitions WHERE number > ?", (self._known,))',
        new="return",
        caught_by="with_other_limits_it_goes_on",
        passes=("transitions_are_kept_as_they_were_taken", "broken_off_anywhere_it_goes_on"),
    ),
    CheckpointFault(
        "spending is taken for a transition",
        "Checkpoints.watch",
        old="        if row is not None:",
        new="        row = row or row_taken(Control(), step.after._replace(state=AgentState.PERCEIVING))\n"
        "        if row is not None:",
        caught_by="transitions_are_kept_as_they_were_taken",
    ),
    CheckpointFault(
        "a moment is shown with what followed from it",
        "Checkpoints.moment",
        old="return seen[number - 1]",
        new="return seen[-1]",
        caught_by="each_moment_can_be_seen_again",
    ),
    CheckpointFault(
        "a moment is that of the transition before",
        "Checkpoints.moment",
        old="return seen[number - 1]",
        new="return seen[max(number - 2, 0)]",
        caught_by="each_moment_can_be_seen_again",
    ),
    CheckpointFault(
        "a branch begins one outcome too late",
        "Checkpoints.branch",
        old="self.rewound(taken.outcomes)",
        new="self.rewound(taken.outcomes + 1)",
        caught_by="a_branch_goes_its_own_way",
        passes=("transitions_are_kept_as_they_were_taken",),
    ),
    CheckpointFault(
        "a branch is written over what is there",
        "Checkpoints.branch",
        old='open(path, "xb")',
        new='open(path, "wb")',
        caught_by="a_branch_goes_its_own_way",
    ),
    CheckpointFault(
        "a branch goes on in its parent's file",
        "Checkpoints.branch",
        old="    with Checkpoints(path",
        new="    path.unlink()\n    path.hardlink_to(self.path)\n    self.close()\n    with Checkpoints(path",
        caught_by="a_branch_goes_its_own_way",
    ),
    CheckpointFault(
        "K06: the file is read by whoever comes",
        "Checkpoints._open",
        old='self.database.execute("PRAGMA locking_mode = EXCLUSIVE")',
        new="pass",
        caught_by="one_of_two_resumers_goes_on",
        passes=("broken_off_anywhere_it_goes_on", "what_is_no_checkpoint_is_refused_unchanged"),
    ),
    CheckpointFault(
        "K06: who comes second is told that the file is broken",
        "_refusal",
        old='.startswith("SQLITE_BUSY")',
        new='.startswith("SQLITE_LOCKED")',
        caught_by="one_of_two_resumers_goes_on",
    ),
    CheckpointFault(
        "K09: a newer file is read as if it were ours",
        "Checkpoints._check",
        old="version not in range(1, VERSION + 1)",
        new="version not in range(1, 100)",
        caught_by="what_is_no_checkpoint_is_refused_unchanged",
        passes=("an_older_file_is_brought_up_to_date",),
    ),
    CheckpointFault(
        "K09: a file without a version is given one",
        "Checkpoints._check",
        old='        raise IncompatibleCheckpoint(f"{self.path} names no version',
        new="        self.database.execute(RUN)\n"
        """        self.database.execute("INSERT INTO run VALUES (?, '', NULL)", (VERSION,))\n"""
        '        str(f"{self.path} names no version',
        caught_by="what_is_no_checkpoint_is_refused_unchanged",
    ),
    CheckpointFault(
        "K09: an older file is refused too",
        "Checkpoints._check",
        old="version not in range(1, VERSION + 1)",
        new="version != VERSION",
        caught_by="an_older_file_is_brought_up_to_date",
        passes=("what_is_no_checkpoint_is_refused_unchanged",),
    ),
    CheckpointFault(
        "K09: a broken file is brought up to date before it is looked at",
        "Checkpoints._open",
        old="        self._check()\n",
        new="        self._check()\n        self.database.commit()\n",
        caught_by="older_and_torn_it_stays_as_it_was",
    ),
    CheckpointFault(
        "a torn file that holds no table is taken for a new one",
        "Checkpoints._open",
        old="if not self.path.stat().st_size:",
        new="if not list(self.database.execute('SELECT * FROM sqlite_master')):",
        caught_by="what_is_no_checkpoint_is_refused_unchanged",
    ),
    CheckpointFault(
        "with each effect all that was recorded so far is written down once more",
        "Checkpoints.intend",
        old="        super().intend(address, asked)\n",
        new="        DiskJournal.intend(self, address, asked)\n"
        "        self.database.execute('CREATE TABLE IF NOT EXISTS snapshots (text TEXT)')\n"
        "        self.database.execute('INSERT INTO snapshots VALUES (?)', (str(list(self.outcomes)),))\n",
        caught_by="only_what_is_new_is_written",
        passes=("transitions_are_kept_as_they_were_taken", "with_other_limits_it_goes_on"),
    ),
    CheckpointFault(
        "the last outcome in the file is taken for half of one, and left out",
        "Checkpoints._read",
        old="    super()._read()\n    self.outcomes = _Recorded(self.outcomes)\n",
        new="    DiskJournal._read(self)\n    self.outcomes = _Recorded(self.outcomes[:-1])\n",
        caught_by="broken_off_by_limits_and_answers_of_any_kind",
        passes=("only_what_is_new_is_written", "one_of_two_resumers_goes_on"),
    ),
)
