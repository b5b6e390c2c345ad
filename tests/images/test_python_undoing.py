"""Taking back what the last call bound in a Python image of which no copy can be made."""

# ruff: noqa: E501 - the forms are data, and read best on one line

from contextlib import closing

import pytest

from tests.images import children

THREAD = "import threading\nstop = threading.Event()\nthreading.Thread(target=stop.wait, daemon=True).start()"
STAYS = "Objects that it changed in place stay changed, and so do files and all else outside."


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Return one family for all tests of this file."""
    with closing(children.Family(tmp_path_factory.mktemp("python"), "python")) as family:
        yield family


@pytest.fixture
def live(family):
    """Return a fresh process in which a thread runs."""
    live = family.live()
    assert live.eval(THREAD)["state"]["threads"] == 2
    return live


def undone(live):
    """Undo, and return what was changed by it."""
    reply = live.ask("undo_definitions")
    assert reply["ok"], reply["error"]
    return {change["name"].removeprefix("__main__."): change["change"] for change in reply["changed"]}, reply[
        "notes"
    ]


def test_names_go_back_to_what_they_meant(live):
    """Environments: undo by touched names works with threads."""
    live.eval("def f(): return 1\nx = [1]\nold, same = f, x\ngone = 5")
    live.eval("def f(): return 2\nx = [2]\nnew = 3\ndel gone")
    changed, notes = undone(live)
    assert changed == {"f": "restored", "x": "restored", "new": "removed", "gone": "restored"}
    assert notes == [STAYS]
    assert live.value("f is old, x is same, gone, 'new' in globals(), f()") == "(True, True, 5, False, 1)"


def test_methods_go_back_too(live):
    """Redefined, added and removed attributes of a class."""
    live.eval(
        "class C:\n    n = 1\n    def f(self): return 'old'\n    @staticmethod\n    def s(): return 's'\nc = C()"
    )
    live.eval("C.f = lambda self: 'new'\nC.g = 5\ndel C.s\nC.n = 2")
    changed, _notes = undone(live)
    assert changed == {"C.f": "restored", "C.g": "removed", "C.s": "restored", "C.n": "restored"}
    assert live.value("c.f(), C.s(), hasattr(C, 'g'), C.n") == "('old', 's', False, 1)"


def test_a_redefined_class_is_the_old_one_again(live):
    """By identity, so that old objects are its instances."""
    live.eval("class C: pass\nc = C()")
    live.eval("class C: pass")
    undone(live)
    assert live.value("isinstance(c, C)") == "True"


def test_each_undo_goes_one_call_further_back(live):
    """Looks do not count, and the undo itself is no step."""
    for number in range(1, 4):
        live.eval(f"x = {number}")
        live.eval("x")
        live.eval("print(x)")
    for number in (2, 1):
        assert undone(live)[0] == {"x": "restored"}
        assert live.value("x") == str(number)
    assert undone(live)[0] == {"x": "removed"}


def test_a_call_that_bound_nothing_is_a_step_that_says_so(live):
    """What it changed inside an object stays."""
    live.eval("items = []")
    live.eval("items.append(1)")
    assert undone(live) == ({}, ["The last call bound no name.", STAYS])
    assert live.value("items") == "[1]"
    assert undone(live)[0] == {"items": "removed"}


def test_without_a_call_there_is_nothing_to_undo(family):
    """The error says so."""
    reply = family.live().ask("undo_definitions")
    assert reply["error"]["type"] == "NothingToUndo"
    assert "the last 20 calls" in reply["error"]["message"]


def test_only_the_last_calls_are_remembered(live):
    """The journal is bounded."""
    for number in range(30):
        live.eval(f"x = {number}")
    for _time in range(20):
        undone(live)
    assert live.value("x") == "9"
    assert live.ask("undo_definitions")["error"]["type"] == "NothingToUndo"


def test_a_failed_call_is_taken_back_as_well(live):
    """What it bound before it failed counts."""
    assert not live.eval("x = 1\n1 / 0")["ok"]
    assert undone(live)[0] == {"x": "removed"}


def test_imports_are_unbound_and_the_modules_stay(live):
    """An import cannot be taken back."""
    live.eval("import colorsys")
    changed, notes = undone(live)
    assert changed == {"colorsys": "removed"}
    assert notes == ["Modules that it imported stay loaded.", STAYS]
    assert live.value("import sys\n'colorsys' in sys.modules") == "True"


def test_names_of_the_users_modules_go_back(live, tmp_path):
    """Also what a reload has bound, so that the next load_system loads it again."""
    file = tmp_path / "plants.py"
    file.write_text("def water(): return 1\n")
    live.eval(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport plants")
    file.write_text("def water(): return 2\ndef cut(): pass\n")
    assert live.ask("load_system", system="plants")["reloaded"] == ["plants"]
    assert undone(live)[0] == {"plants.water": "restored", "plants.cut": "removed"}
    assert live.value("plants.water()") == "1"
    assert live.ask("load_system", system="plants")["reloaded"] == ["plants"]
    assert live.value("plants.water()") == "2"


def test_a_name_that_a_thread_has_bound_since_is_left_alone(live, tmp_path):
    """Whatever it is now, the last call has not made it."""
    go, done = tmp_path / "go", tmp_path / "done"
    live.eval(
        f"import os, time\ndef work():\n    global x\n    while not os.path.exists({str(go)!r}): time.sleep(0.002)\n"
        f"    x = 'by the thread'\n    open({str(done)!r}, 'w').close()\nthreading.Thread(target=work, daemon=True).start()\nx = 1"
    )
    live.eval("x = 2\ny = 1")
    go.touch()
    assert live.sees(done.exists)
    changed, notes = undone(live)
    assert changed == {"y": "removed"}
    assert notes[0] == "__main__.x has been bound again since, and is left as it is."
    assert live.value("x") == "'by the thread'"


def test_the_end_of_an_object_is_not_put_off(live):
    """What runs code at its end is followed, not held; undo then says that it is not there."""
    live.eval(
        "class D:\n    def __del__(self): print('gone')\nd = D()\nf = open('/dev/null')\nholder = [D()]"
    )
    reply = live.eval("del d\nprint('after')\nholder = None\nprint('later')\nf = None")
    assert reply["stdout"] == "gone\nafter\ngone\nlater\n"
    changed, notes = undone(live)
    assert changed == {}
    assert sorted(note.partition(":")[0] for note in notes[:-1]) == [
        "__main__.d",
        "__main__.f",
        "__main__.holder",
    ]
    assert all("nothing else held it" in note for note in notes[:-1])


def test_a_followed_object_that_is_still_there_is_put_back(live):
    """A weak reference is enough while something else holds the object."""
    live.eval("class D:\n    def __del__(self): pass\nd = D()\nkeep = [d]")
    live.eval("d = None")
    assert undone(live)[0] == {"d": "restored"}
    assert live.value("d is keep[0]") == "True"


def test_big_old_values_are_not_kept(live):
    """The same rule as for results: memory is the user's."""
    live.eval("big = bytearray(5 << 20)")
    live.eval("big = None")
    changed, notes = undone(live)
    assert changed == {}
    assert notes[0] == "__main__.big: its old value is not there any more, it was too big to be kept."


def test_old_values_that_have_grown_are_not_kept(live):
    """A list is weighed again when its name is bound to something else."""
    live.eval("grows = []")
    live.eval("grows.append(bytearray(50 << 20))")
    before = live.eval("import gc")["state"]["heap_bytes"]
    live.eval("grows[0][:] = b'1' * len(grows[0]); None")
    after = live.eval("grows = None")["state"]["heap_bytes"]
    live.eval("pass")
    assert after - before < 20 << 20


def test_many_old_values_stay_within_a_budget(live):
    """Twenty calls with a thousand values each must not cost a gigabyte."""
    before = live.ask("state")["state"]["heap_bytes"]
    for number in range(20):
        reply = live.eval(f"for i in range(50): globals()['v%d' % i] = bytearray(b'{number % 10}' * 900_000)")
    # Fifty live values are 45 MB.
    assert reply["state"]["heap_bytes"] - before < 150 << 20


def test_an_instance_of_the_users_class_is_put_back_by_identity(live):
    """Ordinary objects hold nothing but memory."""
    live.eval("class P:\n    def __init__(self): self.x = [1, {'a': 2}]\np = P()\nmark = id(p)")
    live.eval("p = None")
    assert undone(live)[0] == {"p": "restored"}
    assert live.value("id(p) == mark, p.x") == "(True, [1, {'a': 2}])"
