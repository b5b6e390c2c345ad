"""Python functions as a source of schemas: annotations, defaults, docstrings."""
