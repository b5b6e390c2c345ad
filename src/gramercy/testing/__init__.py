"""Doubles for tests: an image in memory, an approver with a script, raw clients of MCP over stdio and HTTP.

Nothing else of the package imports this room, and its modules are imported one by one, so that a test loads
only what it uses.
"""
