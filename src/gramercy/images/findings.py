"""What was found for an image, line by line: each language tells its own, a report shows them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How good it is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report. A warning leaves something out of use, a failure breaks a promise."""

    name: str
    status: Status
    detail: str
    advice: str = ""
