"""Edited files of a living Python image: held objects get the new code, and the reply says what was done."""

import os
from contextlib import closing
from itertools import count
from pathlib import Path
from textwrap import dedent
from time import time

import pytest

from gramercy.images.environment import Environment, Reload
from gramercy.images.opening import open_image
from gramercy.images.suites import WantedTests
from tests.images.edits import EDITS

_numbers = count()


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    project = tmp_path_factory.mktemp("edited")
    with closing(open_image("python", name="edited", project=project)) as image:
        yield Desk(image, project)


class Desk:
    """An image and the files of its project."""

    def __init__(self, image, project):
        self.image, self.project = image, project

    def write(self, name, text):
        file = self.project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())

    def load(self, text, hold=""):
        """Write a module of a new name, import it as `m`, and return its name."""
        name = f"mod{next(_numbers)}"
        self.write(f"{name}.py", text)
        reply = self.image.evaluate(f"import {name} as m\n{hold}")
        assert reply.error is None, reply.error
        return name

    def evaluate(self, code):
        """Return the value and what was said."""
        reply = self.image.evaluate(code)
        assert reply.error is None, reply.error
        return reply.values[-1] if reply.values else None, " ".join(reply.notes)


@pytest.mark.contract("day.reload.auto.held")
@pytest.mark.parametrize("case", EDITS, ids=lambda case: case.name)
def test_what_is_held_does_what_the_edited_file_says(desk, case):
    """An agent edits a file and calls a function: routes, registries, instances must not stay old."""
    name = desk.load(case.before, case.hold)
    desk.write(f"{name}.py", case.after)
    value, notes = desk.evaluate(case.check)
    assert value == case.value, notes
    assert [word for word in case.told if word not in notes] == [], notes
    assert [word for word in case.unsaid if word in notes] == [], notes


@pytest.mark.contract("day.reload.auto.failure")
def test_an_edit_that_fails_leaves_nothing_behind(desk):
    """Names can be put back, effects cannot: the kept state comes back, files included, and the call runs."""
    name = desk.load("STATE = []\ndef f(): return 1\n", "m.STATE.append('mine'); h = m.f")
    more = "STATE.append('x')\nopen('left.txt', 'w').write('x')\nboom\n"
    desk.write(f"{name}.py", f"STATE = []\ndef f(): return 2\n{more}")
    value, notes = desk.evaluate("h(), m.STATE, m.f()")
    assert value == "(1, ['mine'], 1)"
    place = f"{name}.py:5: NameError: name 'boom' is not defined"
    assert notes == f"The module stays as it was: {place}; nothing was taken up"
    assert not (desk.project / "left.txt").exists()
    # A lasting condition is said once, and the same text is not run again.
    assert desk.evaluate("h(), m.STATE") == ("(1, ['mine'])", "")
    desk.write(f"{name}.py", "STATE = []\ndef f(): return 3\n")
    assert desk.evaluate("h(), m.STATE") == ("(3, ['mine'])", f"took up {name}.py: f")


@pytest.mark.contract("day.reload.auto.failure")
def test_a_text_that_is_no_python_is_told_with_its_line(desk):
    """A person saves in the middle of a thought."""
    name = desk.load("def f():\n    return 1\n", "h = m.f")
    desk.write(f"{name}.py", "def f():\n    return (\n")
    value, notes = desk.evaluate("h()")
    assert (value, notes.partition(": SyntaxError")[0]) == ("1", f"The module stays as it was: {name}.py:2")


@pytest.mark.contract("day.reload.auto.several")
def test_several_files_are_taken_up_together_or_not_at_all(desk):
    """A commit over several files is one edit."""
    desk.write("low.py", "LIMIT = 1\ndef f(): return LIMIT\n")
    desk.write("top.py", "from low import LIMIT, f\nTWICE = LIMIT * 2\ndef g(): return f() + LIMIT\n")
    desk.evaluate("import top, low; g = top.g")
    desk.write("low.py", "LIMIT = 5\ndef f(): return -LIMIT\n")
    desk.write(
        "top.py",
        "from low import LIMIT, f\nTWICE = LIMIT * 2\ndef g(): return f() + LIMIT + boom()\nboom()\n",
    )
    assert desk.evaluate("g(), low.f(), low.LIMIT")[0] == "(2, 1, 1)"
    desk.write("top.py", "from low import LIMIT, f\nTWICE = LIMIT * 2\ndef g(): return f() + LIMIT + 100\n")
    value, notes = desk.evaluate("g(), low.f(), top.TWICE")
    assert value == "(100, -5, 2)"
    assert notes.startswith("took up low.py: f; ran line 1; top.py:2 reads LIMIT and did not run again")
    assert "top.py: g" in notes


def test_a_file_that_is_loaded_under_two_names_is_taken_up_for_both(desk):
    """`pkg.mod` and `mod` on the path."""
    desk.write("pkg/__init__.py", "")
    desk.write("pkg/two.py", "def f(): return 1\n")
    desk.evaluate("import sys, pkg.two; sys.path.append('pkg'); import two; h, k = pkg.two.f, two.f")
    desk.write("pkg/two.py", "def f(): return 2\n")
    value, notes = desk.evaluate("h(), k(), h is k")
    assert value == "(2, 2, False)"
    assert "keeps" not in notes


@pytest.mark.contract("day.reload.auto.threads")
def test_beside_a_thread_only_what_needs_no_return_is_taken_up(tmp_path):
    """Where no state can be kept, a statement with effects is not run: told, never half."""
    with closing(open_image("python", name="threads", project=tmp_path)) as image:
        desk = Desk(image, tmp_path)
        wait = "import threading; e = threading.Event(); t = threading.Thread(target=e.wait); t.start()"
        name = desk.load("N = 1\ndef f(): return N\n", f"h = m.f\n{wait}")
        desk.write(f"{name}.py", "N = 2\ndef f(): return -N\n")
        value, notes = desk.evaluate("h()")
        assert (value, notes.partition(" No state")[0]) == ("-2", f"took up {name}.py: f; ran line 1")
        desk.write(f"{name}.py", "N = 2\ndef f(): return 7\nprint('hello')\n")
        value, notes = desk.evaluate("h()")
        assert value == "-2"
        assert f"changed since it was loaded: {name}.py: f; {name}.py:3 would run" in notes
        assert "changed since" not in desk.evaluate("h()")[1]
        desk.evaluate("e.set(); t.join()")
        desk.evaluate("0")
        assert desk.evaluate("h()")[0] == "7"


@pytest.mark.contract("day.reload.tell")
def test_an_image_that_only_tells_names_what_changed_and_runs_the_old_code(tmp_path):
    """--reload tell: for a person who wants to decide."""
    environment = Environment(reload=Reload.TELL)
    with closing(open_image("python", name="tell", project=tmp_path, environment=environment)) as image:
        desk = Desk(image, tmp_path)
        name = desk.load("def f(): return 1\nclass A:\n    def g(self): return 1\n", "h = m.f")
        desk.write(f"{name}.py", "def f(): return 2\nclass A:\n    def g(self): return 2\n")
        told = f"changed since it was loaded: {name}.py: f, A.g; the old code runs"
        assert desk.evaluate("h()") == ("1", told)
        assert desk.evaluate("h()") == ("1", "")
        taken = image.load_system(str(tmp_path / f"{name}.py"), take_up=True)
        assert taken.notes == [f"took up {name}.py: f, A.g"]
        assert desk.evaluate("h()") == ("2", "")


@pytest.mark.contract("day.reload.off")
def test_an_image_with_reload_off_leaves_files_alone(tmp_path):
    """--reload off: as Python does."""
    environment = Environment(reload=Reload.OFF)
    with closing(open_image("python", name="off", project=tmp_path, environment=environment)) as image:
        desk = Desk(image, tmp_path)
        name = desk.load("def f(): return 1\n", "h = m.f")
        desk.write(f"{name}.py", "def f(): return 2\n")
        assert desk.evaluate("h()") == ("1", "")


@pytest.mark.contract("day.reload.states")
def test_a_state_that_comes_back_takes_up_what_was_edited_since(desk):
    """The queue of the kernel belongs to the process that was left: the copy looks for itself."""
    name = desk.load("def f(): return 1\n", "h = m.f")
    desk.evaluate("x = 1")
    desk.write(f"{name}.py", "def f(): return 2\n")
    assert desk.evaluate("h()")[0] == "2"
    desk.image.undo()
    assert desk.evaluate("h()") == ("2", f"took up {name}.py: f")
    desk.write(f"{name}.py", "def f(): return 3\n")
    desk.evaluate("y = 1")
    desk.write(f"{name}.py", "def f(): return 4\n")
    assert desk.evaluate("h()") == ("4", f"took up {name}.py: f")


@pytest.mark.contract("day.reload.states")
def test_a_preview_runs_the_edited_code(desk):
    """What is tried must be what the call would do."""
    name = desk.load("def f(): return 1\n", "h = m.f")
    desk.write(f"{name}.py", "def f(): return 2\n")
    assert desk.image.preview("h()").values == ["2"]
    desk.write(f"{name}.py", "def f(): return 3\nboom()\n")
    reply = desk.image.preview("h()")
    assert reply.values == ["1"]
    assert f"{name}.py:2: NameError" in " ".join(reply.notes)


@pytest.mark.contract("day.reload.text")
def test_a_backtrace_shows_the_text_that_ran_before_and_after_an_edit(desk):
    """Lines of a file that was edited since would show what never ran."""
    name = desk.load("def f():\n    return 1 / 0\n")
    saved = "import traceback\ntry:\n    m.f()\nexcept ZeroDivisionError as error:\n    kept = error"
    desk.evaluate(saved)
    desk.write(f"{name}.py", "# one\n# two\ndef f():\n    return 2 / 0\n")
    reply = desk.image.evaluate("m.f()")
    assert reply.error.backtrace[0].endswith(f"{name}.py:4: return 2 / 0")
    reply = desk.image.evaluate("raise kept")
    assert reply.error.backtrace[0].endswith(f"{name}.py:2: return 1 / 0")


@pytest.mark.contract("day.reload.back")
@pytest.mark.parametrize("way", ["undo", "death"])
def test_going_back_leaves_edits_to_the_next_call(desk, way):
    """What was looked at in a state is evaluated there again, for `_`; that takes no edit up in silence."""
    name = desk.load("RATE = 2\n")
    desk.evaluate("m.RATE")
    if way == "undo":
        desk.evaluate("kept = 1")
        desk.write(f"{name}.py", "RATE = 9\n")
        desk.image.undo()
    else:
        desk.write(f"{name}.py", "RATE = 9\n")
        assert desk.image.evaluate("import os; os._exit(1)").error.type == "IMAGE-DIED"
    assert "Value: 2" in desk.image.ask("describe", symbol=f"{name}.RATE").text.splitlines()
    assert desk.evaluate("m.RATE") == ("9", f"took up {name}.py: ran line 1")


@pytest.mark.contract("day.reload.text")
def test_code_that_keeps_the_old_text_has_a_file_name_of_its_own(desk):
    """Tracebacks and inspect read by file name: old code must not show new lines."""
    name = desk.load(
        "def maker(n):\n    def inner(x):\n        return x + n\n    return inner\n", "h = m.maker(1)"
    )
    text = "def maker(n):\n    k = 1\n    def inner(x):\n        return x + n + k\n    return inner\n"
    desk.write(f"{name}.py", text)
    value, notes = desk.evaluate("import inspect; inspect.getsource(h), h.__code__.co_filename[-2:], h(1)")
    assert value == "('    def inner(x):\\n        return x + n\\n', '@0', 2)"
    assert "a living maker.<locals>.inner keeps the old code" in notes
    reply = desk.image.evaluate("h('')")
    assert f"{name}.py@0:3: return x + n" in reply.error.backtrace[0]


def test_a_class_that_stayed_as_it_was_stays_so_as_a_unit(desk):
    """Methods of the new text would run on objects without its fields."""
    head = "import dataclasses\n@dataclasses.dataclass\n"
    text = f"{head}class A:\n    x: int = 1\n    def f(self): return self.x\n"
    newer = text.replace("x: int = 1", "x: int = 1\n    y: int = 2").replace("return self.x", "return self.y")
    name = desk.load(text, "a = m.A()")
    desk.write(f"{name}.py", newer)
    told = f"took up nothing of {name}.py: A stays as it was (line 5 is read by its decorators"
    assert desk.evaluate("a.f()") == ("1", f"{told} when the class is made)")
    desk.write(f"{name}.py", newer + "def g(): return 1\n")
    assert desk.evaluate("a.f(), m.g()") == ("(1, 1)", f"took up {name}.py: g")
    desk.write(f"{name}.py", text.replace("return self.x", "return self.x + 10"))
    assert "still of an older text" in desk.evaluate("a.f()")[1]
    desk.write(f"{name}.py", text)
    desk.evaluate("0")
    desk.write(f"{name}.py", text.replace("return self.x", "return self.x + 20"))
    assert desk.evaluate("a.f()") == ("21", f"took up {name}.py: A.f")


def test_an_edit_that_is_undone_in_the_file_is_undone_in_the_image(desk):
    """A checkout of git, or undo of the editing tool."""
    name = desk.load("def f(x): return x\n", "h = m.f")
    desk.write(f"{name}.py", "def f(x, y=1): return x + y\n")
    assert desk.evaluate("h(1)")[0] == "2"
    desk.write(f"{name}.py", "def f(x): return x\n")
    assert desk.evaluate("h(1), h.__defaults__")[0] == "(1, None)"


def test_a_file_that_is_written_twice_within_a_tick_of_the_clock_is_seen(desk):
    """Same size, same time: the content decides."""
    name = desk.load("def f(): return 1\n", "h = m.f")
    for number in range(2, 12):
        desk.write(f"{name}.py", f"def f(): return {number % 10}\n")
        assert desk.evaluate("h()")[0] == str(number % 10)


def test_files_of_installed_packages_are_not_followed(tmp_path):
    """The standard library and site-packages are no work of the user's."""
    project, packages = tmp_path / "project", tmp_path / "site-packages"
    project.mkdir()
    packages.mkdir()
    file = packages / "vendored.py"
    file.write_text("def f(): return 1\n")
    environment = Environment(paths=(packages,))
    with closing(open_image("python", name="packages", project=project, environment=environment)) as image:
        assert image.evaluate("import vendored; vendored.f()").values == ["1"]
        file.write_text("def f(): return 2\n")
        assert image.evaluate("vendored.f()").values == ["1"]


def test_a_module_that_was_compiled_from_an_older_text_is_loaded_from_its_file(desk):
    """A compiled file knows the second and the size of its source, and no more."""
    second = int(time()) + 100
    for number in (1, 2):
        desk.write("quick.py", f"def f(): return {number}\n")
        os.utime(desk.project / "quick.py", (second, second + number / 10))
        with closing(open_image("python", name="later", project=desk.project)) as image:
            assert image.evaluate("import quick; quick.f()").values == [str(number)]


@pytest.mark.slow
@pytest.mark.contract("day.reload.auto.held")
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_same_edits_hold_on_other_pythons(tmp_path, version):
    """Since 3.12 code depends on imports around it, since 3.13 classes know their lines."""
    places = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    if not places:
        pytest.skip(f"no Python {version} here")
    environment = Environment(python=str(places[0]))
    with closing(open_image("python", name="other", project=tmp_path, environment=environment)) as image:
        desk = Desk(image, tmp_path)
        wrong = []
        for case in EDITS:
            name = desk.load(case.before, case.hold)
            desk.write(f"{name}.py", case.after)
            value, notes = desk.evaluate(case.check)
            missing = [word for word in case.told if word not in notes]
            extra = [word for word in case.unsaid if word in notes]
            if value != case.value or missing or extra:
                wrong.append((case.name, value, notes))
        assert wrong == []


@pytest.mark.contract("day.reload.states")
def test_tests_in_a_copy_of_the_image_run_the_edited_code(tmp_path):
    """run_tests in_image: green of the old code would be a lie."""
    with closing(open_image("python", name="suite", project=tmp_path)) as image:
        desk = Desk(image, tmp_path)
        desk.write("shop.py", "def price(): return 1\n")
        case = "import shop, unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        "
        desk.write("test_shop.py", f"{case}self.assertEqual(shop.price(), 1)\n")
        desk.evaluate("import shop")
        wanted = WantedTests(framework="unittest", in_image=True)
        assert image.run_tests(wanted).counts == {"passed": 1}
        desk.write("shop.py", "def price(): return 2\n")
        run = image.run_tests(wanted)
        assert run.counts == {"failed": 1}
        assert "took up shop.py: price" in run.notes
        desk.write("shop.py", "def price(): return 3\nboom()\n")
        run = image.run_tests(wanted)
        assert run.fault is not None
        assert "shop.py:2: NameError" in run.fault.message


def test_edits_are_seen_after_code_has_closed_the_queue_of_the_kernel(desk):
    """Then each look asks the files themselves."""
    name = desk.load("def f(): return 1\n", "h = m.f")
    desk.evaluate("h()")
    code = """
        import os
        def is_queue(n):
            return os.path.islink(f'/proc/self/fd/{n}') and 'inotify' in os.readlink(f'/proc/self/fd/{n}')
        queues = [int(n) for n in os.listdir('/proc/self/fd') if is_queue(n)]
        for n in queues: os.close(n)
        len(queues)
        """
    assert desk.evaluate(dedent(code))[0] == "1"
    for number in (2, 3):
        desk.write(f"{name}.py", f"def f(): return {number}\n")
        assert desk.evaluate("h()")[0] == str(number)


def test_an_edit_is_seen_however_the_file_is_replaced(desk):
    """Editors write in place, rename a new file over the old one, or turn a link."""
    name = desk.load("def f(): return 1\n", "h = m.f")
    file = desk.project / f"{name}.py"
    beside = desk.project / "beside.txt"
    beside.write_text("def f(): return 2\n")
    beside.rename(file)
    assert desk.evaluate("h()")[0] == "2"
    elsewhere = desk.project / "elsewhere.txt"
    elsewhere.write_text("def f(): return 3\n")
    file.unlink()
    assert desk.evaluate("h()")[0] == "2"
    file.symlink_to(elsewhere)
    assert desk.evaluate("h()")[0] == "3"


@pytest.mark.contract("day.reload.auto.failure")
def test_an_edit_that_never_ends_is_stopped_once(tmp_path):
    """The time limit holds for it, the state before comes back, and the next call does not hang again."""
    with closing(open_image("python", name="endless", project=tmp_path)) as image:
        desk = Desk(image, tmp_path)
        name = desk.load("def f(): return 1\n", "h = m.f; x = 5")
        desk.write(f"{name}.py", "def f(): return 2\nwhile True: pass\n")
        reply = image.evaluate("h()", timeout=5)
        assert reply.error is not None
        assert f"The module stays as it was: {name}.py:2" in " ".join(reply.notes)
        assert desk.evaluate("h(), x") == ("(1, 5)", "")


def test_old_code_keeps_the_text_that_it_is_of_over_several_edits(desk):
    """A module that was loaded again leaves functions of the text before."""
    text = "def maker(n):\n    def inner(x):\n        return x + n{}\n    return inner\n"
    name = desk.load(text.format(""), "import importlib, inspect; a = m.maker(1)")
    desk.write(f"{name}.py", text.format(" + 0"))
    desk.evaluate("importlib.reload(m); b = m.maker(1)")
    other = text.format(" + k").replace("    def inner", "    k = 1\n    def inner")
    desk.write(f"{name}.py", other)
    value, _ = desk.evaluate(
        "[inspect.getsource(each).splitlines()[1].strip() for each in (a, b, m.maker(1))]"
    )
    assert value == "['return x + n + 0', 'return x + n + 0', 'return x + n + k']"


def test_a_text_in_another_encoding_is_shown_as_it_is(desk):
    """Not all files are UTF-8."""
    name = desk.load("# coding: latin-1\ndef f(): return 1 / 0\n")
    (desk.project / f"{name}.py").write_bytes(
        "# coding: latin-1\ndef f(): return 'ä' / 0\n".encode("latin-1")
    )
    code = "import traceback\ntry:\n    m.f()\nexcept TypeError:\n    s = traceback.format_exc()\n'ä' in s"
    assert desk.evaluate(code)[0] == "True"


@pytest.mark.contract("day.reload.auto.left")
@pytest.mark.parametrize(
    ("hold", "is_told"), [("", False), ("held = m.f", True), ("import atexit; atexit.register(m.f)", True)]
)
def test_only_a_function_that_the_program_holds_is_told_to_keep_the_old_code(desk, hold, is_told):
    """What the image itself keeps for undo is called by no one."""
    name = desk.load("if True:\n    def f(): return 1\n    N = 1\n", hold)
    desk.write(f"{name}.py", "if True:\n    def f(): return 2\n    N = 2\n")
    value, notes = desk.evaluate("m.f()")
    assert value == "2"
    assert ("a living f keeps the old code" in notes) is is_told


@pytest.mark.contract("day.reload.places")
def test_what_was_taken_up_is_not_said_to_have_changed_since(desk):
    """The text is what runs, so a definition of it is shown without a note, and its callers are found."""
    name = desk.load("def f(x): return 1\nclass K:\n    def a(self): return f(1)\n")
    desk.write(f"{name}.py", "def f(x, y=5): return 2\nclass K:\n    def a(self): return f(1, 2)\n")
    desk.evaluate("m.f(1)")
    for symbol in ("f", "K", "K.a"):
        shown = desk.image.ask("find_definition", symbol=f"{name}.{symbol}").text
        assert "has changed" not in shown
    callers = desk.image.ask("who_calls", function=f"{name}.f").text
    assert f"{name}.K.a" in callers


@pytest.mark.contract("day.reload.places")
def test_a_class_that_stayed_of_an_older_text_is_said_to_differ(desk):
    """A field of a dataclass is not taken up, beside a function that is."""
    head = "from dataclasses import dataclass\n@dataclass\nclass D:\n    x: int = 1\n"
    method = "    def g(self): return 1\n"
    name = desk.load(f"{head}{method}def f(): return 1\n")
    desk.write(f"{name}.py", f"{head}    y: int = 2\n{method}def f(): return 2\n")
    told = "stays as it was (line 5 is read by its decorators when the class is made)"
    assert desk.evaluate("m.f()") == ("2", f"took up {name}.py: f; D {told}")
    shown = desk.image.ask("describe", symbol=f"{name}.D").text
    assert f"is a dataclass at {name}.py:2 of its text before an edit." in shown
    assert "has changed since" in desk.image.ask("find_definition", symbol=f"{name}.D").text
    assert "has changed" not in desk.image.ask("find_definition", symbol=f"{name}.f").text


@pytest.mark.contract("day.reload.places")
@pytest.mark.parametrize("head", ["def f(x, y=5)", "def f(z)", "def f(x: int)", "def f(x=2)"])
def test_a_definition_with_other_parameters_is_said_to_differ(tmp_path, head):
    """The body is the same; what is shown is not what is loaded."""
    with closing(open_image("python", project=tmp_path)) as image:
        desk = Desk(image, tmp_path)
        name = desk.load("def f(x):\n    return 1\ndef g():\n    return 1\n")
        desk.write(f"{name}.py", f"{head}:\n    return 1\ndef g():\n    return 1\n")
        shown = image.ask("find_definition", symbol=f"{name}.f").text
        assert "this is its text now, not what is loaded" in shown
        shown = image.ask("find_definition", symbol=f"{name}.g").text
        assert "but not in this definition" in shown


@pytest.mark.contract("day.reload.auto.removed")
def test_a_removed_function_that_comes_back_is_new_in_other_modules_too(desk):
    """A developer cuts a function out, saves, and puts it back with other parameters."""
    name = desk.load("N = 1\ndef f(x, y=2): return x + y\n")
    desk.write("user_of_it.py", f"from {name} import f\ndef g(): return f(1)\n")
    assert desk.evaluate("import user_of_it as u; u.g()")[0] == "3"
    desk.write(f"{name}.py", "N = 1\n")
    value, notes = desk.evaluate("u.g()")
    assert (value, notes) == (
        "3",
        f"took up {name}.py: removed f; user_of_it.py:1 keeps f, which is removed",
    )
    desk.write(f"{name}.py", "N = 1\ndef f(x): return x * 100\n")
    assert desk.evaluate("u.g(), m.f is u.f")[0] == "(100, True)"


@pytest.mark.contract("day.reload.auto.cached")
def test_a_cached_property_is_told_to_keep_its_values(desk):
    """An object that has computed it gives the old value, another one the new."""
    head = "from functools import cached_property\nclass P:\n"
    text = f"{head}    @cached_property\n    def size(self): return {{}}\n"
    name = desk.load(text.format(1), "p = m.P(); p.size")
    desk.write(f"{name}.py", text.format(2))
    value, notes = desk.evaluate("p.size, m.P().size")
    assert value == "(1, 2)"
    assert notes.endswith("line 3: objects keep the value of P.size that they have cached")
