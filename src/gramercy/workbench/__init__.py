"""Joins the parts of the program: sources of tools become registries."""
