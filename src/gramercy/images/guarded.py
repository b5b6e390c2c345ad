"""Control files of a project, by class: names that programs, agents and services read for something to do.

A program reads such a name because of the directory a person is in or what they opened, not because they
named it. Likewise an agent obeys it, and a service runs it after a push. One table lists these names and
their readers: a new program is one more word in it. One rule holds for both ways to a file: the file tools
ask before they write such a name, in every mode; evaluated code can only read it, and a new one is moved
aside.

Makefiles, build files, `conftest.py` and the other tests are not listed, since a person or an agent runs them
by name. Nor are `.gitattributes` and `.gitmodules`: git takes programs from its config alone.
"""

from __future__ import annotations

import fnmatch
import re
from functools import cached_property
from typing import NamedTuple

GIT = ".git"
OWN = "gramercy.toml"
OWN_POLICY = "gramercy-policy.toml"
# Files moved aside get this ending, which no program reads.
UNTRUSTED = ".untrusted"


class Kind(NamedTuple):
    """A class of names. `reader` follows "NAME, which". `names` are patterns for one part of a path."""

    reader: str
    names: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


KINDS = (
    Kind("git reads for programs to run", (GIT,)),
    Kind("gramercy reads for rules and tools", (OWN, OWN_POLICY)),
    Kind(
        "an editor reads for programs to run",
        _words(
            ".vscode .vscode-* *.code-workspace .idea .zed .devcontainer .devcontainer.json .fleet .helix "
            ".lapce .nova .theia .vs .settings .externaltoolbuilders *.sublime-project *.sublime-workspace "
            ".vim .vim.* .nvim .nvim.* .lvim.lua .local.vim .dir-locals*.el .bsp .calva .lsp"
        ),
    ),
    Kind(
        "an agent reads for programs to run",
        _words(
            ".cursor .claude .mcp .mcp.json .mcp.*.json .gemini .codex .windsurf .continue .opencode "
            "opencode.json opencode.jsonc .kiro .roo .roomodes .kilocode .kilocodemodes .amazonq .qwen "
            ".junie .trae .factory .augment .clinerules .cline .crush crush.json .crush.json .goose .agent "
            ".agents .aider.conf.y*ml .copilot .openhands .rovodev .codebuddy .iflow .amp .warp .zencoder "
            ".forge .pi .devin .tabnine .codeium .cody .sourcegraph .github/mcp.json .github/hooks"
        ),
    ),
    Kind(
        "a shell reads when it enters the directory",
        _words(
            ".envrc .envrc.* mise.toml .mise.toml mise.*.toml .mise.*.toml .mise mise/config.toml .rtx.toml "
            ".rtx .tool-versions .autoenv .autoenv.* .zlocal flake.nix shell.nix default.nix devenv.nix "
            "devenv.*.nix devenv.yaml devenv.*.yaml"
        ),
    ),
    Kind(
        "editors, shells and install_packages run programs from",
        _words(
            ".venv .venv-* .venv.* .venvs venv .virtualenv .conda .pixi .tox .nox .direnv .devenv "
            "__pypackages__ pyvenv.cfg conda-meta site-packages dist-packages"
        ),
    ),
    Kind(
        "Python runs at its start where the directory is on its path",
        _words("sitecustomize sitecustomize.* usercustomize usercustomize.*"),
    ),
    Kind(
        "names programs that run at a commit",
        _words(
            ".husky .githooks .git-hooks .hooks .pre-commit-config.y*ml prek.toml lefthook.* "
            "lefthook-local.* .lefthook .lefthook.* .lefthook-local .lefthook-local.* .overcommit.yml "
            "hk.pkl hk.local.pkl lint-staged.config.* commitlint.config.* simple-git-hooks.* "
            ".simple-git-hooks.* .rusty-hook.toml captainhook.json .trunk"
        ),
    ),
    Kind(
        "package managers and language servers read for programs to run",
        _words(".cargo .mvn .yarn .pnp.* .pnpmfile.* .pdm-python .pdm.toml pylintrc .pylintrc.*"),
    ),
    # This list can never be complete. By custom a dot-file with this ending is such a file.
    Kind(
        "a program reads when it starts in the directory",
        _words(
            ".?*rc .?*rc.js .?*rc.cjs .?*rc.mjs .?*rc.ts .?*rc.json .?*rc.json5 .?*rc.y*ml .?*rc.toml "
            ".?*rc.local .?*rc.private .rprofile .ghci .iex.exs .ocamlinit .gdbinit .lldbinit .config"
        ),
    ),
    # They run nothing by themselves, but an agent that obeys them may.
    Kind(
        "agents obey as instructions",
        _words(
            "agents.md agents.*.md agent.md claude.md claude.*.md gemini.md gemini.*.md qwen.md crush.md "
            "crush.*.md codebuddy.md iflow.md warp.md .rules .cursorrules .windsurfrules .roorules "
            ".roorules-* .kilocoderules .kilocoderules-* .goosehints .augment-guidelines "
            ".openhands_instructions .aiassistant .github/copilot-instructions.md .github/instructions "
            ".github/prompts .github/agents .github/chatmodes .github/skills"
        ),
    ),
    # They run elsewhere, with the secrets of the repository.
    Kind(
        "a service runs after a push",
        _words(
            ".github/workflows .github/actions .gitea/workflows .gitea/actions .forgejo/workflows "
            ".forgejo/actions .gitlab-ci* .gitlab/ci .circleci azure-pipelines*.y*ml .azure-pipelines* "
            ".azuredevops .travis.y*ml jenkinsfile jenkinsfile.* *.jenkinsfile bitbucket-pipelines.y*ml "
            ".woodpecker .woodpecker.* .drone .drone.* .buildkite buildkite.y*ml .buildkite.* appveyor.y*ml "
            ".appveyor.y*ml .cirrus.* .semaphore .builds .build.y*ml .teamcity bamboo-specs .harness .tekton "
            "cloudbuild.y*ml buildspec.y*ml codefresh.y*ml .codefresh .zuul.y*ml .zuul.d .taskcluster.y*ml"
        ),
    ),
)
OF_GIT = KINDS[0]
# These make a directory an environment, whatever its name.
SIGNS = ("pyvenv.cfg", "conda-meta")
OF_PYTHON = next(kind for kind in KINDS if SIGNS[0] in kind.names)
OF_SELF = Kind("gramercy itself runs from", ())
INSTRUCTIONS, SERVICES = KINDS[-2:]
# A directory of an unknown program. The program may read it like those above.
UNKNOWN = Kind("a program may read for settings or programs to run", (".?*",))
# Dot-directories that tests, tools and services fill. Nothing in them runs by itself.
PLAIN = Kind(
    "",
    _words(
        ".*cache* .hypothesis .ipynb_checkpoints .coverage* .eggs .benchmarks .github .gitlab .gitea "
        ".forgejo .pytype .tmp .temp .trash* .data .next .nuxt .gradle .terraform .dvc .nyc_output .nfs* "
        ".ds_store"
    ),
)


class _Names:
    """The names of kinds, with a fast lookup: a walk needs it for every file of a project."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        pairs = [(name, kind) for kind in kinds for name in kind.names]
        self._plain = {name: kind for name, kind in pairs if not _WILD.search(name)}
        patterns = [(name, kind) for name, kind in pairs if _WILD.search(name)]
        # A name without any of these beginnings or endings is not compared with all patterns.
        self._begins = tuple({begin for name, _ in patterns if (begin := _WILD.split(name)[0])})
        self._ends = tuple({_WILD.split(name)[-1] for name, _ in patterns if not _WILD.split(name)[0]})
        self._patterns = [name for name, _ in patterns]
        self._owners = [kind for _, kind in patterns]

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        # Only a lookup of names needs it, and compiling takes a while: a server lists its tools before.
        return re.compile("|".join(f"({fnmatch.translate(name)})" for name in self._patterns))

    def find(self, folded: str) -> Kind | None:
        """Return the kind of a lower-case name."""
        found = self._plain.get(folded)
        if found is not None or not (folded.startswith(self._begins) or folded.endswith(self._ends)):
            return found
        match = self._expression.match(folded)
        return self._owners[(match.lastindex or 1) - 1] if match is not None else None


_WILD = re.compile(r"[*?]")
# Only at the end: otherwise a program may read the ending after it.
_ASIDE = re.compile(rf".*{re.escape(UNTRUSTED)}(?:-[0-9a-f]+)?")
_NAMES = _Names((PLAIN, *KINDS))
# The last parts of the two-part names.
_SECONDS = frozenset(name.rpartition("/")[2] for kind in KINDS for name in kind.names if "/" in name)


def kind_of(part: str, above: str = "") -> Kind | None:
    """Return the class of one part of a path below another, None where no known program reads it."""
    folded = part.casefold()
    found = _NAMES.find(folded)
    if found is INSTRUCTIONS and above and _is_page(part):
        found = None
    if found is None and folded in _SECONDS:
        found = _NAMES.find(f"{above.casefold()}/{folded}")
    return None if found is None or found is PLAIN or _ASIDE.fullmatch(folded) else found


def _is_page(part: str) -> bool:
    """Return whether a name of instructions is in lower case, like `docs/agents.md`: below the top, a page.

    Agents look for AGENTS.md in capital letters everywhere, and for other spellings only where they start.
    """
    return part.islower() and not part.startswith(".")


def is_unknown_directory(part: str) -> bool:
    """Return whether a dot-directory belongs to no known program."""
    is_named = UNTRUSTED in part or _NAMES.find(part.casefold()) is not None
    return len(part) > 1 and part.startswith(".") and part != ".." and not is_named


def reader_of(name: str) -> str:
    """Describe who reads a file for something to do, by its real name relative to the project. Else "".

    The phrase follows the name: ".envrc, which a shell reads when it enters the directory".
    """
    parts = name.split("/")
    for part, above in zip(parts, ("", *parts), strict=False):
        kind = kind_of(part, above)
        if kind is not None:
            return kind.reader
    return ""
