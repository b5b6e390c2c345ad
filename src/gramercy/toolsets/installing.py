"""The tool that installs packages for an image, by a command that a person sees before it runs."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from gramercy.tools.content import ToolOutput
from gramercy.tools.context import current_call
from gramercy.tools.effects import Effect
from gramercy.toolsets.factory import Quiet

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.image import Image
    from gramercy.images.installing import Installed
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.workspace import Workspace

# Large packages are downloaded for minutes. Lisp systems are compiled too.
SECONDS = 600.0
# Characters of the command's output, when it failed.
LONGEST_TAIL = 3_000
LONGEST_MESSAGE = 200
# The success messages of installers: pip prints one line, uv a line for each package.
_PIP = re.compile(r"^Successfully installed (.+)$", re.MULTILINE)
_UV = re.compile(r"^ \+ (\S+)$", re.MULTILINE)
AT_ONCE = {
    "python": "The image can import what is new at once; what it had imported before stays as it was until "
    "reset-session.",
    "sbcl": "load-system loads it into the image.",
}


def installing_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tool."""
    del workspace
    return [
        workshop.make(
            "install_packages",
            "Install packages into the project's environment, with pip or uv (Python) or Quicklisp (Lisp). "
            "Runs outside of the sandbox; a person sees the exact command and decides.",
            {
                "packages": {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "minItems": 1,
                    "description": "Names, for Python with versions if needed: requests, flask>=3",
                }
            },
            _install,
            run_async=_installing,
            effect=_effect,
            required=["packages"],
            level="dangerous",
            categories=["execution"],
            title="Install packages",
            target=lambda image, a: image.installation(a["packages"]).shown,
            destructive=True,
            open_world=True,
        )
    ]


def _effect(image: Image, arguments: dict[str, Any]) -> Effect:
    """Show a person the command."""
    installation = image.installation(arguments["packages"])
    return Effect(
        note=f"Runs outside of the sandbox, with your rights and network, and changes {installation.place}:\n"
        f"{installation.shown}\nWhat is installed may run code of its own while it is.",
        state=installation.shown,
    )


def _install(image: Image, arguments: dict[str, Any]) -> Any:
    installation = image.installation(arguments["packages"])
    return _told(image, installation.shown, installation.run(SECONDS))


async def _installing(image: Image, arguments: dict[str, Any]) -> Any:
    from gramercy.images.runner import on_a_thread

    installation = image.installation(arguments["packages"])
    work = partial(installation.run, SECONDS, _reporter())
    return _told(image, installation.shown, await on_a_thread(work, installation.cancel))


def _reporter() -> Callable[[float, str], None]:
    report, quiet = current_call().report, Quiet()

    def tell(seconds: float, line: str) -> None:
        if quiet.is_news(line, seconds):
            report(round(seconds, 1), message=line[:LONGEST_MESSAGE] or f"running for {seconds:.0f} s")

    return tell


def _told(image: Image, shown: str, done: Installed) -> Any:
    printed = "\n".join(done.lines)
    if done.status != 0:
        why = (
            f"ended with status {done.status}" if done.status is not None else "was ended before it was done"
        )
        return ToolOutput(None, error=f"The command {why}: {shown}\n\n{printed[-LONGEST_TAIL:]}")
    names = " ".join(_PIP.findall(printed)).split() or _UV.findall(printed)
    if names:
        listed = ", ".join(name.replace("==", " ") if "==" in name else _spaced(name) for name in names)
        return f"Installed in {done.seconds:.1f} s: {listed}\n{AT_ONCE.get(image.language, '')}"
    if image.language == "sbcl":
        return f"Done in {done.seconds:.1f} s.\n{printed[-LONGEST_MESSAGE:]}\n{AT_ONCE['sbcl']}"
    return f"Everything was there already.\n{printed[-LONGEST_TAIL:]}"


def _spaced(word: str) -> str:
    """Format name-1.2.3, as pip prints it, as name 1.2.3."""
    name, _, version = word.rpartition("-")
    return f"{name} {version}" if name else word
