"""`gramercy` as it is without its extras: as if uvloop were not installed."""

from __future__ import annotations

import sys

sys.modules["uvloop"] = None  # type: ignore[assignment]

from gramercy.ui.cli.main import main  # noqa: E402 - what is hidden must be hidden first

main()
