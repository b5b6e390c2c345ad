"""A look at a value leaves no step to undo; what might run code of the user's is never taken for a look."""

# ruff: noqa: E501 - the forms are data, and read best on one line

from contextlib import closing

import pytest

from tests.images import children

WORLD = """
import json, math, collections
class Point:
    kind = 'point'
    def __init__(self): self.x, self.tags = 1, ['a']
    def move(self): self.x += 1
class Slotted:
    __slots__ = ('y',)
def area(p): return p.x
p = Point()
s = Slotted(); s.y = [5]
n, text, items, table, pair = 3, 'word', [1, 2, [3]], {'a': 1, 'b': [2], (1, 2): 3}, (1, 'x')
points = [p, p]
chosen = {1, 2}
"""
SPY = """
import collections, types, sys
count = 0
def touch(*a, **k):
    global count
    count += 1
    return 0
class Number(int): __add__ = __radd__ = __eq__ = __lt__ = __bool__ = __repr__ = touch; __hash__ = int.__hash__
class Printed:
    def __repr__(self): touch(); return 'P'
class Hooked:
    def __getattribute__(self, name): return touch()
class Missing:
    def __getattr__(self, name): return touch()
class Computed:
    @property
    def area(self): return touch()
class Data:
    def __get__(self, *a): return touch()
    def __set__(self, *a): touch()
class Owner: d = Data()
class Meta(type):
    def __getattribute__(cls, name): return touch()
    def __repr__(cls): touch(); return 'M'
    def __instancecheck__(cls, x): return touch()
class Made(metaclass=Meta): a = 1
class Key(str):
    def __eq__(self, other): touch(); return False
    def __hash__(self): return hash('k')
class Sized:
    def __len__(self): return touch()
    __bool__ = __contains__ = __len__
class Liar:
    @property
    def __class__(self): touch(); return int
class Formats:
    def __format__(self, spec): touch(); return 'f'
class Keyed(dict):
    def __missing__(self, key): self[key] = touch(); return 0
lazy = types.ModuleType('lazy'); lazy.__getattr__ = touch
number, printed, hooked, missing, computed, owner = Number(3), Printed(), Hooked(), Missing(), Computed(), Owner()
inside, keyed, spied, grown, default = [[Printed()]], {Key('k'): 1, 'a': 2}, Sized(), Keyed(), collections.defaultdict(touch)
formats, liar, numbers = Formats(), Liar(), [Number(1), Number(2)]
bound = printed.__repr__
"""


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Return one family for all tests of this file."""
    with closing(children.Family(tmp_path_factory.mktemp("python"), "python")) as family:
        yield family


@pytest.fixture(scope="module")
def world(family):
    """Return a process with something to look at."""
    live = family.live()
    assert live.eval(WORLD)["ok"]
    return live


@pytest.fixture(scope="module")
def spied(family):
    """Return a process whose every hook counts."""
    live = family.live()
    reply = live.eval(SPY)
    assert reply["ok"], reply["error"]
    return live


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("n", "3"),
        ("items", "[1, 2, [3]]"),
        ("table['b']", "[2]"),
        ("table[1, 2]", "3"),
        ("items[-1][0] + n", "6"),
        ("text[1:3]", "'or'"),
        ("p.x", "1"),
        ("p.tags[0]", "'a'"),
        ("Point.kind, p.kind", "('point', 'point')"),
        ("s.y", "[5]"),
        ("len(points), len(table)", "(2, 3)"),
        ("type(p) is Point", "True"),
        ("isinstance(p, (int, Point))", "True"),
        ("isinstance(p, int)", "False"),
        ("sorted(items[:2], reverse=True)", "[2, 1]"),
        ("sum(items[:2]) / n if n > 2 else None", "1.0"),
        ("f'{n:03d} {text!r} {items}'", "\"003 'word' [1, 2, [3]]\""),
        ("{'n': n, **{}}['n']", "3"),
        ("{'n': n}", "{'n': 3}"),
        ("n in items and 'a' in table", "False"),
        ("1 < n < 5 and not chosen == {1}", "True"),
        ("text.upper().split('O')", "['W', 'RD']"),
        ("table.get('zz', n)", "3"),
        ("list(table)", "['a', 'b', (1, 2)]"),
        ("math.pi > 3", "True"),
        ("json.__name__", "'json'"),
        ("n\ntext\nlen(text)", "4"),
        ("repr(items)", "'[1, 2, [3]]'"),
        ("-n ** 2", "-9"),
        ("max(n, 200000) * 2", "400000"),
        ("items[:1] * 3", "[1, 1, 1]"),
    ],
)
def test_a_look_changes_nothing_and_shows_what_python_shows(world, code, value):
    """The user's own program: undo takes back the last change, not the last look."""
    reply = world.eval(code)
    assert reply["forms"][-1]["values"] == [value], reply["error"]
    if "**{}" not in code:
        assert reply.get("unchanged") is True


@pytest.mark.parametrize(
    "code", ["p", "points", "Point", "area", "len", "json", "p.move", "type(p)", "table.keys()", "_"]
)
def test_a_thing_that_prints_itself_by_python_alone_is_a_look(world, code):
    """Functions, classes, modules, instances without a __repr__ of their own."""
    live = world.fork("live")
    expected = live.value(f"x_ = {code}\nx_")
    reply = live.eval(code)
    assert reply.get("unchanged") is True
    if code != "_":
        assert reply["forms"][0]["values"] == [expected]


def test_a_module_with_names_made_on_demand_is_a_look(world, tmp_path):
    """It prints as its name and file, and its `__getattr__` is not asked."""
    (tmp_path / "on_demand.py").write_text(
        "seen = []\ndef __getattr__(name): seen.append(name); raise AttributeError(name)\n"
    )
    live = world.fork("live")
    live.eval(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport on_demand\non_demand.seen.clear()")
    assert live.eval("on_demand").get("unchanged") is True
    assert live.value("on_demand.seen") == "[]"
    assert "unchanged" not in live.eval("on_demand.made")
    assert live.value("on_demand.seen") == "['made']"


def test_to_print_a_value_is_a_look(world):
    """What is printed stands in the reply and nowhere else."""
    reply = world.eval("print(n, items, sep='-')\nprint(text)")
    assert reply["stdout"] == "3-[1, 2, [3]]\nword\n"
    assert reply.get("unchanged") is True


@pytest.mark.parametrize(
    "code",
    [
        *(
            "number",
            "printed",
            "inside",
            "hooked.x",
            "missing.x",
            "computed.area",
            "owner.d",
            "Made",
            "Made.a",
            "keyed['k']",
        ),
        *(
            "'k' in keyed",
            "number + 1",
            "1 + number",
            "number == 1",
            "not number",
            "number and 1",
            "len(spied)",
            "bool(spied)",
        ),
        *(
            "1 in spied",
            "isinstance(1, Made)",
            "isinstance(liar, int)",
            "grown['x']",
            "default['y']",
            "f'{formats}'",
        ),
        *(
            "str(printed)",
            "print(printed)",
            "print(1, file=printed)",
            "sorted(numbers)",
            "sum(numbers)",
            "min(numbers)",
        ),
        *(
            "numbers == numbers[:]",
            "lazy.anything",
            "bound",
            "touch()",
            "computed.area or 1",
            "[computed.area]",
        ),
        *(
            "{number: 1}",
            "{number}",
            "[x for x in items]",
            "(z := 1)",
            "lambda: 1",
            "items.append(1)",
            "items.sort()",
        ),
        *(
            "table.pop('a')",
            "text.encode()",
            "p.move()",
            "globals()",
            "vars()",
            "iter(items)",
            "next(iter(items))",
            "id(1)",
        ),
        *(
            "[*items]",
            "items * 200000",
            "len(list(range(n, 200000)))",
            "~n",
            "print(*items)",
            "type('X', (), {})",
            "undefined_name",
            "n.real",
            "touch.__code__",
            "exit",
        ),
    ],
)
def test_what_may_run_code_of_the_users_is_no_look(spied, code):
    """Any doubt means a step that can be undone, and nothing is done twice."""
    spied.eval(
        "items, table, text, n = [3, 1], {'a': 1}, 'word', 3\nclass P:\n    def move(self): touch()\np = P()"
    )
    alone, after = spied.fork("live"), spied.fork("live")
    reply = alone.eval(code)
    assert "unchanged" not in reply
    # After a statement nothing is tried as a look.
    assert after.eval(f"pass\n{code}")["ok"] is reply["ok"]
    assert alone.value("count") == after.value("count")


def test_a_name_of_python_that_the_user_has_taken_is_no_look(world):
    """`len` is what the module says it is."""
    live = world.fork("live")
    live.eval("seen = []\ndef len(x): seen.append(x); return 1")
    assert "unchanged" not in live.eval("len(items)")
    assert live.value("seen") == "[[1, 2, [3]]]"
    live.eval("import builtins\nbuiltins.sorted = lambda x: seen.append(9) or 5")
    assert "unchanged" not in live.eval("sorted(items)")
    assert live.value("seen[-1]") == "9"


def test_a_key_of_the_users_among_the_names_is_a_doubt(world):
    """To find a name may compare it with such a key."""
    live = world.fork("live")
    live.eval(
        "class Key(str):\n    def __eq__(self, o): return False\n    __hash__ = str.__hash__\nglobals()[Key('n')] = 1"
    )
    assert "unchanged" not in live.eval("n")


def test_the_end_of_an_object_that_only_the_last_values_held_is_no_look(world):
    """`__` lets go of it, and its end runs code."""
    live = world.fork("live")
    live.eval(
        "ended = []\nimport weakref\nclass Ends:\n    __slots__ = ('__weakref__', 'a')\n    def __del__(self): ended.append(1)"
    )
    live.eval(
        "import gc\nclass Big:\n    def __init__(self): self.data = bytearray(2 << 20)\n    def __del__(self): ended.append(1)\nNone"
    )
    live.eval("Big()")
    replies = [live.eval(f"{count} + 1") for count in range(3)]
    assert not all(reply.get("unchanged") for reply in replies)
    assert live.value("ended") == "[1]"


def test_a_look_sets_the_last_value(world):
    """`_` follows looks too."""
    live = world.fork("live")
    live.eval("items")
    assert live.value("_ is items") == "True"


def test_a_look_that_fails_is_reported_as_ever(world):
    """The error comes from the ordinary way, once."""
    reply = world.eval("table['missing']")
    assert reply["error"]["type"] == "KeyError"
    assert reply["error"]["backtrace"][0].startswith("0: <module> at <image ")
