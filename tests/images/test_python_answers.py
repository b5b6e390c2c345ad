"""What the Python image answers about a program of the user's: every fact, in few words, without running code."""

# ruff: noqa: E501 - the forms are data, and read best on one line

import ast
import dataclasses
import enum
import importlib
import time
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from tests.images import children

PROJECT = {
    "shop/__init__.py": '"""A shop.\n\nIt sells things."""\n__version__ = "1.2"\n__all__ = ["sell", "Cart"]\nfrom shop.cart import Cart\nfrom shop.till import sell\nhidden = 1\n',
    "shop/till.py": '''
import functools
from shop import cart
from shop.cart import price as cost, RATE

def sell(thing: str, *, count: int = 1) -> float:
    """Sell something."""
    return cost(thing) * count

@functools.cache
def dear(thing):
    """Say what it costs.

    It is remembered."""
    return cart.price(thing)

cheap = functools.partial(dear, "nut")

def report():
    from shop.cart import price
    return [price(name) for name in ("a", "b")]

def taxed(): return RATE * 2

def later(): return map(cost, [])

TABLE = {"x": lambda: cost("x")}
FIRST = cost("nut")
''',
    "shop/cart.py": '''
import abc, dataclasses, enum, functools, typing

RATE = 19

def price(name): return len(name)

class Cart:
    """Holds things."""
    limit: int = 10
    kind = "plain"
    def __init__(self, owner, size=3):
        self.owner = owner
        self.things: list[str] = []
        self.size, self.weight = size, 0.5
        if size: self.total = price("x")
    def add(self, thing):
        self.last = thing
        return self.check(thing)
    def check(self, thing): return price(thing)
    @property
    def full(self) -> bool: return True
    @functools.cached_property
    def value(self) -> int: return 1
    @classmethod
    def empty(cls): return cls("nobody")
    @staticmethod
    def sizes(): return [1]
    async def ship(self): ...
    start = price("start")

class Big(Cart):
    def check(self, thing): return super().check(thing)
    def fill(self):
        self.add(1)
        self.owner = 2

@dataclasses.dataclass
class Item:
    name: str
    tags: list = dataclasses.field(default_factory=list, repr=False)
    price: int = dataclasses.field(default=3, kw_only=True)

class Colour(enum.Enum):
    RED = 1
    BLUE = 2
    AZURE = 2

class Pair(typing.NamedTuple):
    left: int
    right: str = "r"

class Options(typing.TypedDict, total=False):
    fast: bool

class Slotted:
    __slots__ = ("one", "two")

class Base(abc.ABC):
    @abc.abstractmethod
    def run(self): ...

class Wrong(Exception): pass

@typing.overload
def over(x: int) -> int: ...
@typing.overload
def over(x: str) -> str: ...
def over(x): return x

class Machine:
    def __call__(self, speed: int = 2): return speed
machine = Machine()
async def fetch(): ...
def count():
    yield 1
async def stream():
    yield 1
''',
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Write a project to disk."""
    home = tmp_path_factory.mktemp("project")
    for name, text in PROJECT.items():
        file = home / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return home


@pytest.fixture(scope="module")
def family(tmp_path_factory, project):
    """Return one family that works in the project."""
    home = tmp_path_factory.mktemp("python")
    with closing(children.Family(home, "python", "--first", str(project))) as family:
        yield family


@pytest.fixture(scope="module")
def shop(family):
    """Return a process that has loaded the project."""
    process = family.live()
    assert process.eval("import shop, shop.till")["ok"]
    return process


@pytest.fixture
def live(family):
    """Return a fresh process."""
    return family.live()


def told(process, op, **fields):
    """Ask, and hold the answer to its limit."""
    reply = process.ask(op, **fields)
    assert reply["ok"], reply
    assert len(reply["text"]) <= 8000
    return reply["text"]


# --- descriptions


@pytest.mark.contract("answers.python.describe")
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("shop.till.sell", ["is a function at shop/till.py:6.", "sell(thing: str, *, count: int = 1) -> float", "Sell something."]),
        ("shop.sell", ["defined as shop.till.sell at shop/till.py:6."]),
        ("shop.till.dear", ["is a cached function at shop/till.py:10.", "dear(thing)", "Wraps: shop.till.dear", "Say what it costs.", "1 more line of documentation: print(shop.till.dear.__doc__)"]),
        ("shop.till.cheap", ["is a partial at", "cheap()", "Wraps: shop.till.dear(thing)"]),
        ("shop.cart.fetch", ["is an async function"]),
        ("shop.cart.count", ["is a generator function"]),
        ("shop.cart.stream", ["is an async generator function"]),
        ("shop.cart.over", ["overload over(x: int) -> int", "overload over(x: str) -> str"]),
        ("shop.cart.Cart.add", ["is a method at shop/cart.py:17.", "add(self, thing)"]),
        ("shop.cart.Big.add", ["inherited from shop.cart.Cart"]),
        ("shop.cart.Cart.full", ["is a property at shop/cart.py:21.", "-> bool"]),
        ("shop.cart.Cart.value", ["is a cached property at shop/cart.py:23."]),
        ("shop.cart.Cart.empty", ["is a class method", "empty()"]),
        ("shop.cart.Cart.sizes", ["is a static method"]),
        ("shop.cart.Cart.ship", ["is an async method"]),
        ("shop.cart.Cart.kind", ["is an attribute of type str.", "Value: 'plain'"]),
        ("shop.cart.Cart", ["is a class at shop/cart.py:8.", "Cart(owner, size=3)", "Holds things.", "limit: int = 10", "owner = owner", "things: list[str] = []", "add(self, thing)", "full [property]", "empty() [class]", "sizes() [static]", "ship(self) [async]", "Direct subclasses (1): shop.cart.Big"]),
        ("shop.cart.Big", ["Bases: shop.cart.Cart", "Holds things. (documented in shop.cart.Cart)", "From shop.cart.Cart ("]),
        ("shop.cart.Item", ["is a dataclass at shop/cart.py:38.", "name: str", "tags: list = list()"]),
        ("shop.cart.Colour", ["is an enum", "RED = 1; BLUE = 2; AZURE = 2, an alias of BLUE", "Metaclass: enum.EnumType"]),
        ("shop.cart.Pair", ["is a named tuple", "Pair(left: int, right: str = 'r')"]),
        ("shop.cart.Options", ["is a typed dict", "fast: bool"]),
        ("shop.cart.Base", ["is an abstract class", "Abstract: run"]),
        ("shop.cart.Wrong", ["is an exception", "Bases: Exception, BaseException"]),
        ("shop.cart.machine", ["is a variable of type shop.cart.Machine.", "machine(speed: int = 2)"]),
        ("shop.cart.RATE", ["is a variable of type int.", "Value: 19"]),
        ("shop", ["is a package.", "File: shop/__init__.py", "Version: 1.2", "A shop.", "Exports, class (1): Cart", "Exports, function (1): sell", "Submodules (2): cart; till"]),
        ("len", ["builtins.len is a built-in function.", "len(obj, /)"]),
        ("str.upper", ["is a built-in method."]),
        ("sys", ["is a module.", "it is built-in"]),
    ],
)  # fmt: skip
def test_a_description_says_what_a_thing_is_and_where(shop, name, parts):
    """Answers of the tools: describe_symbol."""
    shop.eval("import sys, functools")
    text = told(shop, "describe", symbol=name)
    assert [part for part in parts if part not in text] == [], text
    assert "is a import" not in text


@pytest.mark.contract("answers.python.places")
def test_what_was_evaluated_has_a_place_too(live):
    """Answers of the tools: every place has file and line."""
    live.eval("x = 1")
    live.eval(
        "\n@__import__('functools').total_ordering\nclass Bare:\n    def __lt__(self, o): return 1\ndef f():\n    pass"
    )
    assert "is a class at <image 2>:2." in told(live, "describe", symbol="Bare")
    assert "is a function at <image 2>:5." in told(live, "describe", symbol="f")


@pytest.mark.contract("answers.python.two-modules")
def test_a_name_in_two_modules_is_answered_for_one_and_the_others_are_named(live):
    """Answers of the tools: say which, or answer for the current one and name the others."""
    live.eval("import shop.till, shop.cart")
    assert told(live, "describe", symbol="Colour").startswith("shop.cart.Colour is an enum")
    live.eval("def price(): pass")
    text = told(live, "describe", symbol="price")
    assert text.startswith("__main__.price is")
    assert "Not to be confused with shop.cart.price" in text
    # A package that offers what its module defines has the same thing, not another.
    live.eval("shop.Colour = shop.cart.Colour")
    assert "confused" not in told(live, "describe", symbol="shop.cart.Colour")
    live.eval(
        "import types, sys\nfor n in ('one', 'two'):\n    m = sys.modules[n] = types.ModuleType(n); exec('def both(): pass', m.__dict__)"
    )
    error = live.ask("describe", symbol="both")["error"]
    assert error["message"] == "name 'both' is not defined in __main__, but there is one.both, two.both."
    assert error["suggestions"] == ["one.both", "two.both"]
    assert "json.dumps" in live.ask("describe", symbol="dumps")["error"]["suggestions"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is not a name"),
        ("  ", "is not a name"),
        ("a..b", "is not a name"),
        ("9x", "is not a name"),
        ("a b", "is not a name"),
        ("x" * 5000, "is not defined"),
        ("import", "is a keyword of Python"),
        ("f.<locals>.C", "what is inside of a function cannot"),
        ("no.such.thing", "is not defined in __main__"),
        ("a:b:c", "is loaded"),
    ],
)
def test_an_odd_name_is_an_error_that_says_why(live, name, message):
    """Bad input: keyword names, empty and odd names."""
    for op, field in (
        ("describe", "symbol"),
        ("arglist", "function"),
        ("who_calls", "function"),
        ("class_slots", "class"),
    ):
        error = live.ask(op, **{field: name})["error"]
        assert error["type"] in ("NameError", "ModuleNotFoundError", "INVALID-REQUEST")
        assert message in error["message"] or error["type"] == "INVALID-REQUEST"
        assert len(error["message"]) < 6000


# --- classes


@pytest.mark.contract("answers.python.slots")
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("Cart", ["limit: int = 10  [annotation]", "kind = 'plain'  [class attribute]", "owner = owner  [set, line 13]", "things: list[str] = []  [set, line 14]", "size  [set, line 15]", "weight  [set, line 15]", "total = price('x')  [set, line 16]", "last = thing  [set in add, line 18]", "full: bool  [property, line 21]", "value: int  [cached property, line 23]", "start = 5  [class attribute]"]),
        ("Big", ["From shop.cart.Big at shop/cart.py:32:", "owner = 2  [set in fill, line 36]", "From shop.cart.Cart at shop/cart.py:8:", "size  [set, line 15]"]),
        ("Item", ["name: str  [field]", "tags: list = list()  [field, no repr]", "price: int = 3  [field, keyword only]"]),
        ("Colour", ["has 3 members.", "RED = 1  [member]", "AZURE = 2, an alias of BLUE  [member]"]),
        ("Pair", ["left: int  [field]", "right: str = 'r'  [field]"]),
        ("Options", ["fast: bool  [key, not required]"]),
        ("Slotted", ["one  [__slots__]", "two  [__slots__]"]),
    ],
)  # fmt: skip
def test_the_slots_of_a_class_have_their_origin_and_place(shop, name, rows):
    """Answers of the tools: class_slots."""
    text = told(shop, "class_slots", **{"class": f"shop.cart.{name}"})
    assert [row for row in rows if row not in text] == [], text


def attributes_set_in_init(cls, tree):
    """Return what `__init__` assigns to `self`, by its syntax tree; augmented assignments set nothing new."""
    node = next(
        (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == cls.__name__), None
    )
    init = (
        next(
            (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"),
            None,
        )
        if node
        else None
    )
    if init is None or not init.args.args:
        return set()
    receiver = init.args.args[0].arg
    stores = [
        each for each in ast.walk(init) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    ]
    added = {id(each.target) for each in ast.walk(init) if isinstance(each, ast.AugAssign)}
    bare = {
        id(each.target) for each in ast.walk(init) if isinstance(each, ast.AnnAssign) and each.value is None
    }
    return {
        f"_{cls.__name__.lstrip('_')}{each.attr}"
        if each.attr.startswith("__") and not each.attr.endswith("__")
        else each.attr
        for each in stores
        if isinstance(each.value, ast.Name) and each.value.id == receiver and id(each) not in added | bare
    }


MODULES = ("argparse", "asyncio.queues", "calendar", "configparser", "csv", "dataclasses", "difflib", "email.message", "enum", "http.client", "http.cookies", "inspect", "json.decoder", "logging", "logging.handlers", "mailbox", "pprint", "queue", "shlex", "socketserver", "ssl", "subprocess", "tarfile", "threading", "traceback", "tokenize", "unittest.case", "urllib.parse", "zipfile")  # fmt: skip


@pytest.mark.contract("answers.python.slots")
def test_slots_of_the_standard_library_are_those_of_dataclasses_enums_slots_and_init(live):
    """The oracle for class_slots: `dataclasses.fields`, the members of enums, `__slots__`, the syntax tree."""
    assert live.eval(f"import importlib\nfor name in {MODULES}: importlib.import_module(name)")["ok"]
    faults, count = [], 0
    for name in MODULES:
        with warnings.catch_warnings(action="ignore"):
            module = importlib.import_module(name)
        tree = ast.parse(Path(str(module.__file__)).read_bytes())
        for key, cls in sorted(vars(module).items()):
            if isinstance(cls, type) and cls.__module__ == name and cls.__name__ == key:
                rows = live.ask("class_slots", **{"class": f"{name}:{key}"})["data"]["slots"]
                faults += [
                    f"{name}.{key}: {fault}"
                    for fault in slot_faults(cls, tree, {row["name"]: row for row in rows})
                ]
                count += 1
    assert faults == []
    assert count > 300


def slot_faults(cls, tree, rows):
    wanted = attributes_set_in_init(cls, tree)
    if dataclasses.is_dataclass(cls):
        wanted |= {field.name for field in dataclasses.fields(cls)}
    if issubclass(cls, enum.Enum):
        wanted |= set(cls.__members__)
        # A value with a way of its own to print is shown by its type.
        plain = {
            key: member.value for key, member in cls.__members__.items() if type(member.value) in (int, str)
        }
        wrong = [
            key for key, value in plain.items() if not str(rows[key]["default"]).startswith(repr(value)[:50])
        ]
        yield from (f"{key} = {rows[key]['default']}" for key in wrong)
    slots = vars(cls).get("__slots__", ())
    wanted |= {slots} if isinstance(slots, str) else set(slots)
    wanted -= {"__dict__", "__weakref__"}
    mangled = {
        f"_{cls.__name__.lstrip('_')}{each}" if each.startswith("__") and not each.endswith("__") else each
        for each in wanted
    }
    yield from (f"{each} is not told" for each in mangled - rows.keys())


@pytest.mark.contract("answers.python.no-internals")
def test_hierarchies_and_searches_show_the_users_first_and_nothing_of_ours(live):
    """Answers of the tools: our own internals never appear."""
    live.eval("class Mine: pass\nclass MineError(ValueError): pass\napple = 1")
    text = told(live, "class_hierarchy", **{"class": "object"})
    assert text.splitlines()[3].strip() == "Mine"
    assert "more (" in text
    for shown in (
        text,
        told(live, "class_hierarchy", **{"class": "type"}),
        told(live, "describe", symbol="object"),
    ):
        assert not {"PrivateFinder", "PrivateLoader", "Session", "Trace", "Corpus", "Connection"} & set(
            shown.replace(",", " ").split()
        )
        assert "_gramercy" not in shown
    for pattern in ("a", "session", "gramercy", "printer", "corpus", ""):
        shown = (
            told(live, "apropos", pattern=pattern) if pattern else live.ask("apropos", pattern="e")["text"]
        )
        assert "gramercy" not in shown.lower().replace("contain 'gramercy'", "")
    assert told(live, "apropos", pattern="a").startswith("__main__.apple")
    assert "_gramercy" not in told(live, "describe", symbol="warnings.showwarning")
    assert "images/python" not in told(live, "describe", symbol="warnings.showwarning")


@pytest.mark.contract("answers.python.search")
def test_a_search_has_the_exact_name_first_and_counts_the_rest_by_module(shop):
    """Answers of the tools: exact before prefix before the rest, folded counts."""
    shop.eval("import json, string")
    lines = told(shop, "apropos", pattern="price").splitlines()
    assert lines[:2] == ["shop.cart.price  [function]", "shop.cart.Item.price  [attribute]"]
    assert told(shop, "apropos", pattern="dumps").splitlines()[0] == "json.dumps  [function]"
    last = told(shop, "apropos", pattern="e").splitlines()[-1]
    assert last.startswith("… ")
    assert "modules (" in last
    assert last.endswith("give package to see one of them")


def test_the_symbols_of_a_module_are_grouped_with_their_signatures(shop):
    """Answers of the tools: list_package_symbols honours `__all__` and names submodules."""
    text = told(shop, "package_symbols", package="shop")
    assert text.splitlines()[0].startswith("shop has 2 exported names of ")
    assert "  Cart(owner, size=3)" in text
    assert "  sell(thing: str, *, count: int = 1) -> float" in text
    assert "Submodules: cart, till" in text
    assert "hidden" not in text
    assert "  hidden = 1" in told(shop, "package_symbols", package="shop", include_internal=True)


# --- references


@pytest.mark.contract("answers.python.callers")
@pytest.mark.parametrize(
    ("name", "callers"),
    [
        ("shop.cart.price", {"shop.till.sell": [8], "shop.till.dear": [15], "shop.till.report": [21], "shop.till.later": [25], "shop.till": [27, 28], "shop.cart.Cart.__init__": [16], "shop.cart.Cart.check": [20], "shop.cart.Cart": [30]}),
        ("shop.till.dear", {"shop.till": [17]}),
        ("shop.cart.Cart.check", {"shop.cart.Cart.add": [19], "shop.cart.Big.check": [33]}),
        ("shop.cart.Cart.add", {"shop.cart.Big.fill": [35]}),
        ("shop.cart.Big.check", {}),
        ("shop.cart.RATE", {"shop.till.taxed": [23]}),
    ],
)  # fmt: skip
def test_callers_are_found_in_every_way_of_calling(shop, name, callers):
    """Answers of the tools: through caches, partials, self, super, imports, lambdas, bodies."""
    op, field, ways = (
        ("who_references", "variable", ("reads",))
        if name.endswith("RATE")
        else ("who_calls", "function", ("calls", "reads", "decorates"))
    )
    rows = shop.ask(op, **{field: name})["data"]["found"]
    found = {row["name"]: row["lines"] for row in rows if row["match"] == "exact" and row["how"] in ways}
    assert found == callers


@pytest.mark.contract("answers.python.callers")
def test_what_cannot_be_seen_is_said(shop):
    """Answers of the tools: "any loaded function" was a false claim."""
    text = told(shop, "who_calls", function="shop.cart.stream")
    assert text.startswith("shop.cart.stream is not called by any code that was found.\nSearched: ")
    assert "Not seen: uses by C code, by getattr or eval, at the top level of an evaluation" in text


def test_callers_in_a_file_that_was_edited_are_those_that_are_loaded(live, project):
    """The file on disk is not what runs, until it is loaded again."""
    file = project / "edited.py"
    file.write_text("import json\ndef old(): return json.dumps(1)\n")
    assert live.eval("import edited")["ok"]
    file.write_text("import json\n\n\ndef new(): return json.dumps(1)\n")
    rows = live.ask("who_calls", function="json.dumps")["data"]["found"]
    assert [(row["name"], row["line"]) for row in rows if row["name"].startswith("edited")] == [
        ("edited.old", 2)
    ]


@pytest.mark.contract("answers.python.callers")
@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_callers_are_counted_in_a_bounded_answer(live, project, count):
    """Bad input: 100,000 callers."""
    lines = ["def target(): pass", *(f"def f{n}(): return target()" for n in range(count))]
    name = f"crowd{count}"
    (project / f"{name}.py").write_text("\n".join(lines))
    assert live.eval(f"import {name}")["ok"]
    reply = live.ask("who_calls", seconds=60, function=f"{name}.target")
    assert reply["data"]["total"] == count
    assert len(reply["text"]) <= 8000
    assert f"more in 1 module ({name} " in reply["text"]
    assert len(told(live, "package_symbols", package=name)) <= 8000
    assert len(told(live, "apropos", pattern="f", package=name)) <= 8000


# --- values


@pytest.mark.contract("answers.python.cut")
@pytest.mark.parametrize(
    ("code", "length"),
    [
        ("'x' * 50_000", 50_002),
        ("b'z' * 50_000", 50_003),
        ("list(range(9000))", 0),
        ("{n: str(n) for n in range(9000)}", 0),
        ("class A:\n    def __repr__(self): return 'a' * 30_000\nA()", 30_000),
        ("[A() for _ in range(3)]", 90_006),
    ],
)
def test_a_value_that_was_cut_says_so_and_can_be_read_on(live, code, length):
    """Answers of the tools: values above 20,000 characters were cut without a mark."""
    live.eval("class A:\n    count = 0\n    def __repr__(self): A.count += 1; return 'a' * 30_000")
    reply = live.eval(code)
    (shown,) = reply["forms"][-1]["values"]
    assert (len(shown), shown[-1]) == (20_001, "…")
    assert (reply["truncated"], reply["lengths"]) == ({"values": 1}, [length])
    whole, number = "", reply["objects"][0]
    for _piece in range(20):
        piece = live.ask("print_value", object=number, offset=len(whole), limit=15_000)
        whole += piece["text"]
    assert whole.startswith(shown[:-1])
    assert piece["data"]["total"] == len(whole)
    assert length in (0, len(whole))


@pytest.mark.contract("answers.python.cut")
def test_reading_on_runs_no_code_of_the_users(live):
    """A safe tool prints only what can be printed without it; other objects are shown by their type."""
    live.eval("class A:\n    count = 0\n    def __repr__(self): A.count += 1; return 'a' * 50")
    number = live.eval("[A() for _ in range(2000)]")["objects"][0]
    printed = int(live.value("A.count"))
    assert live.ask("print_value", object=number, offset=60_000, limit=50)["text"].strip("a, ") == ""
    short = live.eval("[A(), 1]")["objects"][0]
    printed += 1
    assert live.ask("print_value", object=short)["text"] == "[<A object>, 1]"
    assert int(live.value("A.count")) == printed
    assert live.ask("print_value", object=999_999)["error"]["type"] == "NO-SUCH-OBJECT"
    assert live.ask("print_value", object=short, offset=10**12)["text"] == ""


def test_a_short_value_has_no_length(live):
    """What is empty is left out of a reply."""
    assert "lengths" not in live.eval("[1, 2]")


@pytest.mark.contract("answers.python.frames")
def test_frames_in_files_show_their_line_and_ours_never_appear(live, project):
    """Answers of the tools: frames of project files lacked their source."""
    (project / "fails.py").write_text("def f(x):\n    return 1 / x  # here\n")
    error = live.eval("import fails, json\nfails.f(0)")["error"]
    assert error["backtrace"][0] == "0: f(x=0) at fails.py:2: return 1 / x  # here"
    assert len(error["backtrace"]) == 2
    frames = live.eval("json.loads('{')")["error"]["backtrace"]
    assert any("decoder.py:" in frame and frame.endswith("self.scan_once(s, idx)") for frame in frames)


# --- bad input


HOSTILE = """
import sys, types, time, functools, importlib.util
ran = 0
def touch(*a, **k):
    global ran
    ran += 1
    while True: pass
class Slow:
    __repr__ = __str__ = __doc__ = __call__ = __dir__ = property(touch)
    def __getattr__(self, name): touch()
    @property
    def prop(self): touch()
class Meta(type):
    __instancecheck__ = __subclasscheck__ = __subclasses__ = __call__ = touch
    __signature__ = __doc__ = __module__ = __annotations__ = property(touch)
    def mro(cls): return type.mro(cls)
class Odd(metaclass=Meta):
    __slots__ = ()
class Signed:
    __signature__ = property(touch)
    def __init__(self, a): pass
class Lazy(types.ModuleType):
    __getattribute__ = touch
lazy = types.ModuleType('lazy'); lazy.__getattr__ = touch; sys.modules['lazy'] = lazy
loud = Lazy('loud'); sys.modules['loud'] = loud
slow = Slow()
def wraps(): pass
wraps.__wrapped__ = wraps
circle = functools.partial(slow)
class Liar:
    __class__ = property(touch)
liar = Liar()
deep = []
for _ in range(100_000): deep = [deep]
wide = type('Wide', (), {f'a{n}': n for n in range(20_000)})
long = 'x' * 10_000_000
many = {n: [n] * 3 for n in range(200_000)}
class Documented:
    pass
Documented.__doc__ = 'word ' * 1_000_000
def annotated(a: slow = slow, *, b: Odd = liar) -> deep: pass
def many_arguments(%s): pass
""" % ", ".join(f"a{n}" for n in range(3000))  # noqa: UP031 - the braces are those of the code


@pytest.mark.contract("answers.python.runs-nothing")
def test_hostile_objects_get_a_bounded_answer_and_run_nothing(live):
    """Bad input: what raises, hangs, lies, prints megabytes, is deep or wide."""
    reply = live.eval(HOSTILE)
    assert reply["ok"], reply["error"]
    names = "slow Slow Slow.prop Odd Meta Signed lazy loud wraps circle liar Liar deep wide long many Documented annotated many_arguments".split()  # noqa: SIM905
    fields = {
        "describe": "symbol",
        "arglist": "function",
        "who_calls": "function",
        "who_references": "variable",
        "class_slots": "class",
        "class_hierarchy": "class",
    }
    for name in names:
        for op, field in fields.items():
            started = time.monotonic()
            reply = live.ask(op, **{field: name})
            text = reply["text"] if reply["ok"] else reply["error"]["message"]
            assert reply["ok"] or reply["error"]["type"] in ("TypeError", "NameError"), (op, name, text)
            assert len(text) <= 8000, (op, name)
            assert time.monotonic() - started < 10, (op, name)
    for package in ("lazy", "loud", "__main__"):
        assert len(live.ask("package_symbols", package=package, include_internal=True)["text"]) <= 8000
    assert len(live.ask("apropos", pattern="a")["text"]) <= 8000
    assert live.ask("definitions")["ok"]
    assert live.value("ran") == "0"


def test_a_module_that_imports_lazily_is_not_imported_by_a_question(live, project):
    """Describing must not import."""
    (project / "heavy.py").write_text("print('loaded')\n")
    (project / "lazily.py").write_text("def __getattr__(name):\n    import heavy\n    return heavy\n")
    live.eval(
        "import lazily, importlib.util as u, sys\nspec = u.find_spec('heavy')\nspec.loader = u.LazyLoader(spec.loader)\nheavy = u.module_from_spec(spec)\nsys.modules['heavy'] = heavy\nspec.loader.exec_module(heavy)"
    )
    for symbol in ("lazily", "heavy", "lazily.anything"):
        live.ask("describe", symbol=symbol)
    live.ask("package_symbols", package="heavy", include_internal=True)
    live.ask("package_symbols", package="lazily", include_internal=True)
    live.ask("who_calls", function="lazily.__getattr__")
    assert live.value("type(sys.modules['heavy']).__name__") == "'_LazyModule'"


def test_a_module_that_fails_on_import_is_told_as_not_loaded(live, project):
    """Bad input: modules that fail on import."""
    (project / "broken.py").write_text("x = 1\nraise ValueError('no')\n")
    assert live.eval("import broken")["error"]["type"] == "ValueError"
    error = live.ask("describe", symbol="broken.x")["error"]
    assert error["type"] == "NameError"
    assert live.ask("package_symbols", package="broken")["error"]["type"] == "ModuleNotFoundError"
