"""Run the Python blocks of one page in one namespace: a program that reads blocks and reports their output.

Started by `walkthrough`; one JSON object a line in, one a line out.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import sys
import traceback
from types import ModuleType

# Longer than any example may take; a block that hangs ends this process with a traceback.
LIMIT = 120


def run(code: str, page: str, line: int, namespace: dict[str, object]) -> dict[str, str]:
    """Execute one block; its line numbers are those of the page."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + code, page, "exec"), namespace)
    except BaseException:  # noqa: BLE001 - reported to whoever runs the page
        return {"printed": printed.getvalue(), "error": traceback.format_exc(limit=-3)}
    return {"printed": printed.getvalue(), "error": ""}


def main() -> None:
    """Serve blocks until the input ends."""
    # The real standard output carries the reports, so nothing else may write there.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as reports:
        os.dup2(2, 1)
        sys.path[0] = ""
        module = ModuleType("page")
        sys.modules["page"] = module
        for request in sys.stdin:
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            reports.write(json.dumps(run(**json.loads(request), namespace=vars(module))) + "\n")
            reports.flush()
            faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
