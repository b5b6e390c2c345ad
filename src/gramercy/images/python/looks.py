"""Evaluate an expression that certainly changes nothing: a look.

Only operations that are known to run no user code are done here, on values of exactly known types. At the
first doubt `DoubtError` is raised. Nothing has happened then, and the expression can be evaluated the
ordinary way.
"""

import ast
import builtins
import operator
import types
from collections.abc import Callable
from typing import Any

from .anatomy import MISSING, is_class, kinds
from .purity import DoubtError, has_plain_keys, is_instance, is_plain, of_class, of_instance, of_module

# The nodes of an expression that only reads. Its values may still run user code.
_READING = (
    *(ast.Expression, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant),
    *(ast.Tuple, ast.UnaryOp, ast.USub),
)
# Longer code is not parsed once more just to see whether it only reads.
_LONGEST_READING = 200
_FUNCTIONS: dict[str, Callable[..., object]] = {
    **{kind.__name__: kind for kind in (bool, int, float, complex, list, tuple, dict, set, frozenset, range)},
    **{call.__name__: call for call in (abs, all, any, ascii, bin, chr, divmod, hash, hex, len, max, min)},
    **{call.__name__: call for call in (oct, ord, pow, repr, round, sorted, str, sum)},
}
_METHODS: dict[type, frozenset[str]] = {
    # `encode` may call a codec of the user.
    str: frozenset(name for name in dir(str) if not name.startswith("_")) - {"encode"},
    list: frozenset(("copy", "count", "index")),
    tuple: frozenset(("count", "index")),
    dict: frozenset(("copy", "get", "items", "keys", "values")),
    set: frozenset(("copy", "difference", "intersection", "issubset", "issuperset", "union")),
    int: frozenset(("bit_length", "conjugate")),
    float: frozenset(("conjugate", "hex", "is_integer")),
}
_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
# Without `~`, which warns for booleans: `warnings.showwarning` may be a user function.
_UNARY = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_COMPARISONS: dict[type, Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_CONVERSIONS = {-1: lambda value: value, 115: str, 114: repr, 97: ascii}
_SIZED = kinds(list, tuple, dict, set, frozenset, str, bytes, bytearray, range)
_INDEXED = (list, tuple, str, bytes, range)
_print = print
# Elements of an argument: a computation on more might run twice, if its value is then in doubt.
_LONGEST = 100_000


class Look:
    """One expression and the names it may reach."""

    def __init__(self, space: dict[str, object]) -> None:
        self._space = space
        self._is_checked = False

    def value(self, node: ast.expr) -> object:
        """Return the value of the expression if it prints without user code, or raise its error."""
        found = self._value(node)
        if not is_plain(found, shown=True):
            raise DoubtError
        return found

    def only_prints(self, node: ast.expr) -> bool:
        """Return whether the expression only prints plain values. Raise its error."""
        if type(node) is not ast.Call or type(node.func) is not ast.Name or node.func.id != "print":
            return False
        if self.name("print") is not _print:
            raise DoubtError
        values, keywords = self._arguments(node)
        return "file" not in keywords and all(map(is_plain, values))

    def name(self, name: str) -> object:
        """Return the value of a name."""
        if not self._is_checked:
            self._is_checked = has_plain_keys(self._space)
        if not self._is_checked:
            raise DoubtError
        found = self._space.get(name, MISSING)
        return self._built_in(name) if found is MISSING else found

    @staticmethod
    def _built_in(name: str) -> object:
        space = vars(builtins)
        if not has_plain_keys(space) or name not in space:
            raise DoubtError
        return space[name]

    def _value(self, node: ast.AST) -> Any:
        step = _STEPS.get(type(node))
        if step is None:
            raise DoubtError
        return step(self, node)

    def _plain(self, node: ast.AST) -> Any:
        value = self._value(node)
        if not is_plain(value):
            raise DoubtError
        return value

    def _constant(self, node: ast.Constant) -> object:
        return node.value

    def _name(self, node: ast.Name) -> object:
        return self.name(node.id)

    def _list(self, node: ast.List) -> object:
        return [self._value(member) for member in node.elts]

    def _tuple(self, node: ast.Tuple) -> object:
        return tuple([self._value(member) for member in node.elts])

    def _set(self, node: ast.Set) -> object:
        return {self._plain(member) for member in node.elts}

    def _dict(self, node: ast.Dict) -> object:
        pairs = zip(node.keys, node.values, strict=True)
        return {self._plain(_given(key)): self._value(value) for key, value in pairs}

    def _binary(self, node: ast.BinOp) -> object:
        left, right = self._plain(node.left), self._plain(node.right)
        if type(node.op) is ast.Mult and (_is_long(left, right) or _is_long(right, left)):
            raise DoubtError
        return _known(_BINARY, node.op)(left, right)

    def _unary(self, node: ast.UnaryOp) -> object:
        return _known(_UNARY, node.op)(self._plain(node.operand))

    def _boolean(self, node: ast.BoolOp) -> object:
        value: object = None
        for operand in node.values:
            value = self._plain(operand)
            if bool(value) is (type(node.op) is ast.Or):
                break
        return value

    def _choice(self, node: ast.IfExp) -> object:
        return self._value(node.body if self._plain(node.test) else node.orelse)

    def _comparison(self, node: ast.Compare) -> object:
        left: object = self._value(node.left)
        result: object = True
        for relation, right_node in zip(node.ops, node.comparators, strict=True):
            right = self._value(right_node)
            result = _compared(relation, left, right)
            if not result:
                break
            left = right
        return result

    def _slice(self, node: ast.Slice) -> object:
        parts = (node.lower, node.upper, node.step)
        return slice(*[None if part is None else self._plain(part) for part in parts])

    def _item(self, node: ast.Subscript) -> object:
        owner, key = self._value(node.value), self._value(node.slice)
        if any(type(owner) is kind for kind in _INDEXED):
            if type(key) is slice or type(key) is int or type(key) is bool:
                return owner[key]
        elif type(owner) is dict and is_plain(key) and has_plain_keys(owner):
            return owner[key]
        raise DoubtError

    def _attribute(self, node: ast.Attribute) -> object:
        owner, name = self._value(node.value), node.attr
        if type(owner) is types.ModuleType:
            return of_module(owner, name)
        if name.startswith("__"):
            raise DoubtError
        found = of_class(owner, name) if is_class(owner) else of_instance(owner, name)
        if found is MISSING:
            raise DoubtError
        return found

    def _text(self, node: ast.JoinedStr) -> object:
        return "".join([self._plain(part) for part in node.values])

    def _field(self, node: ast.FormattedValue) -> object:
        pattern = "" if node.format_spec is None else self._plain(node.format_spec)
        return format(_known(_CONVERSIONS, node.conversion)(self._plain(node.value)), pattern)

    def _call(self, node: ast.Call) -> object:
        if type(node.func) is ast.Attribute:
            return self._method(node.func, node)
        if type(node.func) is not ast.Name:
            raise DoubtError
        name = node.func.id
        values, keywords = self._arguments(node)
        function = self.name(name)
        if not keywords and function is type and len(values) == 1:
            return type(values[0])
        if not keywords and function is isinstance and len(values) == 2:  # noqa: PLR2004 - as it takes
            return is_instance(*values)
        if _FUNCTIONS.get(name, MISSING) is not function or (function is str and len(values) > 1):
            raise DoubtError
        if function is len and not keywords and _has_length(*values):
            return len(values[0])
        if not all(map(is_plain, values)) or any(map(_is_long, values)):
            raise DoubtError
        return _FUNCTIONS[name](*values, **keywords)

    def _arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        keywords = {str(_given(word.arg)): self._plain(word.value) for word in node.keywords}
        return [self._value(argument) for argument in node.args], keywords

    def _method(self, node: ast.Attribute, call: ast.Call) -> object:
        owner = self._value(node.value)
        names = next((names for kind, names in _METHODS.items() if type(owner) is kind), frozenset())
        values, keywords = self._arguments(call)
        if node.attr not in names or keywords or not all(map(is_plain, values)):
            raise DoubtError
        if not (has_plain_keys(owner) if type(owner) is dict else is_plain(owner)):
            raise DoubtError
        return getattr(owner, node.attr)(*values)


_STEPS: dict[type, Callable[[Look, Any], Any]] = {
    getattr(ast, node): getattr(Look, f"_{step}")
    for node, step in (
        *(("Constant", "constant"), ("Name", "name"), ("Attribute", "attribute"), ("Subscript", "item")),
        *(("List", "list"), ("Tuple", "tuple"), ("Set", "set"), ("Dict", "dict"), ("Slice", "slice")),
        *(("BinOp", "binary"), ("UnaryOp", "unary"), ("BoolOp", "boolean"), ("Compare", "comparison")),
        *(("IfExp", "choice"), ("Call", "call"), ("JoinedStr", "text"), ("FormattedValue", "field")),
    )
}


def _given(part: Any) -> Any:
    """Refuse the gaps that `*` and `**` leave in a tree."""
    if part is None:
        raise DoubtError
    return part


def _known(table: dict[Any, Any], key: object) -> Any:
    found = table.get(key if type(key) is int else type(key))
    if found is None:
        raise DoubtError
    return found


def _is_long(value: object, copies: object = 1) -> bool:
    """Return whether this many copies of a sequence would be long."""
    if type(value) is not list and type(value) is not tuple and type(value) is not range:
        return False
    return type(copies) is int and len(value) * copies > _LONGEST


def _has_length(*values: object) -> bool:
    return len(values) == 1 and id(type(values[0])) in _SIZED


def _compared(relation: ast.cmpop, left: Any, right: Any) -> object:
    if type(relation) is ast.Is or type(relation) is ast.IsNot:
        return (left is right) is (type(relation) is ast.Is)
    searched = type(relation) in (ast.In, ast.NotIn) and type(right) is dict
    if not is_plain(left) or not (has_plain_keys(right) if searched else is_plain(right)):
        raise DoubtError
    return _known(_COMPARISONS, relation)(left, right)


def only_reads(code: str) -> bool:
    """Return whether code is one expression of names, attributes and items, by its form alone."""
    if len(code) > _LONGEST_READING or "=" in code or "\n" in code:
        return False
    try:
        tree = compile(code.strip(), "<look>", "eval", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return all(isinstance(node, _READING) for node in ast.walk(tree))
