"""The house stays in order: light imports, no stray words, few doors."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
HEAVY = ("click", "jsonschema_rs", "asyncio", "opentelemetry", "msgspec")
# httpx has 6 of 23, anyio 9 of 46. The operations of the program inside a Python image are counted too, each
# a module that only its server imports. Each way of files in time (to hear, to look, to restore) is a port to
# the kernel that only the ledger imports. A dialect of the journal is a port that only its opening imports;
# the notices of PostgreSQL are a boundary that only its dialect crosses.
# The gate is the boundary between a call and its approval, and coming back that between two processes; only
# the executor passes them.
# The review of a call of another process is what `gramercy approvals` does at a terminal.
# Each provider is a boundary that only the opening of its name crosses, and each way to look at runs of
# agents (traces, comparison, shadow) is what one command does.
MOST_SINGLE_IMPORTERS = 70
QUESTIONS = 10


def modules_after(statement):
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_heavy():
    assert not modules_after("import gramercy").intersection(HEAVY)


def test_defining_a_tool_does_not_need_the_command_line():
    loaded = modules_after("from gramercy import Executor, Registry, tool")
    assert "click" not in loaded
    assert "gramercy.execution.executor" in loaded


def test_every_public_name_can_be_imported():
    import gramercy

    for name in gramercy.__all__:
        assert getattr(gramercy, name) is not None


def imported_modules(path, name):
    """Return the dotted names that a module imports; of `from a import b`, both a and a.b."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def importers():
    """Return for every module of ours, packages and programs aside, the modules that import it."""
    names = {}
    for path in SOURCES:
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {
        name: set()
        for name, path in names.items()
        if path.name != "__init__.py" and '__name__ == "__main__"' not in path.read_text(encoding="utf-8")
    }
    for name, path in names.items():
        for imported in imported_modules(path, name):
            if imported in found and imported != name:
                found[imported].add(name)
    return found


def test_few_modules_have_a_single_importer():
    """A module that only one other imports must be worth its door: a port, a boundary, a big table."""
    single = sorted(name for name, users in importers().items() if len(users) == 1)
    assert len(single) <= MOST_SINGLE_IMPORTERS, single


def test_dependencies_are_locked_by_name_and_version_only():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[a-z0-9.\-]+==[0-9a-z.]+", line)] == []


def test_scripts_are_executable():
    for script in (ROOT / "scripts").iterdir():
        assert script.stat().st_mode & 0o111, script.name


def test_every_error_class_is_in_the_one_tree():
    """Its docstring draws them all; a private one, caught in its own module, is control flow."""
    outside = []
    for path in SOURCES:
        # The programs inside of an image import nothing of ours.
        if path.name == "errors.py" or {"python", "confine"} & set(path.parts[-2:-1]):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                if any(base.endswith(("Error", "Exception")) for base in bases):
                    outside.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert outside == []


def test_the_page_names_places_that_are_there():
    """architecture.md, Where to look: each file has what the question is about."""
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .*\? \| `(\S+\.py)` \| `([\w.]+)` \|$", page, re.MULTILINE)
    assert len(rows) >= QUESTIONS
    for file, name in rows:
        text = (ROOT / "src/gramercy" / file).read_text(encoding="utf-8")
        for part in name.split("."):
            defined = rf"^ *(async )?(def|class) {part}\b|^{part}( =|: )"
            assert re.search(defined, text, re.MULTILINE), (file, name)
