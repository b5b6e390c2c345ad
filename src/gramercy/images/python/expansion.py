"""Show code as Python understands it: normalised source, and its instructions when asked for in full.

Python has no macros; this is the nearest thing. Nothing is run.
"""

import ast
import dis
import io

from .failures import failure
from .printing import shorten
from .requests import Request, RequestError, flag, text
from .session import Reply, Session

_TEXT = 50_000
_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def expand(session: Session, request: Request) -> Reply:
    """Return the form with its sugar normalised; in full, also its instructions."""
    form = text(request, "form")
    try:
        tree: ast.Module = compile(form, "<form>", "exec", _FLAGS, dont_inherit=True)
        source = ast.unparse(tree)
        instructions = _instructions(tree) if flag(request, "full") else None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        record = failure(error, 0, session.sources)
        raise RequestError(str(record["type"]), str(record["message"])) from None
    shown = source if instructions is None else f"{source}\n\n{instructions}"
    data = {"expansion": shorten(source, _TEXT), "instructions": instructions}
    return {"ok": True, "text": shorten(shown, _TEXT), "data": data}


def _instructions(tree: ast.Module) -> str:
    code = compile(tree, "<form>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    written = io.StringIO()
    dis.dis(code, file=written)
    return shorten(written.getvalue(), _TEXT)
