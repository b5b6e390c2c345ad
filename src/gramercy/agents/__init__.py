"""Agents: a specification, bound to implementations, in conversation with a model under a person's eyes."""
