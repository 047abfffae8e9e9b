"""List the chapters, run one, or run all: ``python -m chapters [NUMBER | NAME | all]``."""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple, TextIO

from agentloop import LoopError, on_one_line
from chapters.telling import BOLD, WIDTH, Pace, Telling, steps_written_to

FOLDER = Path(__file__).parent


class Chapter(NamedTuple):
    """One chapter: its two digits, the name it can be called by, and its idea in a sentence."""

    number: str
    name: str
    idea: str

    @property
    def module(self) -> str:
        return f"ch{self.number}_{self.name}"

    def run(self, tell: Telling) -> None:
        """Run its demo. Nothing of a chapter is imported before."""
        importlib.import_module(f"chapters.{self.module}").demo(tell)


def find_chapters() -> list[Chapter]:
    """All chapters in order; ideas are read from the files without importing them."""
    return [_chapter(path) for path in sorted(FOLDER.glob("ch[0-9][0-9]_*.py"))]


def _chapter(path: Path) -> Chapter:
    number, _, name = path.stem.removeprefix("ch").partition("_")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "(no docstring)"
    return Chapter(number, name, docstring.splitlines()[0])


def find(wanted: str, chapters: Sequence[Chapter]) -> Chapter:
    """The chapter meant by a number, a name or a part of one. Raises ``LookupError`` with what is near."""
    word = wanted.lower().removesuffix(".py").replace("-", "_").replace(" ", "_")
    exact = [chapter for chapter in chapters if word in (chapter.name, chapter.module)]
    numbered = [chapter for chapter in chapters if word.removeprefix("ch").zfill(2) == chapter.number]
    named = [chapter for chapter in chapters if word in chapter.module and not word.isdigit()]
    found = exact or numbered or named
    if len(found) == 1:
        return found[0]
    if found:
        meant = " or ".join(chapter.module for chapter in found)
        raise LookupError(f"{wanted!r} could be {meant}: say more of it")
    near = " or ".join(difflib.get_close_matches(word, [chapter.name for chapter in chapters], cutoff=0.5))
    numbers = f"they are {chapters[0].number} to {chapters[-1].number}, and python -m chapters lists them"
    raise LookupError(f"there is no chapter {wanted!r}: {f'did you mean {near}?' if near else numbers}")


def main(
    arguments: Sequence[str] | None = None, out: TextIO | None = None, keys: TextIO | None = None
) -> int:
    """Do what the command line asks for and return the exit code: 1 where a demo of ``all`` raised."""
    out, keys = out or sys.stdout, keys or sys.stdin
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")  # a console that lacks a character shows ? and goes on
    parser = _parser()
    wish = parser.parse_args(arguments)
    if wish.chapter is None and (wish.trace or wish.step):
        parser.error("--trace and --step need a chapter to run, or all")
    colour = out.isatty() and not os.environ.get("NO_COLOR")
    tell = Telling(out, colour=colour)
    if wish.mermaid:
        tell(importlib.import_module("chapters.ch02_state_machine").mermaid())
        return 0
    chapters = find_chapters()
    if wish.chapter is None:
        _list(chapters, tell)
        return 0
    everything = wish.chapter.lower() == "all"
    try:
        chosen = chapters if everything else [find(wish.chapter, chapters)]
        opened = _opened(wish.trace)
    except (LookupError, OSError) as refusal:
        parser.error(str(refusal))
    pace = Pace(keys) if wish.step else None
    with opened as file:

        def run(chapter: Chapter) -> None:
            written = [steps_written_to(file, chapter.module)] if file else []
            telling = Telling(out, written, colour, pace)
            chapter.run(telling)
            if (wish.trace or wish.step) and not telling.has_watched:
                sys.stderr.write(f"{chapter.module} watches no loop: nothing to step through or trace\n")

        if everything:
            return _run_all(chosen, run, tell)
        run(chosen[0])
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chapters",
        description="The chapters of the Agent Loop: list them, or run their demos.",
    )
    parser.add_argument("chapter", nargs="?", help="a number, a part of a name, or all; without it: the list")
    parser.add_argument("--trace", metavar="FILE", help="write each step of each loop to FILE as JSON Lines")
    parser.add_argument("--step", action="store_true", help="wait for Enter at each transition")
    parser.add_argument("--mermaid", action="store_true", help="print the diagram of the machine and end")
    return parser


def _list(chapters: Sequence[Chapter], tell: Telling) -> None:
    tell.table(chapters)
    tell("\nRun one: python -m chapters NUMBER (or its name). Run every one: python -m chapters all.")


def _opened(path: str | None) -> AbstractContextManager[TextIO | None]:
    # JSON writes half a surrogate pair as \udc80, which is what backslashreplace makes of it.
    return open(path, "w", encoding="utf-8", errors="backslashreplace") if path else nullcontext()


def _run_all(chapters: Sequence[Chapter], run: Callable[[Chapter], None], tell: Telling) -> int:
    """Run every demo whatever becomes of the others, then say how each ended."""
    endings = []
    for chapter in chapters:
        tell(f"\n=== {chapter.number} {chapter.name} ===", BOLD)
        try:
            run(chapter)
            endings.append("ended well")
        except Exception as error:
            if _nobody_reads(error):
                raise
            endings.append(on_one_line(f"raised {type(error).__name__}: {error}", WIDTH))
    tell.heading("How each ended")
    tell.table((*chapter[:2], end) for chapter, end in zip(chapters, endings, strict=True))
    return 0 if all(end == "ended well" for end in endings) else 1


def _nobody_reads(error: BaseException | None) -> bool:
    """Whether the pipe that is written to has ended, be it while a loop, or one inside of it, was watched."""
    while isinstance(error, LoopError):
        error = error.__cause__
    return isinstance(error, BrokenPipeError)


def _main() -> int:
    """``main`` for a shell: whoever reads the output may stop reading, as ``head`` does."""
    try:
        code = main()
        sys.stdout.flush()
        return code
    except (BrokenPipeError, LoopError) as error:
        if not _nobody_reads(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to flush goes nowhere
        return 1


if __name__ == "__main__":
    sys.exit(_main())
