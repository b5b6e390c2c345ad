"""Records, dates, paths and containers of the standard library are shown by what they hold, not by their type."""

# ruff: noqa: E501 - the forms are data, and read best on one line

from contextlib import closing

import pytest

from tests.images import children

WORLD = """
import collections, dataclasses, datetime, decimal, pathlib, types, typing, uuid
ran = []
@dataclasses.dataclass
class Order:
    number: int
    price: decimal.Decimal
    lines: list = dataclasses.field(default_factory=list)
    password: str = dataclasses.field(default='hidden', repr=False)
    def __repr__(self): ran.append('repr'); return 'own'
    def __getattr__(self, name): ran.append(name); raise AttributeError(name)
    @property
    def total(self): ran.append('total')
class Point(typing.NamedTuple):
    x: int
    y: object
    def __repr__(self): ran.append('repr'); return 'own'
class Key(str):
    def __hash__(self): ran.append('hash'); return str.__hash__(self)
    def __eq__(self, other): ran.append('eq'); return str.__eq__(self, other)
class Zone(datetime.tzinfo):
    def utcoffset(self, when): ran.append('zone'); return datetime.timedelta(0)
    def __repr__(self): ran.append('zone'); return 'Zone'
class Meta(type):
    def __eq__(cls, other): ran.append('meta'); return False
    def __hash__(cls): ran.append('meta'); return 1
class Odd(metaclass=Meta):
    shape = dtype = tzinfo = property(lambda self: ran.append('property'))
class Decimal(decimal.Decimal):
    __module__ = 'decimal'
    def __repr__(self): ran.append('decimal'); return 'own'
order = Order(7, decimal.Decimal('9.50'), [Order(8, decimal.Decimal(1))])
knot = Order(1, decimal.Decimal(2)); knot.lines.append(knot)
globals().update(
    point=Point(1, Point(2, None)), day=datetime.date(2026, 11, 17),
    time=datetime.datetime(2026, 11, 17, 12, 30, tzinfo=datetime.timezone.utc), foreign=datetime.datetime(2026, 1, 1, tzinfo=Zone()),
    delta=datetime.timedelta(hours=1), path=pathlib.Path('/srv/app'), here=pathlib.Path('src/app.py'), name=uuid.UUID(int=5),
    queue=collections.deque([1, 2]), tally=collections.Counter({Key('a'): 2}), groups=collections.defaultdict(list, {'a': [1]}),
    ordered=collections.OrderedDict(b=1), space=types.SimpleNamespace(a=1), error=ValueError('no', 2), span=range(3), odd=Odd(), fake=Decimal(1),
)
ran.clear()
"""
SHOWN = {
    "order": "Order(number=7, price=Decimal('9.50'), lines=[Order(number=8, price=Decimal('1'), lines=[])])",
    "knot": "Order(number=1, price=Decimal('2'), lines=[<Order object>])",
    "point": "Point(x=1, y=Point(x=2, y=None))",
    "day": "datetime.date(2026, 11, 17)",
    "time": "datetime.datetime(2026, 11, 17, 12, 30, tzinfo=datetime.timezone.utc)",
    "foreign": "<datetime.datetime object>",
    "delta": "datetime.timedelta(seconds=3600)",
    "path": "PosixPath('/srv/app')",
    "here": "PosixPath('src/app.py')",
    "name": "UUID('00000000-0000-0000-0000-000000000005')",
    "queue": "deque([1, 2])",
    "tally": "Counter({<Key object with 1 items>: 2})",
    "groups": "defaultdict(<class 'list'>, {'a': [1]})",
    "ordered": "OrderedDict({'b': 1})",
    "space": "namespace(a=1)",
    "error": "ValueError('no', 2)",
    "span": "range(0, 3)",
    "odd": "<Odd object>",
    "fake": "<decimal.Decimal object>",
}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Return a process with one value of each kind."""
    with closing(children.Family(tmp_path_factory.mktemp("shapes"), "python")) as family:
        live = family.live()
        reply = live.eval(WORLD)
        assert reply["ok"], reply["error"]
        yield live


@pytest.mark.contract("day.eyes.records")
@pytest.mark.parametrize(("name", "shown"), SHOWN.items())
def test_a_value_is_shown_by_what_it_holds_and_runs_no_code(live, name, shown):
    """A day's work: opaque values in frames cost a call each."""
    assert live.ask("describe", symbol=name)["data"]["preview"] == shown
    assert live.value("ran") == "[]"


@pytest.mark.contract("day.eyes.records.frames")
def test_the_locals_and_the_backtrace_of_an_error_show_records(live):
    """A day's work: what a frame held is what a reader looks for."""
    reply = live.eval("def fail(order): return order.number / 0\nfail(order)", keep_moment="m1")
    keeper = live.family.accept()
    assert "fail(order=Order(number=7, price=Decimal('9.50'), l…) at" in reply["error"]["backtrace"][0]
    row = keeper.ask("locals", frame=0)["data"]["locals"][0]
    assert row["value"] == SHOWN["order"]
    assert "hidden" not in str(row)


@pytest.mark.contract("day.eyes.records")
def test_a_listing_and_a_description_show_records(live):
    """A variable is told in the same way wherever it is told."""
    live.eval("kept = Point(1, 2)")
    variables = live.ask("definitions", kind="variables")["data"]["variables"]
    assert {"name": "kept", "value": "Point(x=1, y=2)"} in variables
    assert "Value: Point(x=1, y=2)" in live.ask("describe", symbol="kept")["text"]
