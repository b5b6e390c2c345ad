"""Results of the Python image are kept for a while, big ones only as long as there is room for the next."""

# ruff: noqa: E501 - the forms are data, and read best on one line

from contextlib import closing

import pytest

from tests.images import children

LIMIT = """
import resource
pages = int(open('/proc/self/statm').read().split()[0])
room = pages * resource.getpagesize() + (500 << 20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
"""


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Return one family for all tests of this file."""
    with closing(children.Family(tmp_path_factory.mktemp("python"), "python")) as family:
        yield family


@pytest.fixture
def live(family):
    """Return a fresh process."""
    return family.live()


@pytest.mark.parametrize(
    "code",
    [
        "bytearray(150 << 20)",
        "[0] * (150 << 17)",
        "[bytes(150 << 20)]",
        "array.array('b', bytes(75 << 20))",
        "Box()",
    ],
)
def test_big_results_are_not_kept_alive(live, code):
    """The user's own program: the fourth big array failed, since the three before it were kept."""
    live.eval(f"{LIMIT}\nimport array\nclass Box:\n    def __init__(self): self.data = bytearray(150 << 20)")
    numbers = []
    for _time in range(6):
        reply = live.eval(code, value_limit=100)
        assert reply["ok"], reply["error"]
        numbers += reply["objects"]
    assert live.ask("inspect", object=numbers[-1])["ok"]
    error = live.ask("inspect", object=numbers[0])["error"]
    assert error["type"] == "NO-SUCH-OBJECT"
    assert "too big to be kept" in error["message"]
    assert "bind its value to a name" in error["message"]


def test_a_big_value_that_the_program_holds_keeps_its_number(live):
    """A number is good as long as the object is there."""
    live.eval("class Box:\n    def __init__(self, n): self.data = bytearray(n)\nkept = Box(9 << 20)")
    number = live.eval("kept")["objects"][0]
    for _time in range(4):
        live.eval("Box(9 << 20)")
    assert live.ask("inspect", object=number)["data"]["children"][0]["label"] == ".data"
    assert live.eval("kept")["objects"] == [number]


def test_small_results_are_kept_by_the_hundred(live):
    """What costs little stays."""
    number = live.eval("[1, 2, 3]")["objects"][0]
    for count in range(100):
        live.eval(f"[{count}]")
    assert live.ask("inspect", object=number)["data"]["total"] == 3


def test_many_middling_results_stay_within_a_budget(live):
    """A thousand results of nearly a megabyte would be a gigabyte."""
    before = live.ask("state")["state"]["heap_bytes"]
    for _time in range(150):
        reply = live.eval("bytearray(1000_000).replace(b'\\0', b'1')", value_limit=100)
    assert reply["state"]["heap_bytes"] - before < 60 << 20


def test_the_value_before_a_big_one_stays_where_it_is_asked_for(live):
    """`__` is let go to make room, never while the code mentions it."""
    for size in (3, 2, 1):
        live.eval(f"bytearray({size} << 20)", value_limit=100)
    assert live.value("len(__) >> 20, len(_) >> 20") == "(2, 1)"


def test_an_image_without_memory_answers_and_works_on(live):
    """Running out of memory is an error of the form, not the end of the image."""
    live.eval(LIMIT)
    for _time in range(3):
        assert live.eval("taken = bytearray(600 << 20)")["error"]["type"] == "MemoryError"
        assert live.value("1 + 2") == "3"
    assert live.eval("taken = bytearray(150 << 20)")["ok"]


def test_no_code_of_the_users_runs_to_weigh_a_value(live):
    """Live images: looking runs nothing."""
    live.eval(
        "seen = []\nclass Spy(list):\n    def __len__(self): seen.append(1); return 0\n    __iter__ = __sizeof__ = __len__\n"
        "    nbytes = property(__len__)\n    def __repr__(self): return 'spy'\nspy = Spy([1])"
    )
    assert live.value("spy") == "spy"
    assert live.value("seen") == "[]"
