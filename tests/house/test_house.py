"""The house stays in order: light imports, no stray words, sizes that fit in the head."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
HEAVY = ("click", "jsonschema_rs", "asyncio", "opentelemetry", "msgspec")
LONGEST_MODULE = 350
LONGEST_FUNCTION = 45


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


def test_modules_and_functions_stay_short():
    too_long = [
        str(path.relative_to(ROOT)) for path in SOURCES if len(path.read_text().splitlines()) > LONGEST_MODULE
    ]
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    too_long.append(f"{path.relative_to(ROOT)}: {node.name} has {length} lines")
    assert too_long == []


def test_dependencies_are_locked_by_name_and_version_only():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[a-z0-9.\-]+==[0-9a-z.]+", line)] == []


def test_scripts_are_executable():
    for script in (ROOT / "scripts").iterdir():
        assert script.stat().st_mode & 0o111, script.name
