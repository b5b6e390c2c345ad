"""What the model of every story wants to change."""

from __future__ import annotations

from tests.mcp.programs.stand_in import Call

FILE = "a.py"
BEFORE = "def f(x):\n    return x + 1\n"
AFTER = "def f(x):\n    return x + 2\n"
EDIT = Call(
    "propose_file_edit", {"path": FILE, "original": BEFORE, "modified": AFTER, "description": "Add two."}
)
# The rule of a person who leaves the question to the client, or to nobody.
RULES = '[[rules]]\naction = "allow"\ntools = "propose_file_edit"\n'
