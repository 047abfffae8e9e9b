"""What may import what, what importing may do, and what no file may contain."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("fake_llm", "paradigms", "chapters", "benchmarks", "tests")
FILES = [ROOT / "agentloop.py", *(path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")))]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


NAMES = {module_name(path): path for path in FILES}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in NAMES.items()}
SHIPPED = [name for name in NAMES if not name.startswith("tests")]
CHAPTERS = [name for name in NAMES if re.fullmatch(r"chapters\.ch\d\d_\w+", name)]

#: Who may import what of the project, besides the package's own modules.
LAYERS = {
    "agentloop": (),
    "fake_llm": ("agentloop", "fake_llm"),
    "paradigms": ("agentloop", "paradigms"),
    "chapters": ("agentloop", "fake_llm", "paradigms", "chapters"),
    "benchmarks": ("agentloop", "fake_llm", "paradigms", "chapters", "benchmarks"),
    "tests": ("agentloop", "fake_llm", "paradigms", "chapters", "benchmarks", "tests"),
}


def imports(name: str) -> Iterator[str]:
    """Every module that ``name`` imports, anywhere in its file, under its full name."""
    package = name if NAMES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{module}.{alias.name}"
                yield full if full in NAMES else module


def calls(name: str) -> Iterator[tuple[ast.Call, str]]:
    """Every call in a module, with the last part of what is called."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node, node.func.id if isinstance(node.func, ast.Name) else node.func.attr


def run(script: str, *options: str) -> str:
    """What a fresh interpreter says that runs ``script`` in the project's folder; its errors too."""
    command = [sys.executable, "-B", *options, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    return done.stdout + done.stderr


# --- Layers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_imports_point_one_way(name: str) -> None:
    allowed = LAYERS[name.partition(".")[0]]
    project = {module for module in imports(name) if module.partition(".")[0] in LAYERS}
    assert [module for module in sorted(project) if module.partition(".")[0] not in allowed] == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_imports_no_later_chapter(name: str) -> None:
    chapters = {module for module in imports(name) if module.startswith("chapters")}
    wrong = [module for module in sorted(chapters) if module != "chapters.telling" and not module < name[:13]]
    assert wrong == [], "a chapter may import chapters.telling and chapters with a smaller number"


@pytest.mark.parametrize("name", ["chapters", "chapters.telling", "chapters.__main__"])
def test_the_frame_imports_no_chapter(name: str) -> None:
    assert [module for module in imports(name) if module in CHAPTERS] == []


@pytest.mark.parametrize("name", NAMES)
def test_only_the_standard_library_outside_tests(name: str) -> None:
    theirs = {module.partition(".")[0] for module in imports(name)} - LAYERS.keys() - sys.stdlib_module_names
    beside = {path.stem for path in (ROOT / "tests").glob("*.py")}  # tests import each other by bare name
    allowed = {"pytest", "hypothesis", "_pytest", *beside} if name.startswith("tests") else set()
    assert sorted(theirs - allowed) == []


# --- Importing does nothing -------------------------------------------------------------------

WATCHED_IMPORT = """
import importlib, sys

importing = ""

def hook(event, arguments):
    opened = event == "open" and not str(arguments[0]).endswith((".py", ".pyc", ".so", ".pyd"))
    started = event.split(".")[0] in ("socket", "subprocess", "sqlite3", "webbrowser", "urllib")
    forked = event in ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn")
    if opened or started or forked or event == "_thread.start_new_thread":
        print(f"importing {importing}: {event} {arguments}")

class Thread(__import__("threading").Thread):
    def start(self):
        print(f"importing {importing}: a thread was started")

sys.modules["threading"].Thread = Thread
sys.addaudithook(hook)
sys.path.insert(0, ".")
for importing in sys.argv[1].split():
    importlib.import_module(importing)
"""


def test_importing_prints_nothing_opens_nothing_starts_nothing() -> None:
    names = [name for name in SHIPPED if not name.endswith("__main__")]
    script = WATCHED_IMPORT.replace("sys.argv[1]", repr(" ".join(names)))
    assert run(script) == ""


@pytest.mark.parametrize("heavy", ["asyncio", "sqlite3", "threading", "socket"])
def test_the_kernel_does_not_import(heavy: str) -> None:
    script = f"import sys; sys.path.insert(0, '.'); import agentloop; print({heavy!r} in sys.modules)"
    assert run(script, "-S").strip() == "False"


# --- What no file may contain -----------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_text_is_never_run_as_code(name: str) -> None:
    named = {node.id for node in ast.walk(TREES[name]) if isinstance(node, ast.Name)}
    reached = {node.attr for node in ast.walk(TREES[name]) if isinstance(node, ast.Attribute)}
    assert sorted((named | reached) & {"eval", "exec"}) == []
    assert sorted({"pickle", "marshal", "shelve", "dill"} & set(imports(name))) == []


@pytest.mark.parametrize("name", NAMES)
def test_text_files_name_their_encoding(name: str) -> None:
    nameless = [
        f"line {call.lineno}: {ast.unparse(call)}"
        for call, called in calls(name)
        if (called in ("read_text", "write_text") or isinstance(call.func, ast.Name) and called == "open")
        and not any(keyword.arg == "encoding" for keyword in call.keywords)
        and not _is_binary(call)
    ]
    assert nameless == []


def _is_binary(call: ast.Call) -> bool:
    modes = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return any(isinstance(mode, ast.Constant) and "b" in str(mode.value) for mode in modes)


def test_the_kernel_prints_nothing_asks_nothing_opens_nothing_and_draws_nothing() -> None:
    functions = {call.func.id for call, _ in calls("agentloop") if isinstance(call.func, ast.Name)}
    assert sorted(functions & {"print", "input", "open"}) == []
    assert "random" not in set(imports("agentloop"))


def test_the_kernel_reads_no_clock_outside_its_driver() -> None:
    lines = NAMES["agentloop"].read_text(encoding="utf-8").splitlines()
    driving = next(number for number, line in enumerate(lines, 1) if line.startswith("# --- Driving"))
    read = [node for node in ast.walk(TREES["agentloop"]) if isinstance(node, ast.Attribute)]
    clocks = [node for node in read if ast.unparse(node.value) in ("time", "datetime")]
    assert [f"line {node.lineno}: {ast.unparse(node)}" for node in clocks if node.lineno < driving] == []


@pytest.mark.parametrize("name", [name for name in SHIPPED if not name.startswith("benchmarks")])
def test_only_a_telling_prints(name: str) -> None:
    assert [f"line {call.lineno}" for call, called in calls(name) if called == "print"] == []


# --- The form of a chapter --------------------------------------------------------------------


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_has_its_form(name: str) -> None:
    docstring = ast.get_docstring(TREES[name]) or ""
    idea = docstring.partition("\n")[0]
    assert idea.endswith(".") and len(idea) <= 110, "the first line is the idea, one sentence in one line"
    assert "Exercises\n---------\n1. " in docstring, "exercises close the docstring, numbered"
    assert "--impl" in docstring, "exercises name the command that checks the reader's version"
    functions = {node.name: node for node in TREES[name].body if isinstance(node, ast.FunctionDef)}
    assert "demo" in functions, "demo(tell: Telling) tells the story"
    assert ast.unparse(functions["demo"].args) == "tell: Telling"
