"""Typed tools for LLM agents that a person can see, approve, edit and undo.

The names below are loaded when first used, so that `import gramercy` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gramercy.agents.agent import Agent as Agent
    from gramercy.agents.base import Limits as Limits
    from gramercy.agents.base import Response as Response
    from gramercy.agents.observability import setup_observability as setup_observability
    from gramercy.errors import GramercyError as GramercyError
    from gramercy.errors import InvalidArgumentsError as InvalidArgumentsError
    from gramercy.execution.approval import Approved as Approved
    from gramercy.execution.approval import Denied as Denied
    from gramercy.execution.approval import Modified as Modified
    from gramercy.execution.calls import ToolCall as ToolCall
    from gramercy.execution.calls import ToolResult as ToolResult
    from gramercy.execution.executor import Executor as Executor
    from gramercy.execution.policy import Policy as Policy
    from gramercy.execution.policy import Rule as Rule
    from gramercy.gram.signatures.signature import parse_type_signature as parse_type_signature
    from gramercy.gram.signatures.signature import (
        type_signature_to_json_schema as type_signature_to_json_schema,
    )
    from gramercy.gram.specification import ToolSpecification as ToolSpecification
    from gramercy.gram.specification import create_tool_specification as create_tool_specification
    from gramercy.images.opening import open_image as open_image
    from gramercy.journal.opening import open_journal as open_journal
    from gramercy.tools.arguments import validate_tool_args as validate_tool_args
    from gramercy.tools.content import ToolOutput as ToolOutput
    from gramercy.tools.definition import create_tool as create_tool
    from gramercy.tools.definition import define_tool as define_tool
    from gramercy.tools.definition import tool as tool
    from gramercy.tools.formatting import format_tool_result as format_tool_result
    from gramercy.tools.library import ToolLibrary as ToolLibrary
    from gramercy.tools.registry import Registry as Registry
    from gramercy.tools.registry import default_registry as default_registry
    from gramercy.tools.safety import Safety as Safety
    from gramercy.tools.tool import Tool as Tool
    from gramercy.tools.tool import tools_to_schema as tools_to_schema
    from gramercy.toolsets.core import register_core_tools as register_core_tools

__version__ = "0.1.0"

_HOMES = {
    "agents.agent": ("Agent",),
    "agents.base": ("Limits", "Response"),
    "agents.observability": ("setup_observability",),
    "errors": ("GramercyError", "InvalidArgumentsError"),
    "execution.approval": ("Approved", "Denied", "Modified"),
    "execution.calls": ("ToolCall", "ToolResult"),
    "execution.executor": ("Executor",),
    "execution.policy": ("Policy", "Rule"),
    "gram.signatures.signature": ("parse_type_signature", "type_signature_to_json_schema"),
    "gram.specification": ("ToolSpecification", "create_tool_specification"),
    "tools.arguments": ("validate_tool_args",),
    "tools.content": ("ToolOutput",),
    "tools.definition": ("create_tool", "define_tool", "tool"),
    "tools.formatting": ("format_tool_result",),
    "tools.library": ("ToolLibrary",),
    "tools.registry": ("Registry", "default_registry"),
    "tools.safety": ("Safety",),
    "tools.tool": ("Tool", "tools_to_schema"),
    "images.opening": ("open_image",),
    "journal.opening": ("open_journal",),
    "toolsets.core": ("register_core_tools",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULES)  # noqa: PLE0605 - one table says what there is and where it lives


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'gramercy' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"gramercy.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
