"""Loading the modules of the user's own project into a Python image, and loading them again after an edit."""

# ruff: noqa: E501 - the forms are data, and read best on one line

import os
import py_compile
from contextlib import closing
from pathlib import Path

import pytest

from tests.images import children


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Return one family for all tests of this file."""
    with closing(children.Family(tmp_path_factory.mktemp("python"), "python")) as family:
        yield family


@pytest.fixture
def live(family, tmp_path):
    """Return a fresh process that imports from the test's own directory."""
    live = family.live()
    live.eval(f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    return live


def write(file, text, second=1_700_000_000):
    """Write a file in a second that is the same for all edits."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    os.utime(file, (second, second))


def load(live, name):
    reply = live.ask("load_system", system=name)
    assert reply["ok"], reply["error"]
    return reply


def test_a_changed_module_is_loaded_again(live, tmp_path):
    """The user's own program: `load_system` said "Loaded" and did nothing."""
    write(tmp_path / "shape.py", "def area(): return 1\n")
    assert "reloaded" not in load(live, "shape")
    live.eval("import shape; kept = shape")
    # The same size within the same second: what is compiled already looks up to date.
    write(tmp_path / "shape.py", "def area(): return 2\n")
    reply = load(live, "shape")
    assert reply["reloaded"] == ["shape"]
    assert {"kind": "function", "name": "shape.area", "change": "redefined"} in reply["changed"]
    assert live.value("shape.area(), kept is shape") == "(2, True)"
    assert "reloaded" not in load(live, "shape")


def test_modules_are_loaded_again_in_the_order_of_their_imports(live, tmp_path):
    """What imports a changed module holds its old functions, unless it is loaded after it."""
    write(tmp_path / "app/__init__.py", "from .views import show\n")
    write(
        tmp_path / "app/views.py",
        "from .base import number\nfrom . import unused\ndef show(): return number()\n",
    )
    write(tmp_path / "app/base.py", "def number(): return 1\n")
    write(tmp_path / "app/unused.py", "import itertools\ncount = itertools.count()\n")
    write(tmp_path / "user_of_app.py", "from app.views import show\n")
    load(live, "app")
    load(live, "user_of_app")
    assert live.value("import app, user_of_app\nuser_of_app.show()") == "1"
    write(tmp_path / "app/base.py", "def number(): return 7\n")
    assert load(live, "app")["reloaded"] == ["app.base", "app.views", "app", "user_of_app"]
    assert live.value("app.show(), user_of_app.show()") == "(7, 7)"


def test_a_system_is_loaded_again_for_the_sake_of_what_it_imports(live, tmp_path):
    """A change below the named module counts, one beside it does not."""
    write(tmp_path / "low_module.py", "n = 1\n")
    write(tmp_path / "top_module.py", "import low_module\n")
    write(tmp_path / "other_module.py", "n = 1\n")
    for name in ("top_module", "other_module"):
        load(live, name)
    write(tmp_path / "low_module.py", "n = 2\n")
    write(tmp_path / "other_module.py", "n = 2\n")
    assert load(live, "top_module")["reloaded"] == ["low_module", "top_module"]
    assert load(live, "other_module")["reloaded"] == ["other_module"]


def test_changed_modules_that_a_system_does_not_use_are_named(live, tmp_path):
    """Such as its tests, which would otherwise run as they were without a word."""
    write(tmp_path / "shape.py", "def area(): return 1\n")
    write(tmp_path / "trial.py", "import shape\ndef passes(): return shape.area() == 1\n")
    live.eval("import trial")
    assert "notes" not in load(live, "shape")
    write(tmp_path / "trial.py", "import shape\ndef passes(): return shape.area() == 2\n")
    reply = load(live, "shape")
    assert "reloaded" not in reply
    assert reply["notes"] == ["Not concerned, but their files have changed too: trial. Load them by name."]
    assert load(live, "trial")["reloaded"] == ["trial"]
    assert live.value("trial.passes()") == "False"
    assert "notes" not in load(live, "shape")


def test_a_module_that_was_imported_by_evaluated_code_is_loaded_again_too(live, tmp_path):
    """It does not matter how it came to be loaded."""
    write(tmp_path / "by_hand.py", "n = 1\n")
    live.eval("import by_hand")
    write(tmp_path / "by_hand.py", "n = 2\n")
    assert load(live, "by-hand")["reloaded"] == ["by_hand"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("def f(): return 2\n1 / 0\n", "ZeroDivisionError"), ("def f():\n  x = (\n", "SyntaxError")],
)
def test_what_fails_leaves_the_old_module_in_place(live, tmp_path, text, kind):
    """Half a module would be worse than the old one."""
    write(tmp_path / "lower.py", "n = 1\n")
    write(tmp_path / "fragile.py", "from lower import n\ndef f(): return n\n")
    load(live, "fragile")
    write(tmp_path / "lower.py", "n = 2\n")
    write(tmp_path / "fragile.py", f"from lower import n\n{text}")
    reply = live.ask("load_system", system="fragile")
    error = reply["error"]
    assert error["type"] == kind
    if kind == "SyntaxError":
        assert (error["file"], error["line"], error["backtrace"]) == (str(tmp_path / "fragile.py"), 3, [])
    else:
        assert error["backtrace"] == [f"0: <module> at {tmp_path / 'fragile.py'}:3: 1 / 0"]
    assert "reloaded" not in reply
    assert live.value("import fragile, lower\nfragile.f(), lower.n") == "(1, 1)"
    write(tmp_path / "fragile.py", "from lower import n\ndef f(): return n * 10\n")
    assert load(live, "fragile")["reloaded"] == ["lower", "fragile"]
    assert live.value("fragile.f()") == "20"


def test_a_reload_tells_what_it_cannot_do(live, tmp_path):
    """Objects keep their class, and names what they were bound to."""
    write(tmp_path / "models.py", "class User:\n    n = 1\ndef make(): return User()\ndef gone(): pass\n")
    live.eval("from models import make, User\nu = User()")
    write(tmp_path / "models.py", "class User:\n    n = 2\ndef make(): return User()\n")
    assert load(live, "models")["notes"] == [
        "Objects made before keep their old class: User.",
        "Still the old ones in __main__: User, make. Import them again.",
        "No longer in the source, but still defined: models.gone.",
    ]


def test_a_warning_of_an_imported_module_has_its_file_and_line(live, tmp_path):
    """The line is one of the file, not of the call."""
    file = tmp_path / "warns.py"
    write(file, "import warnings\n\nwarnings.warn('careful')\n")
    for _time in range(2):
        (notice,) = live.ask("load_system", system="warns")["warnings"]
        assert (notice["file"], notice["line"], notice["message"]) == (str(file), 3, "careful")
        assert notice["form"] == "warnings.warn('careful')"
        write(file, f"import warnings\n\nwarnings.warn('careful')\n# {_time}\n")


def test_a_missing_dependency_is_told_with_the_module_that_wants_it(live, tmp_path):
    """Which of the many modules it was is half the answer."""
    write(tmp_path / "outer_part.py", "import inner_part\n")
    write(tmp_path / "inner_part.py", "x = 1\nimport no_such_dependency\n")
    error = live.ask("load_system", system="outer_part")["error"]
    assert error["message"] == (
        f"No module named 'no_such_dependency'\nIt is wanted by inner_part ({tmp_path / 'inner_part.py'}:2)."
    )


@pytest.mark.parametrize("listing", ["top_level.txt", "RECORD"])
def test_a_distribution_is_found_by_its_own_name(live, tmp_path, listing):
    """`python-dateutil` is imported as dateutil."""
    home = tmp_path / "python_sundial-1.5.dist-info"
    write(tmp_path / "sundial/__init__.py", "")
    write(home / "METADATA", "Metadata-Version: 2.1\nName: python-sundial\nVersion: 1.5\n")
    write(
        home / listing,
        "sundial\n"
        if listing == "top_level.txt"
        else "sundial/__init__.py,,\npython_sundial-1.5.dist-info/METADATA,,\n",
    )
    reply = load(live, "python-sundial")
    assert (reply["name"], reply["version"]) == ("sundial", "1.5")
    assert reply["notes"] == ["python-sundial is imported as sundial."]


def test_a_compiled_file_that_is_older_than_its_source_does_not_win(live, tmp_path):
    """The import system knows the second of an edit and no more."""
    file, second = tmp_path / "twice_edited.py", 1_700_000_000_000_000_000
    write(file, "n = 1\n")
    compiled = Path(py_compile.compile(str(file), doraise=True) or "")
    os.utime(compiled, ns=(second, second + 300_000_000))
    write(file, "n = 2\n")
    os.utime(file, ns=(second, second + 600_000_000))
    load(live, "twice_edited")
    assert live.value("import twice_edited\ntwice_edited.n") == "2"


def test_a_distribution_is_loaded_again_by_its_own_name(live, tmp_path):
    """The name that was asked for is not the one that is loaded."""
    write(tmp_path / "moondial.py", "n = 1\n")
    write(
        tmp_path / "python_moondial-1.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: python-moondial\nVersion: 1\n",
    )
    write(tmp_path / "python_moondial-1.dist-info/RECORD", "moondial.py,,\n")
    load(live, "python-moondial")
    write(tmp_path / "moondial.py", "n = 2\n")
    assert load(live, "python-moondial")["reloaded"] == ["moondial"]


def test_a_new_file_in_a_directory_that_was_read_this_second_is_found(live, tmp_path):
    """The import system trusts the clock of the directory."""
    write(tmp_path / "early_module.py", "")
    os.utime(tmp_path, (1_700_000_000, 1_700_000_000))
    load(live, "early_module")
    write(tmp_path / "late_module.py", "")
    os.utime(tmp_path, (1_700_000_000, 1_700_000_000))
    assert load(live, "late_module")["name"] == "late_module"


def test_a_file_written_during_the_call_that_imports_it_counts_as_changed(live, tmp_path):
    """It cannot be known which of its contents was read."""
    file = tmp_path / "racing.py"
    live.eval(
        f"import pathlib\nf = pathlib.Path({str(file)!r})\nf.write_text('n = 1')\nimport racing\nf.write_text('n = 2')"
    )
    assert load(live, "racing")["reloaded"] == ["racing"]
    assert live.value("racing.n") == "2"


HOOK = """
import importlib, importlib.abc, importlib.util
class Hook(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        file = f'{sys.path[0]}/{name}.py'
        return importlib.util.spec_from_file_location(name, file, loader=self) if name == 'trial' else None
    def exec_module(self, module):
        exec(open(module.__file__).read().replace('plain', 'hooked'), vars(module))
def run():
    sys.meta_path.insert(0, hook)
    importlib.import_module('trial')
    sys.meta_path.remove(hook)
    return sys.modules['trial'].how
hook = Hook()
"""


def test_modules_of_an_import_hook_that_is_gone_are_let_go(live, tmp_path):
    """Otherwise a second run of pytest has the tests as they were, or without its way with assertions."""
    write(tmp_path / "trial.py", "how = 'plain'\n")
    live.eval(HOOK)
    assert live.value("run()") == "'hooked'"
    assert live.value("'trial' in sys.modules") == "False"
    write(tmp_path / "trial.py", "how = 'plain, edited'\n")
    assert live.value("run()") == "'hooked, edited'"
    # What is imported in the ordinary way stays, and so does what a living hook has made.
    assert live.value("import trial; trial.how") == "'plain, edited'"
    assert live.value("'trial' in sys.modules") == "True"
    live.eval("del sys.modules['trial']; sys.meta_path.insert(0, hook); import trial")
    assert live.value("sys.modules['trial'].how") == "'hooked, edited'"


@pytest.mark.parametrize(
    "code",
    [
        "import xml.parsers.expat",
        "import sys, types; sys.modules['_cython_3_9_9'] = types.ModuleType('_cython_3_9_9')",
        "import sys; sys.modules['__mp_main__'] = sys.modules['__main__']",
    ],
)
def test_modules_that_compiled_libraries_make_are_not_the_users(live, code):
    """The definitions of a session with pandas began with a page of what Cython keeps to itself."""
    kinds = {change["kind"] for change in live.eval(code).get("changed", ())}
    assert kinds <= {"import"}
    own = live.eval("import sys, types; sys.modules['mine'] = types.ModuleType('mine')")["changed"]
    assert {"kind": "module", "name": "mine", "change": "defined"} in own
