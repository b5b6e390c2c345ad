"""What the model of every story wants to change."""

from __future__ import annotations

from tests.mcp.programs.stand_in import Call

FILE = "a.py"
BEFORE = "def f(x):\n    return x + 1\n"
AFTER = "def f(x):\n    return x + 2\n"
EDIT = Call("edit_file", {"path": FILE, "old": "x + 1", "new": "x + 2", "description": "Add two."})
# The rule of a person who leaves the question to the client, or to nobody.
RULES = '[[rules]]\naction = "allow"\ntools = "edit_file"\n'
