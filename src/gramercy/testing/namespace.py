"""Evaluate Python code in a dictionary of this process, tell what it changed, and copy the dictionary."""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import importlib
import inspect
import io
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gramercy.errors import CheckpointError
from gramercy.images.base import Change, Form, ImageFault, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MODULE = "__main__"
# Expressions made of these only read, as long as operators of user-defined classes do not change anything.
_READING = (
    ast.BinOp, ast.BoolOp, ast.Compare, ast.Constant, ast.Dict, ast.Expr, ast.List, ast.Load, ast.Module,
    ast.Name, ast.Tuple, ast.UnaryOp, ast.boolop, ast.cmpop, ast.operator, ast.unaryop,
)  # fmt: skip


def fresh_namespace() -> dict[str, Any]:
    """Return the globals of a module that has not run yet."""
    return {"__name__": MODULE, "__builtins__": builtins}


def copy_namespace(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of a namespace, or raise CheckpointError saying what cannot be copied.

    Modules are shared, and so are functions and classes, as `copy.deepcopy` has it.
    """
    shared = {id(value): value for value in namespace.values() if isinstance(value, ModuleType)}
    try:
        return copy.deepcopy(dict(namespace), dict(shared))
    except Exception as error:  # noqa: BLE001 - whatever a user's object raises when it is copied
        name = _uncopied(namespace, shared)
        raise CheckpointError(f"{name} cannot be copied ({error})") from None


def _uncopied(namespace: Mapping[str, Any], shared: Mapping[int, Any]) -> str:
    for name, value in namespace.items():
        try:
            copy.deepcopy(value, dict(shared))
        except Exception:  # noqa: BLE001 - as above
            return name
    return "the namespace"


def evaluated(code: str, namespace: dict[str, Any]) -> Reply:
    """Run the statements of a code; stop at the first that fails."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as error:
        return Reply(ok=False, error=_fault(error, 0), package=MODULE)
    before = dict(namespace)
    forms: list[Form] = []
    output, errors = io.StringIO(), io.StringIO()
    fault = None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        for statement in tree.body:
            try:
                forms.append(_form(statement, namespace))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a failure of user code is a reply
                fault = _fault(error, len(forms))
                break
    is_reading = all(isinstance(node, _READING) for node in ast.walk(tree))
    return Reply(
        ok=fault is None,
        forms=forms,
        stdout=output.getvalue(),
        stderr=errors.getvalue(),
        error=fault,
        package=MODULE,
        changed=list(_changes(before, namespace)),
        unchanged=is_reading and fault is None,
        statement=fault is None and not (forms and forms[-1].values),
    )


def _form(statement: ast.stmt, namespace: dict[str, Any]) -> Form:
    if isinstance(statement, ast.Expr):
        expression = compile(ast.Expression(statement.value), "<memory>", "eval")
        return Form([repr(eval(expression, namespace))])  # noqa: S307 - code of the test
    exec(compile(ast.Module([statement], []), "<memory>", "exec"), namespace)  # noqa: S102 - code of the test
    return Form()


def imported(name: str) -> Reply:
    """Import a module into this process."""
    try:
        module = importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - a failure of user code is a reply
        return Reply(ok=False, error=_fault(error, 0), system=name)
    return Reply(ok=True, system=name, version=getattr(module, "__version__", None))


def _fault(error: BaseException, index: int) -> ImageFault:
    place = {"line": error.lineno, "text": error.text} if isinstance(error, SyntaxError) else {}
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return ImageFault(type(error).__name__, message, form_index=index, **place)  # type: ignore[arg-type]


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name, value in after.items():
        if name not in before:
            yield Change(_kind(value), f"{MODULE}.{name}")
        elif before[name] is not value:
            yield Change(_kind(value), f"{MODULE}.{name}", "redefined")
    for name in before.keys() - after.keys():
        yield Change(_kind(before[name]), f"{MODULE}.{name}", "removed")


def _kind(value: Any) -> str:
    kinds: tuple[tuple[Callable[[Any], bool], str], ...] = (
        (inspect.ismodule, "import"),
        (inspect.isclass, "class"),
        (callable, "function"),
    )
    return next((word for test, word in kinds if test(value)), "variable")
