"""The three example tools of the tool protocol, for Python: symbols are names, packages are modules."""

from __future__ import annotations

import builtins
import importlib
from pathlib import Path
from typing import Any

import pytest

from gramercy import Tool, define_tool

Arguments = dict[str, Any]


@pytest.fixture
def describe_symbol() -> Tool:
    """Define the safe example: it only reads."""

    def describe(arguments: Arguments) -> str:
        package = importlib.import_module(arguments["package"]) if "package" in arguments else builtins
        found = getattr(package, arguments["symbol"], None)
        if found is None:
            return f"Symbol {arguments['symbol']} not found"
        return f"{arguments['symbol']} is a {type(found).__name__}: {found.__doc__}"

    return define_tool(
        "describe_symbol",
        "Get detailed information about a Lisp symbol including type, value, documentation.",
        [
            {"name": "symbol", "type": "string", "description": "Symbol name to describe"},
            {"name": "package", "type": "string", "description": "Package name (optional)"},
        ],
        required=["symbol"],
        safety_level="safe",
        categories=["introspection"],
        handler=describe,
    )


@pytest.fixture
def eval_form() -> Tool:
    """Define the cautious example: it runs code."""

    def evaluate(arguments: Arguments) -> str:
        package = importlib.import_module(arguments.get("package", "builtins"))
        try:
            return repr(eval(arguments["form"], dict(vars(package))))
        except Exception as error:  # noqa: BLE001 - the example catches every error
            return f"Error: {error}"

    return define_tool(
        "eval_form",
        "Evaluate a Lisp form in the running image. Returns result or error.",
        [
            {"name": "form", "type": "string", "description": "Lisp form to evaluate"},
            {"name": "package", "type": "string", "description": "Package context (optional)"},
        ],
        required=["form"],
        safety_level="cautious",
        categories=["execution"],
        handler=evaluate,
    )


@pytest.fixture
def write_file() -> Tool:
    """Define the dangerous example: it changes files."""

    def write(arguments: Arguments) -> str:
        Path(arguments["path"]).write_text(arguments["content"], "utf-8")
        return f"Wrote {len(arguments['content'])} bytes to {arguments['path']}"

    return define_tool(
        "write_file",
        "Write content to a file. DESTRUCTIVE - requires user approval.",
        [
            {"name": "path", "type": "string", "description": "File path to write"},
            {"name": "content", "type": "string", "description": "Content to write"},
        ],
        required=["path", "content"],
        safety_level="dangerous",
        categories=["buffer", "filesystem"],
        handler=write,
    )
