"""Looking into an image beside evaluating in it: what a model waits for an answer about a name."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.facts import lacking_for_images, load_teller
from bench.image_timing import PAUSE, SIX
from bench.mcp_stdio import in_turns
from bench.report import Section, Target, at_most, show
from gramercy.images.opening import open_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort, Reading

# A program of the user's: each name below is one of it or one of the language.
PROGRAMS = {
    "sbcl": """
(defclass shape () ((name :initarg :name :reader shape-name)))
(defclass circle (shape) ((radius :initarg :radius :accessor radius)))
(defun area (shape) "Return the area." (* 3 (radius shape) (radius shape)))
(defun total-area (shapes) (reduce #'+ (mapcar #'area shapes)))
""",
    "python": """
class Shape:
    def __init__(self, name):
        self.name = name

class Circle(Shape):
    def __init__(self, name, radius):
        super().__init__(name)
        self.radius = radius

def area(shape):
    "Return the area."
    return 3 * shape.radius * shape.radius

def total_area(shapes):
    return sum(map(area, shapes))
""",
}
QUESTIONS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "sbcl": {
        "describe_symbol area": ("describe", {"symbol": "area"}),
        "describe_symbol mapcar": ("describe", {"symbol": "mapcar"}),
        "function_arglist reduce": ("arglist", {"function": "reduce"}),
        "who_calls area": ("who_calls", {"function": "area"}),
        "class_slots circle": ("class_slots", {"class": "circle"}),
        "apropos_search area": ("apropos", {"pattern": "area"}),
        "apropos_search string": ("apropos", {"pattern": "string"}),
    },
    "python": {
        "describe_symbol area": ("describe", {"symbol": "area"}),
        "describe_symbol sorted": ("describe", {"symbol": "sorted"}),
        "function_arglist json.dumps": ("arglist", {"function": "json.dumps"}),
        "who_calls area": ("who_calls", {"function": "area"}),
        "class_slots Circle": ("class_slots", {"class": "Circle"}),
        "apropos_search area": ("apropos", {"pattern": "area"}),
        "apropos_search str": ("apropos", {"pattern": "str"}),
    },
}
EVALUATION = "evaluation"
LIMIT = 2.0
# A wake-up is one sample: the median of fewer than some dozens wanders by a tenth.
ROUNDS = 40
COLUMNS = ("question", "answer ms", "evaluation ms", "x evaluation")
NOTES = (
    (
        f"Asked in the image itself, without a server, {PAUSE * 1000:g} ms apart, as models ask; the "
        f"questions and an evaluation of {' or '.join(SIX.values())} take turns. Medians; a ratio is the "
        "median of the rounds' own ratios."
    ),
    "The names are those of a small program of the user's, and of the language.",
)


def measure(effort: Effort) -> Section:
    """Measure each language that is here."""
    load = load_teller()
    rows, targets, notes = [], [], list(NOTES)
    for language in QUESTIONS:
        if missing := lacking_for_images(language):
            notes.append(missing)
            targets.append(Target(f"questions to {language}", missing, met=None))
            continue
        with tempfile.TemporaryDirectory(prefix="bench-project-") as directory:
            readings = asked(language, Path(directory), effort)
        evaluation = readings.pop(EVALUATION)
        ratios = {name: reading.ratio_to(evaluation) for name, reading in readings.items()}
        cells = {name: show(reading.median * 1e3) for name, reading in readings.items()}
        own = show(evaluation.median * 1e3)
        rows += [(f"{language}: {name}", cells[name], own, f"{ratios[name]:.2f}") for name in readings]
        slowest = max(ratios, key=lambda name: ratios[name])
        text = f"{language}, the slowest question ({slowest}) against an evaluation"
        targets.append(at_most(text, ratios[slowest], LIMIT, "x"))
    return Section(
        name="looks",
        title="Questions to an image",
        intro="What a model waits for an answer about a name, beside an evaluation in the same image.",
        columns=COLUMNS,
        rows=tuple(rows) or (("any", "not measured", "", ""),),
        targets=tuple(targets),
        notes=(*notes, load()),
    )


def asked(language: str, project: Path, effort: Effort) -> dict[str, Reading]:
    """Ask every question and evaluate, in turns, with a pause before each."""
    with closing(open_image(language, project=project)) as image:
        assert image.evaluate(PROGRAMS[language]).ok

        def asking(question: str, details: dict[str, Any]) -> Callable[[], None]:
            def ask() -> None:
                answer = image.ask(question, **details)
                assert answer.ok, answer

            return ask

        works: dict[str, Callable[[], object]] = {EVALUATION: lambda: image.evaluate(SIX[language])}
        works |= {name: asking(*question) for name, question in QUESTIONS[language].items()}

        def take(name: str) -> float:
            time.sleep(PAUSE)
            started = perf_counter()
            works[name]()
            return perf_counter() - started

        for name in works:
            take(name)  # the first may have something left to load
        return in_turns({name: [] for name in works}, effort.rounds if effort.quick else ROUNDS, take)
