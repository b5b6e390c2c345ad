"""The tools that `gramercy serve --from` is given: echo, and as many more as TOOLS says."""

from __future__ import annotations

import os

from gramercy import tool


@tool(inline=True)
def echo(text: str) -> str:
    """Return the text."""
    return text


for number in range(1, int(os.environ.get("TOOLS", "1"))):
    globals()[f"echo_{number}"] = tool(name=f"echo_{number}", inline=True)(echo.function)
