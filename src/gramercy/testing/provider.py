"""A model with a script, to test agents and what is built on them without one."""

from gramercy.providers.scripted import ScriptedProvider

__all__ = ["ScriptedProvider"]
