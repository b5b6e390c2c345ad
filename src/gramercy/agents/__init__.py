"""Agents: a specification, bound to implementations, that converses with a model under a person's control."""
