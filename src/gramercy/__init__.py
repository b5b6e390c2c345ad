"""Typed tools for LLM agents that a person can see, approve, edit and undo."""
