"""Schemas of tools as other programs want them, judged by the packages that read them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gramercy import tools_to_schema
from gramercy.gram.specification import ToolSpecification
from gramercy.workbench.sources import load_tools

if TYPE_CHECKING:
    from gramercy.tools.tool import SchemaStyle

NOTES = str(Path(__file__).parents[2] / "examples" / "notes.py")


def export(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gramercy", "tools", "export", "--from", NOTES, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


def schemas(style: SchemaStyle) -> list[dict[str, Any]]:
    return tools_to_schema(load_tools(NOTES).library().values(), style)


def test_the_command_writes_them(tmp_path):
    done = export("--format", "gemini", "--max-safety", "cautious", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [each for each in schemas("gemini") if each["name"] != "save_notes"]


@pytest.mark.parametrize(
    ("style", "package", "name"),
    [
        ("openai", "openai.types.chat", "ChatCompletionFunctionToolParam"),
        ("openai-responses", "openai.types.responses", "FunctionToolParam"),
        ("anthropic", "anthropic.types", "ToolParam"),
    ],
)
@pytest.mark.contract("agents.interop.export")
@pytest.mark.slow
def test_the_packages_of_providers_read_the_schemas(style, package, name):
    """Interop: export of schemas for any of them."""
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")
    module = pytest.importorskip(package, reason=f"{package} is not installed")
    found = schemas(style)
    assert len(found) == 3
    shape = pydantic.TypeAdapter(getattr(module, name))
    for each in found:
        read_back = shape.dump_python(shape.validate_python(each), mode="json")
        assert read_back == each, "nothing is left out as unknown"


def test_langchain_makes_of_them_what_openai_gets():
    calling = pytest.importorskip(
        "langchain_core.utils.function_calling", reason="langchain-core is not installed"
    )
    ours = schemas("openai")
    assert [calling.convert_to_openai_tool(each) for each in schemas("langchain")] == ours


def test_gemini_gets_json_schema_as_it_is():
    found = schemas("gemini")
    openai = [each["function"] for each in schemas("openai")]
    for each, other in zip(found, openai, strict=True):
        assert each == {
            "name": other["name"],
            "description": other["description"],
            "parametersJsonSchema": other["parameters"],
        }


def test_gram_can_be_bound_to_the_same_tools(tmp_path):
    done = export("--format", "gram", "--max-safety", "cautious", "--output", "tools.gram", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    text = (tmp_path / "tools.gram").read_text()
    specifications = [ToolSpecification.from_gram(each) for each in text.split("\n\n")]
    bound = load_tools(NOTES).library().bind_all(specifications)
    assert [each.name for each in bound] == ["read_note", "write_note"]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    done = export("--output", "missing/tools.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "missing/tools.json cannot be written: No such file or directory" in done.stderr
