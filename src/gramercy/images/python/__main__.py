"""Load the image's modules under a private name and start the zygote.

The modules get their own copy of the builtins and leave `sys.modules` before user code exists, so that
evaluated code which patches `builtins` or empties `sys.modules` does not break the server.
"""

import builtins
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import ClassVar

NAME = "_gramercy_image"
HOME = __file__.rpartition("/")[0] or "."


class PrivateLoader(SourceFileLoader):
    """Run a module's code with a private copy of the builtins."""

    # Beside the classes of the user's `__main__` it must not look like one of them.
    __module__ = NAME
    private: ClassVar = dict(vars(builtins))

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its builtins, then run it."""
        vars(module)["__builtins__"] = self.private
        super().exec_module(module)


class PrivateFinder:
    """Find the image's modules next to this file, without a place on `sys.path`."""

    __module__ = NAME

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return where the module is when it is one of ours."""
        if name != NAME and not name.startswith(NAME + "."):
            return None
        leaf = name.partition(".")[2] or "__init__"
        file = f"{HOME}/{leaf}.py"
        places = [HOME] if name == NAME else None
        loader = PrivateLoader(name, file)
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=places)


def start(arguments: list[str]) -> None:
    """Say hello first, then load the rest, hide the traces and serve."""
    finder = PrivateFinder()
    sys.meta_path.insert(0, finder)
    protocol = import_module(f"{NAME}.protocol")
    options = protocol.read_options(arguments)
    connection = protocol.Connection(options.connection)
    protocol.greet(connection, "zygote")
    server = import_module(f"{NAME}.server")
    sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]
    server.serve(options, connection)


if __name__ == "__main__":
    start(sys.argv[1:])
