"""Looks are looks: no safe tool runs any code of the user's, whatever it is shown.

The safe tools are found by their level, in all toolsets. One with an argument that is not known here fails,
so that a new one has to say what is to be looked at.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gramercy.tools.safety import Safety
from tests.toolsets.conftest import Desk

TRAPS = Path(__file__).with_name("look_traps.lisp").read_text(encoding="utf-8")
LISP_NAMES = (
    *("strange", "stranger", "unfinished", "called", "trap", "channel", "mishap", "box", "shape", "relic"),
    *("bait", "meta", "later-meta", "strange-generic", "strange-method", "direct-slot", "missing-class"),
    *(
        "ask-strange",
        "(setf ask-strange)",
        "strange-part",
        "(setf strange-part)",
        "stranger-more",
        "trap-slot",
    ),
    *(
        "mishap-note",
        "box-held",
        "make-box",
        "toucher",
        "users-toucher",
        "failing",
        "snare",
        "lure",
        "baited",
    ),
    *("snared", "woven", "odd-order", "ordered", "*strange*", "*stranger*", "*called*", "*trap*", "*box*"),
    *("*channel*", "*table*", "*metaobjects*", "*nested*", "*shapes*", "print-object", "documentation"),
    *("sb-mop:class-slots", "make-instance", "cl-user", "nosuch", "traps"),
)
PYTHON = '''
sprung = 0
armed = ""
def spring(*_a, **_k):
    global sprung
    if armed:
        sprung += 1
        open("sprung.txt", "a").close()
        while armed == "loop": pass
    return 0
class Meta(type):
    def __getattr__(cls, name): spring(); raise AttributeError(name)
    def __getattribute__(cls, name):
        spring()
        return type.__getattribute__(cls, name)
    def __repr__(cls): spring(); return "Meta"
    def __dir__(cls): spring(); return []
    def __instancecheck__(cls, other): spring(); return True
    def __subclasscheck__(cls, other): spring(); return True
    def __subclasses__(cls): spring(); return []
    def __eq__(cls, other): spring(); return True
    def __hash__(cls): spring(); return 7
    def __len__(cls): spring(); return 0
    def __iter__(cls): spring(); return iter(())
    def __call__(cls, *a, **k): spring(); return type.__call__(cls, *a, **k)
    def __or__(cls, other): spring(); return cls
    def __set_name__(cls, *a): spring()
    def mro(cls): spring(); return type.mro(cls)
    @property
    def __doc__(cls): spring(); return "doc"
    @property
    def __module__(cls): spring(); return "__main__"
    @property
    def __name__(cls): spring(); return "name"
    @property
    def __dict__(cls): spring(); return {}
    @property
    def __mro__(cls): spring(); return ()
    @property
    def __bases__(cls): spring(); return ()
    @property
    def __annotations__(cls): spring(); return {}
    @property
    def __signature__(cls): spring(); return None
    @property
    def __wrapped__(cls): spring(); return None
    @property
    def __class__(cls): spring(); return type
class Descriptor:
    def __get__(self, instance, owner): spring(); return 1
    def __set__(self, instance, value): spring()
    def __getattr__(self, name): spring(); raise AttributeError(name)
    @property
    def __doc__(self): spring(); return "doc"
    @property
    def __isabstractmethod__(self): spring(); return True
    @property
    def __objclass__(self): spring(); return int
class Trap(metaclass=Meta):
    """A trap."""
    field = Descriptor()
    __slots_like__ = Descriptor()
    plain: int = 3
    lazy: "spring()" = 4
    def method(self, x: "spring()" = 1): spring()
    @property
    def prop(self): spring(); return 1
    @classmethod
    def made(cls): spring()
    @staticmethod
    def loose(): spring()
    def __repr__(self): spring(); return "trap"
    def __str__(self): spring(); return "trap"
    def __getattr__(self, name): spring(); raise AttributeError(name)
    def __getattribute__(self, name): spring(); return object.__getattribute__(self, name)
    def __dir__(self): spring(); return []
    def __len__(self): spring(); return 0
    def __length_hint__(self): spring(); return 0
    def __bool__(self): spring(); return True
    def __eq__(self, other): spring(); return True
    def __hash__(self): spring(); return 1
    def __iter__(self): spring(); return iter(())
    def __contains__(self, x): spring(); return True
    def __getitem__(self, k): spring(); return None
    def __format__(self, spec): spring(); return ""
    def __sizeof__(self): spring(); return 1
    def __reduce_ex__(self, p): spring(); return (int, ())
    def __index__(self): spring(); return 1
    def __fspath__(self): spring(); return "x"
    def __rich_repr__(self): spring(); return []
    def _repr_html_(self): spring(); return ""
    def _repr_mimebundle_(self, **k): spring(); return {}
    @property
    def __doc__(self): spring(); return "trap"
    @property
    def __class__(self): spring(); return int
    @property
    def __dict__(self): spring(); return {}
    @property
    def __module__(self): spring(); return "m"
    @property
    def __signature__(self): spring(); return None
    @property
    def __wrapped__(self): spring(); return None
    @property
    def __annotations__(self): spring(); return {}
    @property
    def __code__(self): spring(); return None
    def __call__(self, a): spring()
class Below(Trap):
    other = 1
class Text(str):
    def __repr__(self): spring(); return "text"
    def __str__(self): spring(); return "text"
    def __eq__(self, other): spring(); return True
    def __hash__(self): spring(); return str.__hash__(self)
    def __len__(self): spring(); return 1
    def __getitem__(self, k): spring(); return "t"
    def __format__(self, s): spring(); return "t"
    def split(self, *a): spring(); return []
    def startswith(self, *a): spring(); return True
    def __contains__(self, x): spring(); return True
class Number(int):
    def __repr__(self): spring(); return "number"
    def __str__(self): spring(); return "number"
    def __bool__(self): spring(); return True
    def __index__(self): spring(); return 1
    def __eq__(self, other): spring(); return True
    def __hash__(self): return 1
class Numbers(list):
    def __repr__(self): spring(); return "numbers"
    def __iter__(self): spring(); return iter(())
    def __len__(self): spring(); return 0
    def __getitem__(self, key): spring(); return None
class Table(dict):
    def __repr__(self): spring(); return "table"
    def items(self): spring(); return []
    def keys(self): spring(); return []
    def get(self, *a): spring(); return None
    def __iter__(self): spring(); return iter(())
    def __len__(self): spring(); return 0
    def __contains__(self, k): spring(); return True
    def __getitem__(self, key): spring(); return None
    def __missing__(self, key): spring(); return None
class Failure(Exception):
    def __str__(self): spring(); return "failure"
    def __repr__(self): spring(); return "failure"
    def __getattribute__(self, name): spring(); return Exception.__getattribute__(self, name)
trap = Trap()
text = Text("x")
number = Number(3)
numbers = Numbers([1])
table = Table(a=1)
failure = Failure("f")
nested = [trap, (trap, {"k": trap}), {1: [trap]}, {text: number}, failure]
def toucher(argument=trap, *, key: "spring()" = text): return trap, nested, spring()
def failing(subject):
    copy = subject
    raise ValueError("no")
def looped(): pass
looped.__wrapped__ = looped
looped.__doc__ = Text("doc")
looped.__name__ = Text("looped")
looped.__qualname__ = Text("looped")
looped.__module__ = trap
class Holder:
    def method(self): self.stored = 1
    held = looped
Holder.method.__name__ = Text("__init__")
Holder.method.__module__ = text
named = {"spring": spring, "__name__": text, "__builtins__": __builtins__}
def unnamed(subject):
    copy = subject
    raise failure
replaced = {"co_name": Text("coded"), "co_filename": Text("coded.py")}
if hasattr(unnamed.__code__, "co_qualname"):
    replaced["co_qualname"] = Text("coded")
import types
coded = types.FunctionType(failing.__code__.replace(**replaced), {**named, "failure": failure})
def marked(): pass
marked.__wrapped__ = trap
marked.__signature__ = trap
marked.__doc__ = text
marked.__annotations__ = Table(a=trap)
marked.__defaults__ = (trap,)
def __getattr__(name): spring(); raise AttributeError(name)
def __dir__(): spring(); return []
import sys, types, linecache
class Module(types.ModuleType):
    def __getattribute__(self, name): spring(); return types.ModuleType.__getattribute__(self, name)
    def __getattr__(self, name): spring(); raise AttributeError(name)
    def __dir__(self): spring(); return []
    def __repr__(self): spring(); return "module"
    @property
    def __file__(self): spring(); return "x.py"
    @property
    def __doc__(self): spring(); return "doc"
    @property
    def __all__(self): spring(); return []
odd = Module("odd")
odd.__dict__.update(__path__=Numbers(["x"]), __all__=Numbers([text]), value=trap, function=toucher, Trap=Trap)
sys.modules["odd"] = odd
sys.modules["odd.trap"] = trap
class Finder:
    def find_spec(self, *a, **k): spring(); return None
    def __getattr__(self, name): spring(); raise AttributeError(name)
sys.meta_path.insert(0, Finder())
sys.path_hooks.insert(0, spring)
for name in ("getline", "getlines", "updatecache", "checkcache", "lazycache"):
    setattr(linecache, name, spring)
'''
PYTHON_NAMES = (
    *("trap", "Trap", "Below", "Meta", "Descriptor", "Trap.field", "Trap.prop", "Trap.made", "Trap.method"),
    *(
        "trap.field",
        "trap.prop",
        "trap.nosuch",
        "Trap.nosuch",
        "Text",
        "text",
        "text.split",
        "Number",
        "number",
    ),
    *("numbers", "Numbers", "table", "Table", "Table.items", "failure", "Failure", "nested", "toucher"),
    *(
        "failing",
        "looped",
        "marked",
        "Holder",
        "Holder.method",
        "Holder.held",
        "coded",
        "unnamed",
        "odd",
        "odd.value",
        "odd.nosuch",
        "odd.function",
        "odd.Trap",
        "odd.trap",
    ),
    *("spring", "nosuch", "sys.meta_path", "linecache.getline", "__main__", "Finder", "Module"),
)


class Trapped(Desk):
    """A desk whose image is full of traps: what a trap writes, and objects to look into."""

    mark: Path
    objects: list[int]

    def note_mark(self, told):
        """Remember where a trap leaves its mark: beside what the image told to be its directory."""
        self.mark = Path(told.split("=> ")[1].split("\n")[0].strip("\"'")) / "sprung.txt"
        self.mark.unlink(missing_ok=True)


@pytest.fixture(params=["sbcl", "python"])
def trapped(request, images, workspace, project):
    """Return a desk with an image full of traps, the objects that it has shown, and its project."""
    desk = Trapped(images(request.param), workspace, request.param)
    (project / "notes.lisp").write_text("(defun noted () 1)\n", encoding="utf-8")
    if request.param == "sbcl":
        laid = desk.text("eval_form", form=f"{TRAPS}\n(lay-all)")
        assert int(laid.split("=> ")[1].split()[0]) > 900
        shown = desk.text("eval_form", form="(list *shapes* *nested* *metaobjects* *table* *called* *trap*)")
        desk.failure("eval_form", form="(failing (list *strange* *nested* *metaobjects*))")
        desk.text("eval_form", form="(redefine)")
    else:
        desk.text("eval_form", form=PYTHON)
        shown = desk.text(
            "eval_form", form="[nested, trap, Trap, text, numbers, table, odd, marked, looped, coded]"
        )
        desk.failure("eval_form", form="coded(nested)")
    desk.note_mark(desk.evaluate("(sb-posix:getcwd)", "import os; os.getcwd()"))
    desk.objects = [int(number) for number in re.findall(r"\[object (\d+)\]", shown)]
    return desk


def arm(desk, how):
    """Let traps count from now on; with how "loop", each also goes on for ever."""
    desk.evaluate(f"(setf *sprung* '() *armed* :{how})", f"sprung, armed = 0, {how!r}")


def sprung(desk):
    """Return the traps that were sprung, after disarming them."""
    return desk.evaluate("(setf *armed* nil *print-pretty* nil) *sprung*", "armed = None\nsprung")


def subjects(desk, argument):
    """Return what an argument of a safe tool is to be tried with."""
    names = LISP_NAMES if desk.language == "sbcl" else PYTHON_NAMES
    packages = desk.either("cl-user", "__main__"), desk.either("nosuch", "odd")
    return {
        **dict.fromkeys(("symbol", "function", "class", "variable", "name", "system", "pattern"), names),
        "package": packages,
        "code": ["(list 1)", "#.(spring)", "spring()", '"'],
        "path": ["notes.lisp", "."],
        "glob": ["*.lisp"],
        "label": ["kept"],
        "moment": [],
        "buffer": [],
        **dict.fromkeys(
            ("frame", "offset", "limit", "depth", "context", "start", "end", "evaluation", "job"), (1, 2)
        ),
        "object": desk.objects,
    }[argument]


def calls_of(desk, tool):
    """Return calls of a safe tool: each argument with all that there is for it to look at."""
    base = {name: subjects(desk, name)[0] for name in tool.required}
    yield base
    for name, schema in tool.schema["properties"].items():
        if schema["type"] == "boolean":
            yield {**base, name: True}
        elif "enum" in schema:
            yield from ({**base, name: word} for word in schema["enum"])
        else:
            yield from ({**base, name: subject} for subject in subjects(desk, name))


def look_everywhere(desk, tool):
    """Call a safe tool with all there is, and with the objects it names; return what it said."""
    done = []
    queue, seen = list(calls_of(desk, tool)), set[str]()
    while queue and len(seen) < 150:
        arguments = queue.pop(0)
        if (key := repr(sorted(arguments.items()))) in seen:
            continue
        seen.add(key)
        result = desk.call(tool.name, **arguments)
        if result.success:
            done.append(result.content)
        if "object" in tool.required:
            found = re.findall(r"(?:is object |  #)(\d+)", result.content)
            queue += [{"object": int(number)} for number in found]
    return done


def safe_tools(desk):
    return [tool for tool in desk.registry.select() if tool.safety_level is Safety.SAFE]


# No document is attached to the workspace here.
NO_BUFFER = {"read_buffer", "search_in_buffer"}


@pytest.mark.contract("trust.looks.read-only")
@pytest.mark.parametrize("how", ["count", "loop"])
def test_no_safe_tool_runs_a_method_of_the_users(trapped, how):
    """Safe is read-only: with a metaclass of the user's, twelve tools ran the user's methods."""
    tools = safe_tools(trapped)
    assert len(tools) >= 26
    arm(trapped, how)
    for tool in tools:
        answers = look_everywhere(trapped, tool)
        assert answers or tool.name in NO_BUFFER | {"describe_system"}, tool.name
        assert not trapped.mark.exists(), tool.name
    assert sprung(trapped).startswith(trapped.either("=> NIL", "=> 0"))
    assert not trapped.mark.exists()


# Methods for objects of SBCL's own: each would run while the server writes an answer.
INTRUDERS = {
    "(defmethod print-object :around ((x t) s) (spring) (call-next-method))": "PRINT-OBJECT (T T)",
    "(defmethod print-object :before ((x string) s) (spring))": "PRINT-OBJECT (STRING T)",
    "(defmethod print-object :before ((x (eql 7)) s) (spring))": "PRINT-OBJECT ((EQL 7) T)",
    "(defmethod shared-initialize :after ((x t) names &key) (spring))": "SHARED-INITIALIZE (T T)",
    "(defmethod sb-gray:stream-write-char :before ((x t) c) (spring))": "STREAM-WRITE-CHAR (T T)",
    "(defmethod class-name :before ((x class)) (spring))": "CLASS-NAME (CLASS)",
}
# Methods that have nothing to do with what the server handles; programs have such ones.
GUESTS = [
    "(defmethod print-object :before ((x hash-table) s) (spring))",
    "(defmethod asdf:perform :after ((o asdf:load-op) (c (eql (asdf:find-system :asdf)))) (spring))",
    "(defmethod gramercy:picture ((x array)) (spring) nil)",
    "(defmethod slot-unbound :before ((c t) (x t) n) (spring))",
    "(defmethod documentation :around ((x t) (k t)) (spring) (call-next-method))",
    "(defmethod describe-object :around ((x t) s) (spring) (call-next-method))",
    "(defmethod sb-bsd-sockets:socket-open-p ((x t)) (spring) nil)",
    "(defclass mine () ()) (defmethod print-object ((x mine) s) (spring))",
]
SPRING = """(defun spring () (when (probe-file "armed.txt")
  (with-open-file (mark "sprung.txt" :direction :output :if-exists :append :if-does-not-exist :create))))"""


def looked(desk, tool):
    """Return the results of a safe tool while traps count; evaluations before and after do not."""
    desk.objects = [1]
    (desk.mark.parent / "armed.txt").touch()
    results = [desk.call(tool.name, **arguments) for arguments in calls_of(desk, tool)]
    (desk.mark.parent / "armed.txt").unlink()
    return results


@pytest.fixture
def marked_desk(images, workspace):
    """Return a desk with a Lisp image, and the file that a trap there writes."""
    desk = Trapped(images("sbcl"), workspace)
    desk.note_mark(desk.text("eval_form", form=f"{SPRING} (sb-posix:getcwd)"))
    return desk


@pytest.mark.contract("trust.looks.intruders")
@pytest.mark.parametrize("method", INTRUDERS)
def test_a_look_is_refused_while_a_method_for_everything_would_run_in_it(marked_desk, method):
    """Safe is read-only: such a method would run in the answer to every question."""
    assert marked_desk.call("eval_form", form=method).success
    for tool in safe_tools(marked_desk):
        results = looked(marked_desk, tool)
        assert not marked_desk.mark.exists(), tool.name
        if tool.name in {"describe_symbol", "class_slots", "inspect_object", "list-definitions"}:
            assert not any(result.success for result in results)
            assert "A look runs no code of yours" in results[0].content
            assert INTRUDERS[method] in results[0].content


@pytest.mark.contract("trust.looks.intruders")
def test_a_look_is_answered_again_once_the_method_is_gone(marked_desk):
    """A refusal says what to do, and that helps."""
    marked_desk.call("eval_form", form="(defmethod print-object :before ((x string) s) (spring))")
    assert not marked_desk.call("describe_symbol", symbol="car").success
    found = "(find-method #'print-object '(:before) (list (find-class 'string) (find-class t)))"
    marked_desk.text("eval_form", form=f"(progn (remove-method #'print-object {found}) nil)")
    assert marked_desk.call("describe_symbol", symbol="car").success


@pytest.mark.contract("trust.looks.intruders")
@pytest.mark.parametrize(
    "method", [GUESTS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in GUESTS[1:])]
)
def test_methods_for_other_things_keep_no_look_from_being_answered(marked_desk, method):
    """Programs print tables in their own way, and systems have methods on what ASDF does."""
    assert marked_desk.call("eval_form", form=method).success
    for tool in safe_tools(marked_desk):
        results = looked(marked_desk, tool)
        assert not any("A look runs no code of yours" in result.content for result in results), tool.name
        assert not marked_desk.mark.exists(), tool.name
