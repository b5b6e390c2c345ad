"""Make installed packages visible and import them on request."""

import importlib
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from .evaluation import Run
from .names import near
from .requests import Request, RequestError, text
from .session import Reply, Session

_import = importlib.import_module
# Directories that the environment leads to and that the user has not granted.
not_granted: list[str] = []


def add_path(directory: str) -> None:
    """Put a directory on the import path, and the directories its .pth files name.

    Lines of code in .pth files are not run: the zygote never runs code of the user's.
    """
    home = Path(directory).absolute()
    _append(home)
    for file in sorted(home.glob("*.pth")):
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines:
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                _append(home / line.strip())


def _append(directory: Path) -> None:
    if str(directory) not in sys.path and directory.is_dir():
        sys.path.append(str(directory))


def load_system(session: Session, request: Request) -> Reply:
    """Import a module and say which version it is."""
    name = text(request, "system").strip()
    if not name or any(not part.isidentifier() for part in name.replace("-", "_").split(".")):
        raise RequestError("ModuleNotFoundError", f"'{name[:100]}' is not the name of a module.")
    module_name = name.replace("-", "_")
    outcome: dict[str, object] = {}

    def work(_run: Run) -> None:
        outcome["module"] = _import(module_name)

    reply, _run = session.perform(work, session.main, request)
    reply.pop("forms")
    reply["name"], reply["version"] = module_name, None
    if reply["ok"]:
        reply["version"] = _version(module_name, outcome.get("module"))
    else:
        _suggest(reply, module_name)
    return reply


def _version(name: str, module: object) -> str | None:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "{}.{}.{}".format(*sys.version_info)
    try:
        # Loads the e-mail package, among others: 25 ms that a start should not pay.
        from importlib import metadata

        try:
            return metadata.version(top)
        except metadata.PackageNotFoundError:
            for distribution in metadata.packages_distributions().get(top, ()):
                return metadata.version(distribution)
    except Exception:  # noqa: BLE001, S110 - broken metadata is no reason to fail an import that worked
        pass
    found = vars(module).get("__version__") if type(module) is ModuleType else None
    return found if type(found) is str else None


def hint_at_outside(reply: Reply) -> None:
    """Tell, where a module was not found, which directories of the environment are not granted."""
    error = reply.get("error")
    if not not_granted or type(error) is not dict or error.get("type") != "ModuleNotFoundError":
        return
    listed = ", ".join(not_granted)
    error["message"] = (
        f"{error.get('message')}. Editable installs of the environment lead to {listed}, outside of the "
        f"project: if it is there, open the image with --path {not_granted[0]}."
    )


def _suggest(reply: Reply, name: str) -> None:
    error = reply.get("error")
    if type(error) is dict and error.get("type") == "ModuleNotFoundError":
        hint_at_outside(reply)
        known = {entry.name for entry in pkgutil.iter_modules()} | set(sys.stdlib_module_names)
        error["suggestions"] = near(name.partition(".")[0], known)
