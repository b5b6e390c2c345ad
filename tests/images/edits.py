"""Edits of a module that lives in an image: what held objects do afterwards, and what the reply says.

Each case is written as a text before and after, code that holds on to things, an expression, and its value.
Where `told` is empty, the reply has the names alone; else each of these words is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Edit:
    """One edit: `m` is the module in the code."""

    name: str
    before: str
    after: str
    hold: str
    check: str
    value: str
    told: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ("line ",)


def edit(name, before, after, hold, check, value, *told, unsaid=None):  # noqa: PLR0913, PLR0917 - a row
    """Make a case; with words to be told, nothing is expected to be left unsaid."""
    left = unsaid if unsaid is not None else (() if told else ("line ", "not:"))
    return Edit(name, dedent(before), dedent(after), dedent(hold), check, value, told, left)


CLOSURE = """
def maker(n):
    def inner(x):
        return x + n
    return inner
"""
CACHED = """
import functools
@functools.lru_cache(None)
def f(x):
    return x + 1
"""
REGISTRY = """
table = {}
def register(name):
    def deco(f):
        table[name] = f
        return f
    return deco
@register("a")
def f():
    return 1
"""
PLAIN = """
class A:
    size = 1
    def get(self):
        return self.size
"""
DATACLASS = """
import dataclasses
@dataclasses.dataclass
class A:
    x: int = 1
    def twice(self):
        return self.x * 2
"""

EDITS = [
    # Bodies
    edit("function", "def f(): return 1\n", "def f(): return 2\n", "h = m.f", "h(), m.f()", "(2, 2)"),
    edit(
        "method",
        PLAIN,
        PLAIN.replace("return self.size", "return -self.size"),
        "a = m.A(); b = a.get",
        "a.get(), b(), type(a) is m.A",
        "(-1, -1, True)",
    ),
    edit("lambda", "f = lambda x: x + 1\n", "f = lambda x: x + 2\n", "h = m.f", "h(1)", "3"),
    edit(
        "lambda in a table",
        "T = {'a': lambda: 1, 'b': lambda: 2}\n",
        "T = {'a': lambda: 1, 'b': lambda: 3}\n",
        "t = m.T",
        "t['a'](), t['b'](), m.T is t",
        "(1, 3, True)",
    ),
    edit(
        "nested function",
        CLOSURE,
        CLOSURE.replace("x + n", "x * n"),
        "h = m.maker(5)",
        "h(2), m.maker(5)(2)",
        "(10, 10)",
    ),
    edit(
        "async function",
        "async def f(): return 1\n",
        "async def f(): return 2\n",
        "import asyncio; h = m.f",
        "asyncio.run(h())",
        "2",
    ),
    edit(
        "generator function",
        "def f():\n    yield 1\n",
        "def f():\n    yield 2\n",
        "h = m.f",
        "list(h())",
        "[2]",
    ),
    edit(
        "function becomes a generator",
        "def f():\n    return [1]\n",
        "def f():\n    yield 2\n",
        "h = m.f",
        "list(h())",
        "[2]",
    ),
    edit(
        "static method",
        "class A:\n    @staticmethod\n    def f(): return 1\n",
        "class A:\n    @staticmethod\n    def f(): return 2\n",
        "h = m.A.f",
        "h(), m.A().f()",
        "(2, 2)",
    ),
    edit(
        "class method",
        "class A:\n    @classmethod\n    def f(cls): return 1\n",
        "class A:\n    @classmethod\n    def f(cls): return 2\n",
        "h = m.A.f",
        "h()",
        "2",
    ),
    edit(
        "property",
        "class A:\n    @property\n    def p(self): return 1\n",
        "class A:\n    @property\n    def p(self): return 2\n",
        "a = m.A()",
        "a.p",
        "2",
    ),
    edit(
        "property docstring",
        'class A:\n    @property\n    def p(self):\n        "one"\n        return 1\n',
        'class A:\n    @property\n    def p(self):\n        "two"\n        return 1\n',
        "p = m.A.p",
        "p.__doc__",
        "'two'",
    ),
    edit("docstring", 'def f():\n    "one"\n', 'def f():\n    "two"\n', "h = m.f", "h.__doc__", "'two'"),
    edit(
        "docstring that the session has set",
        'def f():\n    "one"\n',
        'def f():\n    "two"\n',
        "m.f.__doc__ = 'mine'",
        "m.f.__doc__",
        "'mine'",
    ),
    edit(
        "held in a partial",
        "def f(x): return x\n",
        "def f(x): return -x\n",
        "import functools; h = functools.partial(m.f, 3)",
        "h()",
        "-3",
    ),
    edit(
        "held by a registry",
        REGISTRY,
        REGISTRY.replace("return 1", "return 2"),
        "h = m.table['a']",
        "h(), m.f is h, len(m.table)",
        "(2, True, 1)",
    ),
    edit(
        "held as a default",
        "def f(): return 1\ndef g(h=f): return h()\n",
        "def f(): return 2\ndef g(h=f): return h()\n",
        "g = m.g",
        "g()",
        "2",
    ),
    edit(
        "in an instance",
        "def f(): return 1\n",
        "def f(): return 2\n",
        "import types; a = types.SimpleNamespace(h=m.f)",
        "a.h()",
        "2",
    ),
    edit(
        "subclass calls super",
        "class A:\n    def f(self): return 1\nclass B(A):\n    def f(self): return super().f()\n",
        "class A:\n    def f(self): return 2\nclass B(A):\n    def f(self): return super().f() + 1\n",
        "b = m.B()",
        "b.f()",
        "3",
    ),
    edit(
        "private name",
        "class A:\n    def __f(self): return 1\n    def g(self): return self.__f()\n",
        "class A:\n    def __f(self): return 2\n    def g(self): return self.__f()\n",
        "a = m.A()",
        "a.g()",
        "2",
    ),
    edit(
        "inner class",
        "class A:\n    class B:\n        def f(self): return 1\n",
        "class A:\n    class B:\n        def f(self): return 2\n",
        "b = m.A.B()",
        "b.f()",
        "2",
    ),
    edit(
        "in an if",
        "if True:\n    def f(): return 1\nelse:\n    f = None\n",
        "if True:\n    def f(): return 2\nelse:\n    f = None\n",
        "h = m.f",
        "h()",
        "2",
    ),
    edit(
        "in a try",
        "try:\n    def f(): return 1\nexcept ImportError:\n    pass\n",
        "try:\n    def f(): return 2\nexcept ImportError:\n    pass\n",
        "h = m.f",
        "h()",
        "2",
    ),
    edit(
        "comprehension",
        "def f(n): return [x for x in range(n)]\n",
        "def f(n): return [x + 1 for x in range(n)]\n",
        "h = m.f",
        "h(2)",
        "[1, 2]",
    ),
    # Lines
    edit(
        "lines above",
        "def f():\n    return 1\n",
        "# more\n\n\ndef f():\n    return 1\n",
        "h = m.f",
        "h.__code__.co_firstlineno",
        "4",
        unsaid=("took up",),
    ),
    edit(
        "moved",
        "def f(): return 1\ndef g(): return 2\n",
        "def g(): return 2\ndef f(): return 1\n",
        "h = m.f",
        "h(), h.__code__.co_firstlineno",
        "(1, 2)",
        unsaid=("took up",),
    ),
    edit(
        "windows line ends",
        "def f():\n    return 1\n",
        "def f():\r\n    return 1\r\n",
        "h = m.f",
        "h()",
        "1",
        unsaid=("took up",),
    ),
    edit(
        "statement not run again",
        "import itertools\nlog = []\nlog.append(1)\ndef f(): return 1\n",
        "import itertools\nlog = []\nlog.append(1)\ndef f(): return 2\n",
        "h = m.f; m.log.append(2)",
        "h(), m.log",
        "(2, [1, 2])",
    ),
    # Parameters
    edit("new parameter", "def f(x): return x\n", "def f(x, y=2): return x + y\n", "h = m.f", "h(1)", "3"),
    edit(
        "kept default object",
        "def f(x, seen=[]):\n    seen.append(x)\n    return seen\n",
        "def f(x, seen=[], more=1):\n    seen.append(x)\n    return seen\n",
        "m.f(1); h = m.f",
        "h(2)",
        "[1, 2]",
    ),
    edit("changed default", "def f(x=1): return x\n", "def f(x=5): return x\n", "h = m.f", "h()", "5"),
    edit(
        "keyword-only default",
        "def f(*, x=1): return x\n",
        "def f(*, x=1, y=4): return x + y\n",
        "h = m.f",
        "h()",
        "5",
    ),
    edit(
        "annotation",
        "def f(x: int): return x\n",
        "def f(x: str): return x\n",
        "h = m.f",
        "h.__annotations__",
        "{'x': <class 'str'>}",
    ),
    edit(
        "default in the scope of a class",
        "class A:\n    N = 3\n    def f(self, n=N): return n\n",
        "class A:\n    N = 3\n    def f(self, n=N, k=1): return n + k\n",
        "a = m.A()",
        "a.f()",
        "4",
    ),
    edit(
        "parameter under a decorator",
        REGISTRY,
        REGISTRY.replace("def f()", "def f(x=3)").replace("return 1", "return x"),
        "h = m.table['a']",
        "h(), len(m.table)",
        "(3, 1)",
        "did not run again: they saw the old parameters",
    ),
    edit(
        "parameter under a clear decorator",
        CACHED,
        CACHED.replace("f(x)", "f(x, y=5)").replace("+ 1", "+ y"),
        "m.f(1)",
        "m.f(1)",
        "6",
        "the cache of f is cleared",
    ),
    # Decorators
    edit(
        "decorator added",
        "def twice(f):\n    return lambda: f() * 2\ndef g(): return 1\n",
        "def twice(f):\n    return lambda: f() * 2\n@twice\ndef g(): return 1\n",
        "h = m.g",
        "m.g(), h()",
        "(2, 1)",
    ),
    edit(
        "decorator changed",
        REGISTRY,
        REGISTRY.replace('@register("a")', '@register("b")'),
        "h = m.f",
        "sorted(m.table), m.table['b'] is h",
        "(['a', 'b'], True)",
        "what the old ones did is not undone",
    ),
    edit(
        "abstract no more",
        "import abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def f(self): return 1\n",
        "import abc\nclass A(abc.ABC):\n    def f(self): return 1\n",
        "A = m.A",
        "A().f()",
        "1",
        "ran again on the same function",
    ),
    edit(
        "cache around a changed body",
        CACHED,
        CACHED.replace("+ 1", "+ 2"),
        "m.f(1)",
        "m.f(1)",
        "3",
        "the cache of f is cleared",
    ),
    edit(
        "begins to use super",
        "class A:\n    def f(self): return 1\nclass B(A):\n    def f(self): return 5\n",
        "class A:\n    def f(self): return 1\nclass B(A):\n    def f(self): return super().f() + 1\n",
        "b = m.B()",
        "b.f()",
        "2",
        "is a new object",
    ),
    # Closures
    edit(
        "other free variables",
        CLOSURE,
        CLOSURE.replace("def inner", "k = 9\n    def inner").replace("x + n", "x + n + k"),
        "h = m.maker(5)",
        "h(2), m.maker(5)(2)",
        "(7, 16)",
        "keeps the old code",
    ),
    edit(
        "renamed free variable",
        CLOSURE,
        CLOSURE.replace("n)", "k)").replace("+ n", "+ k"),
        "h = m.maker(5)",
        "h(2), m.maker(5)(2)",
        "(7, 7)",
    ),
    edit(
        "nested parameters",
        CLOSURE,
        CLOSURE.replace("inner(x)", "inner(x, y=1)"),
        "h = m.maker(5)",
        "h(2), m.maker(5)(2, 1)",
        "(7, 7)",
        "keeps the old code",
    ),
    edit(
        "swapped lambdas",
        "def f(): return {'a': lambda: 1, 'b': lambda: 2}\n",
        "def f(): return {'b': lambda: 2, 'a': lambda: 1}\n",
        "d = m.f()",
        "d['a'](), d['b'](), m.f()['a']()",
        "(1, 2, 1)",
        unsaid=("keeps",),
    ),
    # Classes
    edit(
        "new method",
        PLAIN,
        PLAIN + "    def more(self):\n        return self.get() + 1\n",
        "a = m.A()",
        "a.more(), type(a).more.__qualname__",
        "(2, 'A.more')",
    ),
    edit(
        "new method with super",
        "class A:\n    def f(self): pass\nclass B(A):\n    x = 1\n",
        "class A:\n    def f(self): pass\nclass B(A):\n    x = 1\n    def f(self): return super().f() or 2",
        "b = m.B()",
        "b.f()",
        "2",
    ),
    edit(
        "removed method",
        PLAIN + "    def more(self):\n        return 1\n",
        PLAIN,
        "a = m.A()",
        "hasattr(a, 'more')",
        "False",
        "removed more",
    ),
    edit(
        "class attribute",
        PLAIN,
        PLAIN.replace("size = 1", "size = 7"),
        "a = m.A()",
        "a.get(), type(a) is m.A",
        "(7, True)",
        "ran line 3",
    ),
    edit(
        "attribute that another reads",
        "class A:\n    n = 1\n    k = n + 1\n",
        "class A:\n    n = 5\n    k = n + 1\n",
        "A = m.A",
        "A.n, A.k",
        "(5, 2)",
        "reads n and did not run again",
    ),
    edit(
        "descriptor",
        "class D:\n    def __set_name__(self, o, n): self.n = n\nclass A:\n    pass\n",
        "class D:\n    def __set_name__(self, o, n): self.n = n\nclass A:\n    d = D()\n",
        "A = m.A",
        "A.d.n",
        "'d'",
        "ran line 4",
    ),
    edit(
        "bases",
        "class X: pass\nclass A: pass\n",
        "class X: pass\nclass A(X): pass\n",
        "A = m.A",
        "A is m.A, A.__mro__[1]",
        "(True, <class 'object'>)",
        "A stays as it was (its bases changed",
    ),
    edit(
        "slots",
        "class A:\n    __slots__ = ('a',)\n",
        "class A:\n    __slots__ = ('a', 'b')\n",
        "a = m.A()",
        "type(a) is m.A, hasattr(m.A, 'b')",
        "(True, False)",
        "A stays as it was (__slots__ changed",
    ),
    edit(
        "field of a dataclass",
        DATACLASS,
        DATACLASS.replace("x: int = 1", "x: int = 1\n    y: int = 2"),
        "a = m.A()",
        "a.twice(), hasattr(m.A(), 'y')",
        "(2, False)",
        "A stays as it was (line 6 is read by its decorators",
    ),
    edit("method of a dataclass", DATACLASS, DATACLASS.replace("* 2", "* 3"), "a = m.A()", "a.twice()", "3"),
    edit(
        "new method of a dataclass",
        DATACLASS,
        DATACLASS + "    def more(self): return self.x + 9\n",
        "a = m.A()",
        "a.more()",
        "10",
    ),
    edit(
        "method beside a new field",
        DATACLASS,
        DATACLASS.replace("= 1", "= 1\n    y: int = 2").replace("* 2", "* 9"),
        "a = m.A()",
        "a.twice()",
        "2",
        "A stays as it was",
    ),
    edit(
        "member of an enum",
        "import enum\nclass E(enum.Enum):\n    A = 1\n",
        "import enum\nclass E(enum.Enum):\n    A = 1\n    B = 2\n",
        "a = m.E.A",
        "len(m.E), a is m.E.A",
        "(1, True)",
        "is read by Enum",
    ),
    edit(
        "field of a named tuple",
        "import typing\nclass P(typing.NamedTuple):\n    x: int\n",
        "import typing\nclass P(typing.NamedTuple):\n    x: int\n    y: int = 1\n",
        "p = m.P(1)",
        "m.P(1) == p",
        "True",
        "is read by NamedTuple",
    ),
    edit(
        "init_subclass",
        "class B:\n    def __init_subclass__(cls): cls.seen = cls.tag\nclass A(B):\n    tag = 1\n",
        "class B:\n    def __init_subclass__(cls): cls.seen = cls.tag\nclass A(B):\n    tag = 2\n",
        "A = m.A",
        "A.tag, A.seen",
        "(1, 1)",
        "is read by B.__init_subclass__",
    ),
    edit(
        "metaclass",
        "class M(type): pass\nclass A(metaclass=M):\n    tag = 1\n",
        "class M(type): pass\nclass A(metaclass=M):\n    tag = 2\n",
        "A = m.A",
        "A.tag",
        "1",
        "is read by M when the class is made",
    ),
    # Statements
    edit(
        "constant",
        "LIMIT = 1\ndef f(): return LIMIT\n",
        "LIMIT = 2\ndef f(): return LIMIT\n",
        "h = m.f",
        "h(), m.LIMIT",
        "(2, 2)",
        "ran line 1",
    ),
    edit(
        "constant that another reads",
        "A = 1\nB = A + 1\n",
        "A = 5\nB = A + 1\n",
        "",
        "m.A, m.B",
        "(5, 2)",
        "line 2: reads A and did not run again",
    ),
    edit(
        "new function",
        "def f(): return 1\n",
        "def f(): return 1\ndef g(): return f() + 1\n",
        "",
        "m.g()",
        "2",
    ),
    edit(
        "removed function",
        "def f(): return 1\ndef g(): return 2\n",
        "def f(): return 1\n",
        "",
        "hasattr(m, 'g')",
        "False",
        "removed g",
    ),
    edit(
        "new import",
        "def f(): return 1\n",
        "import math\ndef f(): return math.floor(2.5)\n",
        "h = m.f",
        "h()",
        "2",
        "ran line 1",
    ),
    edit(
        "function that ran at import",
        "def build(): return [1]\nTABLE = build()\n",
        "def build(): return [2]\nTABLE = build()\n",
        "",
        "m.TABLE, m.build()",
        "([1], [2])",
        "build ran at import",
        "is not computed again",
    ),
    edit(
        "removed call",
        "log = []\nlog.append(1)\n",
        "log = []\n",
        "",
        "m.log",
        "[1]",
        "what it did is not undone",
    ),
    edit(
        "block with another test",
        "import sys\nif sys:\n    X = 1\nelse:\n    X = 2\n",
        "import sys\nif not sys:\n    X = 1\nelse:\n    X = 2\n",
        "",
        "m.X",
        "2",
        "ran line 2",
    ),
    edit(
        "module docstring",
        '"one"\nimport sys\n',
        '"two"\nimport sys\n',
        "",
        "m.__doc__",
        "'two'",
        "ran line 1",
    ),
    edit(
        "name that the session has bound",
        "def f(): return 1\n",
        "def f(): return 2\n",
        "h = m.f; m.f = lambda: 'mine'",
        "m.f(), h()",
        "('mine', 2)",
    ),
    edit(
        "running generator",
        "def f():\n    yield 1\n    yield 2\n",
        "def f():\n    yield 1\n    yield 3\n",
        "g = m.f(); next(g)",
        "next(g), list(m.f())",
        "(2, [1, 3])",
        "a running generator of f goes on with the old code",
    ),
    edit(
        "future import",
        "from __future__ import annotations\ndef f(x: int): return x\n",
        "from __future__ import annotations\ndef f(x: Unknown): return x\n",
        "h = m.f",
        "h.__annotations__",
        "{'x': 'Unknown'}",
    ),
]
