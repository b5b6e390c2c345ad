"""The house stays in order: light imports, no stray words, few doors."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
HEAVY = ("click", "jsonschema_rs", "asyncio", "opentelemetry", "msgspec")
# httpx has 6 of 23, anyio 9 of 46. Those that are left are worth their door:
# - In a Python image, the operations that only its server imports, and the steps by which edited files are
#   taken up. In `images`, the parts of a process and of its files that only their owner imports.
# - Dialects of the journal and providers of models, which only the opening of their name imports.
# - The first module of a room, which one module of a higher room imports: engine, serving, formatter.
# - Boundaries: the gate between a call and its approval, the return of a call after a restart, worker
#   threads, uvicorn, pipes to foreign servers, package indexes, settings files of clients in TOML.
# - Parts of a subject that together would be longer than 450 lines.
MOST_SINGLE_IMPORTERS = 61
QUESTIONS = 40


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


def module_files():
    """Return the file of every module and package of ours, by dotted name."""
    names = {}
    for path in SOURCES:
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def importers():
    """Return for every module of ours, packages and programs aside, the modules that import it.

    A name that a package passes on is imported from the module that has it.
    """
    names = module_files()
    passed_on = {
        f"{name}.{alias.name}": node.module
        for name, path in names.items()
        if path.name == "__init__.py"
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found: dict[str, set[str]] = {
        name: set()
        for name, path in names.items()
        if path.name != "__init__.py" and '__name__ == "__main__"' not in path.read_text(encoding="utf-8")
    }
    for name, path in names.items():
        for imported in imported_modules(path, name):
            home = passed_on.get(imported, imported)
            if home in found and home != name:
                found[home].add(name)
    return found


def loaded_by_name():
    """Return the modules that a table names and the program imports when it needs them: commands, tools."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCES]
    commands = {name for text in texts for name in re.findall(r'"(gramercy(?:\.\w+)+):\w+"', text)}
    families = (ROOT / "src/gramercy/toolsets/project.py").read_text(encoding="utf-8")
    return commands | {f"gramercy.toolsets.{name}" for name in re.findall(r'Family\("(\w+)"', families)}


def test_few_modules_have_a_single_importer():
    """A module that only one other imports must be worth its door: a port, a boundary, a big table."""
    single = sorted(name for name, users in importers().items() if len(users) == 1)
    counted = [name for name in single if name not in loaded_by_name()]
    assert len(counted) <= MOST_SINGLE_IMPORTERS, counted


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


CONTRIBUTORS = ("CONTRIBUTING.md", "docs/explanation/architecture.md")
PATH = re.compile(r"[\w.*<>~-]+(?:/[\w.*<>~-]+)+|[\w-]+\.(?:py|md|toml|txt)")


def named_paths(text):
    """Return what looks like a path in the code spans of a page, its fenced blocks aside."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = {path for span in re.findall(r"`([^`\n]+)`", prose) for path in PATH.findall(span)}
    # Made by the scripts, in the home of a person, or a pattern with a name to fill in.
    return {path for path in found if not path.startswith((".venv", "~")) and "<" not in path}


def is_there(path):
    """Tell whether the tree has a path: from its root or the package; a bare name may be anywhere in it."""
    if "/" not in path:
        return (ROOT / path).exists() or any(source.name == path for source in SOURCES)
    return any(any(base.glob(path)) for base in (ROOT, ROOT / "src/gramercy"))


def test_pages_for_contributors_name_paths_that_are_there():
    """A newcomer follows CONTRIBUTING.md and architecture.md; a path that leads nowhere costs trust."""
    for page in CONTRIBUTORS:
        paths = named_paths((ROOT / page).read_text(encoding="utf-8"))
        assert len(paths) > 20
        assert sorted(path for path in paths if not is_there(path)) == [], page


def test_pages_for_contributors_name_every_room():
    """The tables of rooms follow the layers that import-linter holds, in the same order."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (rooms,) = [each for each in settings["tool"]["importlinter"]["contracts"] if each["id"] == "rooms"]
    layer_of = {room: number for number, layer in enumerate(rooms["layers"]) for room in layer.split(" | ")}
    for page in CONTRIBUTORS:
        section = (ROOT / page).read_text(encoding="utf-8").partition("## Rooms\n")[2].partition("\n#")[0]
        cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section, re.MULTILINE)
        named = [room for cell in cells for room in re.findall(r"\w+", cell)]
        assert sorted(named) == sorted(layer_of), page
        assert [layer_of[room] for room in named] == sorted(layer_of.values()), page


def test_tables_of_a_room_name_modules_that_it_has():
    """architecture.md, Inside `room`: the first cell of a row has modules, and packages of modules."""
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### Inside `([\w/]+)`\n(.*?)(?=^#)", page, re.MULTILINE | re.DOTALL)
    assert sections
    for room, text in sections:
        home = ROOT / "src/gramercy" / room
        for cell in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE):
            for name in re.findall(r"`([\w/]+)`", cell):
                assert any(home.glob(f"{name}.*")) or (home / name).is_dir(), (room, name)
