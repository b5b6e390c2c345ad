"""The program of a Python image: a process that evaluates and can be forked, and nothing else.

It runs by path, inside a sandbox, on any Python from 3.11 on: the standard library only, no import of the
product around it, relative imports alone. `__main__.py` loads these modules under a private name.
"""
