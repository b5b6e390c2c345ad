"""How long a Lisp library takes to load: in a first image, in a second one, and in SBCL with a warm cache."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.images.opening import open_image

if TYPE_CHECKING:
    from bench.measure import Effort

SYSTEM = "cl-ppcre"
SOURCE = Path("/usr/share/common-lisp/source") / SYSTEM
LONGEST = 300.0
_PLAIN = f"""
(let ((began (get-internal-real-time))
      (*standard-output* (make-broadcast-stream)) (*error-output* (make-broadcast-stream)))
  (handler-bind ((warning #'muffle-warning)) (asdf:load-system "{SYSTEM}"))
  (format sb-sys:*stdout* "~f" (/ (- (get-internal-real-time) began) internal-time-units-per-second 1.0)))
"""


@dataclass(frozen=True, slots=True)
class Loads:
    """Seconds; what is not the first is the best of several."""

    first: float
    second: float
    plain: float


def system_loads(project: Path, effort: Effort) -> Loads:
    """Load the library again and again; image and SBCL take turns once each has compiled it."""
    project = project / "systems"
    project.mkdir()
    first = _in_image(project)
    _in_sbcl(project)
    turns = [(_in_image(project), _in_sbcl(project)) for _ in range(2 if effort.quick else 5)]
    return Loads(first, min(second for second, _ in turns), min(plain for _, plain in turns))


def _in_image(project: Path) -> float:
    with closing(open_image("sbcl", project=project, timeout=LONGEST)) as image:
        image.evaluate("1")
        return image.load_system(SYSTEM).elapsed_ms / 1e3


def _in_sbcl(project: Path) -> float:
    command = ["sbcl", "--noinform", "--no-userinit", "--non-interactive", "--eval", "(require :asdf)"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(project / "cache")}
    done = subprocess.run(
        [*command, "--eval", _PLAIN],
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=True,
        env=environment,
    )
    return float(done.stdout)
