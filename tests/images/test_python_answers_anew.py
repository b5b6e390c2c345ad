"""What was found out for one question never outlives a change: the next answer is that of a fresh process."""

from contextlib import closing

import pytest

from tests.images import children

PREPARED = """
import importlib, json, os, sys, textwrap, types
def area(text): return textwrap.dedent(text)
def total(texts): return json.dumps(list(map(area, texts)))
json.last_of_json = json.dumps
"""
# Each is made in a process that has been asked and in one that has not.
CHANGES = {
    "a function of the user's is defined again": "def area(text): return json.dumps(text)",
    "a function of the user's is gone": "del total",
    "a function of a module is another one": "json.dumps = textwrap.dedent",
    "a function of a module is one of the user's": "textwrap.dedent = area",
    "a function of a module is a value": "textwrap.dedent = 5",
    "a value of a module is a class": "class dedent: pass\ntextwrap.dedent = dedent",
    "a name of a module is gone": "del textwrap.dedent",
    "a name of a module is new": "textwrap.dedent_all = lambda text: textwrap.dedent(text)",
    "a thing has another name at the same place": "del json.last_of_json\njson.newest_of_json = json.dumps",
    "two names have changed places": (
        "one, two = json.__dict__.pop('loads'), json.__dict__.pop('last_of_json')\n"
        "json.last_of_json, json.loads = one, two"
    ),
    "a module is loaded once more": "_ = importlib.reload(json.encoder), importlib.reload(json)",
    "a module is new": "import sched, calendar",
    "a module is gone": "del sys.modules['textwrap'], sys.modules['json']",
    "a module is another object": (
        "space = dict(vars(json))\nsys.modules['json'] = types.ModuleType('json')\n"
        "vars(sys.modules['json']).update(space, dumped=json.dumps)"
    ),
    "a module is made by hand": (
        "made = sys.modules['made'] = types.ModuleType('made')\n"
        "exec('import textwrap\\ndef dedented(): return textwrap.dedent(str())', vars(made))"
    ),
    "a class of a module has another method": (
        "def wrap(self, text): return json.dumps(area(text))\ntextwrap.TextWrapper.wrap = wrap"
    ),
    "a class of a module of the import system has another method": (
        "def dumped(self): return json.dumps(self)\ndumped.__module__ = '_frozen_importlib'\n"
        "sys.modules['_frozen_importlib'].ModuleSpec.dumped = dumped"
    ),
    "a name has two lines": "vars(json)['dum\\nped'] = 1",
    "a name is no text": "vars(json)[7] = json.dumped = 1",
    "the session's module is hidden": "sys.modules['__main__'] = None",
}
# These change nothing that is told.
UNSEEN = {CHANGES["a module is loaded once more"], CHANGES["the session's module is hidden"]}
QUESTIONS = [
    *({"op": "apropos", "pattern": pattern} for pattern in ("dump", "dedent", "json", "area", "a", "_of_")),
    *({"op": "apropos", "pattern": "d", "package": package} for package in ("json", "os", "__main__")),
    *(
        {"op": op, key: name}
        for op, key in (("who_calls", "function"), ("who_references", "variable"))
        for name in (
            "area",
            "json.dumps",
            "textwrap.dedent",
            "json.loads",
            "json.newest_of_json",
            "os.fspath",
        )
    ),
]


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Start a zygote."""
    with closing(children.Family(tmp_path_factory.mktemp("anew"), "python")) as family:
        yield family


def answers(process):
    """Return what the process says to all questions."""
    replies = [process.ask(**question) for question in QUESTIONS]
    return [
        (reply.get("text"), reply.get("data"), (reply.get("error") or {}).get("message")) for reply in replies
    ]


@pytest.mark.contract("answers.python.search")
@pytest.mark.contract("answers.python.callers")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.slow
def test_an_answer_is_that_of_a_process_that_was_never_asked(family, change):
    """Answers of the tools: what is kept between questions is told only as long as it is true."""
    asked, fresh = family.live(), family.live()
    for process in (asked, fresh):
        assert process.eval(PREPARED)["ok"]
    before = answers(asked)
    for process in (asked, fresh):
        assert process.eval(change)["ok"]
    after = answers(asked)
    assert after == answers(fresh)
    assert (after == before) == (change in UNSEEN)


def test_a_name_of_a_class_of_its_own_runs_no_code(family):
    """Answers of the tools: a key that compares in its own way is passed by."""
    process = family.live()
    assert process.eval(PREPARED)["ok"]
    answers(process)
    process.eval(
        "told = []\nclass Text(str):\n    __hash__ = str.__hash__\n"
        "    def __eq__(self, other): told.append('eq'); return str.__eq__(self, other)\n"
        "    def lower(self): told.append('lower'); return 'dump'\n"
        "del json.last_of_json\nvars(json)[Text('last_of_json')] = 1\ntold.clear()"
    )
    shown = process.ask("apropos", pattern="last_of")
    answers(process)
    assert shown["text"].startswith("No names contain 'last_of'")
    assert process.eval("told")["forms"][-1]["values"] == ["[]"]


@pytest.mark.contract("answers.python.callers")
def test_a_class_that_a_registry_holds_is_gone_through_under_its_own_name(family):
    """Answers of the tools: a decorator that registers a class does not hide its methods."""
    process = family.live()
    process.eval(
        "registry = {}\ndef register(cls):\n    registry[cls.__name__] = cls\n    return cls\n"
        "def area(): return 1\n@register\nclass Shape:\n    def size(self): return area()"
    )
    found = process.ask("who_calls", function="area")["data"]["found"]
    assert [(row["name"], row["how"]) for row in found] == [("__main__.Shape.size", "calls")]
