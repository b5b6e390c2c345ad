"""The page on gramercy.toml, from the program's own table of settings."""

# ruff: noqa: INP001 - documentation is not a package

from __future__ import annotations

from gramercy.workbench.settings import KEYS, options_of, variable

_ABOUT = """\
# Configuration

What you would say on the command line each time can be in a file. For each setting counts, nearest first:
the option, the variable of the environment, your file's table for the project, the project's file, your
file.

| file | is |
|---|---|
| `gramercy.toml` in the project, or `[tool.gramercy]` in its `pyproject.toml` | the project's file |
| `~/.config/gramercy/gramercy.toml`, in `XDG_CONFIG_HOME` if that is set | your file |
| a table `[projects."~/work/garden"]` in your file | your word for one project |

A project comes from anywhere, so its file may choose and lower, never raise. What it may not say is refused
and told, and the rest applies; so it is with a key that does not exist and a value that cannot be. Paths
are relative to the project; in your file in general, to that file. In variables of the environment, paths
are parted by `:` and other lists by commas.

| key | type | default | option | the project's file may say |
|---|---|---|---|---|
"""
_SHOWN = """\
## See what holds

`gramercy config show` prints what holds for a project as TOML; `--origin` adds where each value comes from
and what was refused. It takes the options of images too, so that you see what a command with them would
use.

```toml title="garden/gramercy.toml"
image = "python"
timeout = 30
network = "open"
```

```console
$ GRAMERCY_MEMORY=512 gramercy config show --origin --project garden --env MODE=test
image = ["python"]  # from …garden/gramercy.toml
# python: the environment of the project, else the one that is active  (default)
# paths: none  (default)
# registries: none  (default)
# init: none  (default)
memory = 512  # from GRAMERCY_MEMORY
# disk: 1024  (default)
timeout = 30.0  # from …garden/gramercy.toml
# timeout_limit: 600  (default)
env = { MODE = "test" }  # from --env
# publish: none  (default)
# network: "none"  (default)
# files: "write"  (default)
# require_sandbox: none: the best that works here, and the start says which  (default)
# debug_quality: 2  (default)
# reload: "auto"  (default)
# journal: $XDG_STATE_HOME/gramercy/journal.db  (default)
# approval_wait: 50 in a server while gramercy approvals watch is open, else 0  (default)
# approval_expiry: 86400, a day  (default)
# mask: none beside what sounds like a secret  (default)
# mask_patterns: none beside the forms of common tokens  (default)
# retention: none: contents are kept  (default)
# model: the one that an agent names  (default)
# refused in …garden/gramercy.toml: network = "open", since a file of the project may not open the network
```

With `--json` it is an object: `project`, `files` (those that were read), `settings` (a list of `key`,
`value` and `origin`, a list of names, `default` where nothing sets it), `refused` (`key`, `value`, `where`,
`reason`) and `remarks` (what else is wrong in the files). Values that were taken from your environment are
not shown.
"""


def configuration_page() -> str:
    """Describe every key of gramercy.toml."""
    rows, sections = [], []
    for key, about in KEYS.items():
        # What is set once and for all is no option of a command.
        options = options_of(key)[:1] if about.help else about.names
        shown = ", ".join(f"`{option}`" for option in options) or "none"
        cells = [f"[`{key}`](#{key})", about.kind.type, about.default, shown, about.project]
        rows.append(f"| {' | '.join(cells)} |\n")
        told = f"{about.does} In the environment: `{variable(key)}`."
        sections.append(f"## {key}\n\n{told}\n\n```toml\n{about.example}\n```\n\n")
    return f"{_ABOUT}{''.join(rows)}\n{''.join(sections)}{_SHOWN}"
