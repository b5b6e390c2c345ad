"""Edited files that end the image or never end while they are taken up, and files that are gone."""

from contextlib import closing

import pytest

from gramercy.images.environment import Environment, Reload
from gramercy.images.opening import open_image
from gramercy.images.suites import WantedTests
from tests.images.test_taking_up import Desk

OLD = "import os, signal, sys, ctypes\nSTATE = []\ndef f(): return 1\n"
NEW = OLD.replace("return 1", "return 2")
ENDLESS = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\nwhile True: pass\n"
AGAIN = "not taken up, as it failed before: {}; the old code runs"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    project = tmp_path_factory.mktemp("failed")
    with closing(open_image("python", name="failed", project=project)) as image:
        yield Desk(image, project)


def failed(place):
    return f"The module stays as it was: {place}; nothing was taken up"


@pytest.mark.contract("day.reload.auto.ended")
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("os._exit(1)", "its code ended it with status 1"),
        ("os._exit(0)", "its code ended it with status 0"),
        ("os.kill(os.getpid(), 9)", "it was killed, by its own code or from outside (SIGKILL)"),
        ("ctypes.string_at(0)", "it accessed memory that is not its own (SIGSEGV)"),
    ],
)
def test_an_edit_that_ends_the_process_is_named_and_the_call_runs(desk, statement, why):
    """Before, each call died of it, and none said which file was the reason."""
    name = desk.load(OLD, "m.STATE.append('mine'); h = m.f")
    desk.write(f"{name}.py", f"{NEW}STATE.append('theirs')\nopen('left.txt', 'w').close()\n{statement}\n")
    value, notes = desk.evaluate("h(), m.STATE")
    assert value == "(1, ['mine'])"
    assert notes == failed(f"the process ended while {name}.py:6 was taken up: {why}")
    assert not (desk.project / "left.txt").exists()
    assert desk.evaluate("h(), m.STATE") == ("(1, ['mine'])", "")
    desk.write(f"{name}.py", NEW)
    assert desk.evaluate("h(), m.STATE") == ("(2, ['mine'])", f"took up {name}.py: f")


@pytest.mark.contract("day.reload.auto.ended")
def test_an_edit_that_exits_is_told_as_an_exception(desk):
    """sys.exit() raises; it is neither the end of the image nor of the call."""
    name = desk.load(OLD, "h = m.f")
    desk.write(f"{name}.py", f"{NEW}sys.exit()\n")
    assert desk.evaluate("h()") == ("1", failed(f"{name}.py:4: SystemExit"))
    assert desk.evaluate("h()") == ("1", "")


@pytest.mark.contract("day.reload.auto.ended")
def test_a_process_that_ends_at_a_default_of_a_parameter_names_its_line(desk):
    """Defaults are evaluated before statements run."""
    name = desk.load(OLD, "h = m.f")
    desk.write(f"{name}.py", OLD.replace("f()", "f(x=os._exit(3))"))
    value, notes = desk.evaluate("h()")
    assert value == "1"
    assert f"while {name}.py:3 was taken up: its code ended it with status 3" in notes


@pytest.mark.contract("day.reload.auto.ended")
def test_an_earlier_state_does_not_try_it_again_and_says_so(desk):
    """The process of an earlier state knows nothing of the failure; only this side does."""
    name = desk.load(OLD, "h = m.f")
    desk.evaluate("x = 1")
    desk.write(f"{name}.py", f"{NEW}os._exit(1)\n")
    assert "the process ended" in desk.evaluate("h()")[1]
    desk.evaluate("x = 2")
    desk.image.undo()
    desk.image.undo()
    assert desk.evaluate("h()") == ("1", AGAIN.format(f"{name}.py"))
    assert desk.evaluate("h()") == ("1", "")
    desk.write(f"{name}.py", NEW)
    assert desk.evaluate("h()")[0] == "2"


@pytest.mark.contract("day.reload.auto.ended")
def test_a_call_that_itself_ends_the_process_is_still_a_death(desk):
    """The take-up was over by then, so no file is named and the edit is not declined."""
    name = desk.load(OLD, "h = m.f")
    desk.write(f"{name}.py", NEW)
    reply = desk.image.evaluate("import os; os._exit(4)")
    assert reply.error.message == "The image ended during this call: its code ended it with status 4."
    assert "stays as it was" not in " ".join(reply.notes)
    assert desk.evaluate("h()") == ("2", f"took up {name}.py: f")


@pytest.mark.contract("day.reload.auto.ended")
def test_what_the_user_asks_for_is_tried_in_any_case(desk):
    """The reason may lie outside of the file: load says try it again."""
    name = desk.load(OLD, "h = m.f")
    desk.write(f"{name}.py", f"{NEW}if not os.path.exists('ready.txt'): os._exit(1)\n")
    assert "the process ended" in desk.evaluate("h()")[1]
    path = str(desk.project / f"{name}.py")
    asked = desk.image.load_system(path, take_up=True)
    place = f"the process ended while {name}.py:4 was taken up: its code ended it with status 1"
    assert asked.notes == [failed(place)]
    desk.write("ready.txt", "")
    asked = desk.image.load_system(path, take_up=True)
    assert asked.notes == [f"took up {name}.py: f; ran line 4"]
    assert desk.evaluate("h()") == ("2", "")


@pytest.mark.contract("day.reload.auto.ended")
def test_several_files_of_which_one_ends_the_process_stay_together(desk):
    """None is taken up alone, and all of them when one is corrected."""
    one = desk.load(OLD, "h = m.f")
    other = desk.load(OLD, "k = m.f")
    desk.write(f"{one}.py", NEW)
    desk.write(f"{other}.py", f"{NEW}os._exit(1)\n")
    value, notes = desk.evaluate("h(), k()")
    assert value == "(1, 1)"
    assert f"while {other}.py:4 was taken up" in notes
    assert desk.evaluate("h(), k()") == ("(1, 1)", "")
    desk.write(f"{other}.py", NEW)
    assert desk.evaluate("h(), k()")[0] == "(2, 2)"


@pytest.mark.contract("day.reload.auto.several")
def test_files_that_failed_together_are_tried_again_when_any_of_them_changes(desk):
    """The line that raises need not be the one that is wrong."""
    low = desk.load("def f(): return 1\n")
    top = desk.load(f"import {low} as low\nN = 1\n", "top = m")
    desk.write(f"{low}.py", "def f(): return 2\n")
    desk.write(f"{top}.py", f"import {low} as low\nN = low.missing()\n")
    value, notes = desk.evaluate("top.low.f(), top.N")
    assert value == "(1, 1)"
    assert f"{top}.py:2: AttributeError" in notes
    desk.write(f"{low}.py", "def f(): return 2\ndef missing(): return 5\n")
    assert desk.evaluate("top.low.f(), top.N")[0] == "(2, 5)"


@pytest.mark.contract("day.reload.auto.several")
def test_a_file_does_not_wait_for_another_one_that_was_put_back(desk):
    """A checkout of the faulty file alone: the good edit must not stay old for ever."""
    low = desk.load("L = 1\n", "low = m")
    top = desk.load("T = 1\n", "top = m")
    desk.write(f"{low}.py", "L = 2\n")
    desk.write(f"{top}.py", "T = 2\nboom()\n")
    assert desk.evaluate("low.L, top.T")[0] == "(1, 1)"
    desk.write(f"{top}.py", "T = 1\n")
    assert desk.evaluate("low.L, top.T") == ("(2, 1)", f"took up {low}.py: ran line 1")


@pytest.mark.contract("day.reload.auto.several")
def test_a_file_does_not_wait_for_another_one_that_was_loaded(desk):
    """Nothing was edited since both failed, so the kernel has nothing to tell of."""
    low = desk.load("L = 1\n", "low = m")
    top = desk.load("import os\nT = 1\n", "top = m")
    desk.write(f"{low}.py", "L = 2\n")
    desk.write(f"{top}.py", "import os\nT = int(os.environ['TOP'])\n")
    assert desk.evaluate("low.L, top.T")[0] == "(1, 1)"
    desk.evaluate("import os; os.environ['TOP'] = '2'; import time; time.sleep(0.05)")
    assert desk.evaluate("low.L, top.T") == ("(1, 1)", "")
    assert desk.image.load_system(top).ok
    assert desk.evaluate("low.L, top.T") == ("(2, 2)", f"took up {low}.py: ran line 1")


@pytest.mark.contract("day.reload.auto.endless")
def test_an_edit_that_ignores_interrupts_is_named_and_not_tried_again(desk):
    """It has to be killed, so only the shared memory tells what it was."""
    name = desk.load(OLD, "h = m.f; x = 5")
    desk.write(f"{name}.py", f"{NEW}{ENDLESS}")
    reply = desk.image.evaluate("h()", timeout=5)
    assert reply.error.type == "TIMEOUT"
    assert reply.error.message.startswith(f"Taking up {name}.py:5 did not finish within 5 s")
    assert reply.error.message.endswith("The call was not run.")
    assert reply.notes[0] == failed(f"{name}.py:5 did not end while it was taken up")
    assert desk.evaluate("h(), x") == ("(1, 5)", "")
    desk.write(f"{name}.py", NEW)
    assert desk.evaluate("h()")[0] == "2"


@pytest.mark.contract("day.reload.auto.endless")
@pytest.mark.parametrize("statement", ["while True: pass", "N = 9 ** 9 ** 9"])
def test_an_edit_that_is_interrupted_at_the_time_limit_is_not_tried_again(desk, statement):
    """Also where the statement only binds a name, so that nothing has to be put back."""
    name = desk.load(OLD, "h = m.f")
    desk.write(f"{name}.py", f"{NEW}{statement}\n")
    reply = desk.image.evaluate("h()", timeout=5)
    assert reply.error.type == "TIMEOUT"
    assert reply.error.message.startswith("Taking up edited files did not finish within 5 s")
    assert reply.error.message.endswith("The call was not run.")
    assert reply.notes[0] == failed(f"{name}.py:4 was interrupted (load it to try again)")
    assert desk.evaluate("h()") == ("1", "")


@pytest.mark.contract("day.reload.auto.printed")
@pytest.mark.parametrize("statement", ["pass", "boom()", "os._exit(1)"])
def test_what_an_edit_prints_is_in_the_reply(desk, statement):
    """Also when it fails: the print is what a person put there to see why."""
    name = desk.load(OLD)
    code = "print('looking', len(STATE)); print('badly', file=sys.stderr)"
    desk.write(f"{name}.py", f"{OLD}{code}\n{statement}\n")
    reply = desk.image.evaluate("print('call'); m.f()")
    assert reply.values == ["1"]
    assert (reply.stdout, reply.stderr) == ("looking 0\ncall\n", "badly\n")
    assert desk.image.history()[-1].reply.stdout == reply.stdout
    assert desk.image.evaluate("print('call')").stdout == "call\n"


@pytest.mark.contract("day.reload.auto.ended")
def test_a_preview_names_the_edit_that_would_end_the_image(desk):
    """The copy ends, another one runs the old code."""
    name = desk.load(OLD, "h = m.f")
    desk.write(f"{name}.py", f"{NEW}print('here')\nos._exit(1)\n")
    reply = desk.image.preview("h()")
    assert reply.values == ["1"]
    place = f"the process ended while {name}.py:5 was taken up: in a copy of the image"
    assert (reply.notes, reply.stdout) == ([failed(place)], "here\n")


@pytest.mark.contract("day.reload.auto.ended")
def test_tests_in_a_copy_name_the_edit_that_ended_it(tmp_path):
    """run_tests in_image: the suite did not run, and the file is the reason."""
    with closing(open_image("python", name="suite", project=tmp_path)) as image:
        desk = Desk(image, tmp_path)
        desk.write("test_a.py", "import unittest\n")
        name = desk.load(OLD)
        desk.write(f"{name}.py", f"{NEW}os._exit(1)\n")
        run = image.run_tests(WantedTests(framework="unittest", in_image=True))
        place = f"while it took up {name}.py:4: its code ended it with status 1."
        assert run.fault is not None
        assert run.fault.message == f"The process of the tests ended {place}"


@pytest.mark.contract("day.reload.gone")
@pytest.mark.parametrize("way", ["unlink", "rename"])
def test_a_file_that_is_gone_is_named_once(desk, way):
    """The code runs on, and a person should know that no file says it any more."""
    name = desk.load(OLD, "import inspect; h = m.f")
    file = desk.project / f"{name}.py"
    if way == "unlink":
        file.unlink()
    else:
        file.rename(desk.project / f"{name}_other.py")
    told = f"removed or renamed since it was loaded: {name}.py; the code that was loaded from it still runs"
    assert desk.evaluate("h(), inspect.getsource(h)") == ("(1, 'def f(): return 1\\n')", told)
    assert desk.evaluate("h()") == ("1", "")
    desk.write(f"{name}.py", OLD)
    assert desk.evaluate("h()") == ("1", "")
    desk.write(f"{name}.py", NEW)
    assert desk.evaluate("h()") == ("2", f"took up {name}.py: f")
    file.unlink()
    assert desk.evaluate("h()") == ("2", told)


@pytest.mark.contract("day.reload.gone")
def test_files_that_are_gone_are_told_beside_an_edit(desk):
    """One look sees both."""
    one, other = desk.load(OLD, "h = m.f"), desk.load(OLD)
    desk.write(f"{one}.py", NEW)
    (desk.project / f"{other}.py").unlink()
    value, notes = desk.evaluate("h()")
    assert value == "2"
    assert notes.startswith(f"took up {one}.py: f removed or renamed since it was loaded: {other}.py;")


@pytest.mark.contract("day.reload.gone")
def test_a_module_that_is_no_longer_loaded_is_not_told_of(desk):
    """Programs import from files that they write and remove."""
    name = desk.load(OLD)
    desk.evaluate("import sys; del sys.modules[m.__name__], m")
    (desk.project / f"{name}.py").unlink()
    assert desk.evaluate("0") == ("0", "")


@pytest.mark.contract("day.reload.gone")
@pytest.mark.parametrize("mode", [Reload.TELL, Reload.OFF])
def test_a_file_that_is_gone_in_other_modes(tmp_path, mode):
    """`tell` tells, `off` looks at nothing."""
    environment = Environment(reload=mode)
    with closing(open_image("python", name="modes", project=tmp_path, environment=environment)) as image:
        desk = Desk(image, tmp_path)
        name = desk.load(OLD, "h = m.f")
        (tmp_path / f"{name}.py").unlink()
        value, notes = desk.evaluate("h()")
        assert value == "1"
        assert ("removed or renamed" in notes) is (mode is Reload.TELL)
