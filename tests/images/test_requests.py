"""Requests as values: each kind is known to every image, and each convenience makes one of them."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from gramercy.errors import ImageError
from gramercy.images import requests
from gramercy.images.base import Span
from gramercy.images.image import Image
from gramercy.images.live import BESIDE, LiveImage
from gramercy.images.requests import Move, Question, Request, Work
from gramercy.images.suites import WantedTests
from gramercy.images.views import ImageView
from gramercy.testing.image import MemoryImage

KINDS = [
    kind
    for _, kind in inspect.getmembers(requests, inspect.isclass)
    if issubclass(kind, Request) and kind not in (Request, Work, Question, Move)
]
# What a live image sends to its process as it is.
SENT = ["Evaluate", "Compile", "StartJob", "Profile", "Load", "TakeUp", "UndoDefinitions"]


class Recorder(Image):
    """A kind of image that only remembers what it was asked: all that a new kind has to supply."""

    name = "recorder"
    language = "python"
    capabilities = frozenset()

    def __init__(self):
        self.asked = []

    def run(self, work, *, timeout=None, watch=None, typist=None):
        self.asked.append((work, timeout, watch, typist))

    async def arun(self, work, *, timeout=None, watch=None):  # noqa: ASYNC109 - as in the interface
        self.run(work, timeout=timeout, watch=watch)

    def begin(self, work, *, timeout=None, watch=None):
        self.run(work, timeout=timeout, watch=watch)

    def answer(self, question):
        self.run(question)

    def go(self, move):
        self.run(move)

    def look(self):
        return ImageView(self.name, self.language, "idle")

    def span(self):
        return Span()

    def note_call(self, state, key):
        pass

    def interrupt(self):
        return False

    def close(self):
        pass


def test_a_kind_of_image_has_few_members():
    """Requests are values: at most 14 members."""
    assert len(Image.__abstractmethods__) <= 14
    assert Recorder().evaluate("1") is None


@pytest.mark.parametrize(
    ("ask", "wanted"),
    [
        (lambda image: image.evaluate("x", package="p"), requests.Evaluate("x", "p")),
        (lambda image: image.start_job("x"), requests.StartJob("x")),
        (lambda image: image.compile("x"), requests.Compile("x")),
        (lambda image: image.profile("x", measure="calls"), requests.Profile("x", "calls")),
        (lambda image: image.preview("x"), requests.Preview("x")),
        (lambda image: image.load_system("x"), requests.Load("x")),
        (lambda image: image.load_system("x", take_up=True), requests.TakeUp("x")),
        (lambda image: image.run_tests(WantedTests()), requests.Suite(WantedTests())),
        (lambda image: image.evaluate_in_frame("x", frame=2), requests.InFrame("x", 2)),
        (lambda image: image.invoke_restart(1, ["y"], moment="m"), requests.GoOn(1, ["y"], "m")),
        (
            lambda image: image.ask("describe", at="c1", name="f"),
            requests.About("describe", {"name": "f"}, "c1"),
        ),
        (
            lambda image: image.ask_moment("locals", "m1", frame=1),
            requests.AboutMoment("locals", "m1", {"frame": 1}),
        ),
        (lambda image: image.compare("a", "b"), requests.Compare("a", "b")),
        (lambda image: image.history(), requests.History()),
        (lambda image: image.checkpoints(), requests.Checkpoints()),
        (lambda image: image.moments(), requests.Moments()),
        (lambda image: image.jobs(), requests.Jobs()),
        (lambda image: image.read_job(3), requests.ReadJob(3)),
        (lambda image: image.stop_job(3), requests.StopJob(3)),
        (lambda image: image.epoch(), requests.Epoch()),
        (lambda image: image.changed_at(), requests.ChangedAt()),
        (lambda image: image.installation(["p"]), requests.HowToInstall(["p"])),
        (lambda image: image.checkpoint("n"), requests.Keep("n")),
        (lambda image: image.rollback("c1", files=False), requests.Rollback("c1", files=False)),
        (lambda image: image.undo("replay"), requests.Undo("replay")),
        (lambda image: image.reset(), requests.Reset()),
        (lambda image: image.save("/s"), requests.Save("/s")),
        (lambda image: image.restore("/s"), requests.Restore("/s")),
    ],
)
def test_each_convenience_makes_one_request(ask, wanted):
    """Conveniences live once, over the small interface."""
    image = Recorder()
    ask(image)
    assert image.asked == [(wanted, None, None, None)]


def test_time_limit_and_watcher_come_along():
    """They belong to the call, not to the request."""
    image = Recorder()
    image.evaluate("x", timeout=3, watch=print, typist=input)
    assert image.asked == [(requests.Evaluate("x"), 3, print, input)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_request_is_known_to_every_image(kind):
    """A new request that an image of ours forgets fails here."""
    if kind is requests.UndoDefinitions:
        # It is made by a live image for the move `Undo`.
        return
    assert kind in MemoryImage.handlers
    if issubclass(kind, Work):
        assert kind in BESIDE or kind.__name__ in SENT
    else:
        assert kind in LiveImage.handlers


def test_operations_have_different_names():
    """The tag of a struct is its operation on the wire."""
    tags = [kind.__struct_config__.tag for kind in KINDS]
    assert len(set(tags)) == len(tags)


def test_work_goes_over_the_wire_as_it_stands():
    """A struct is its request; what is not given is not sent."""
    assert msgspec.to_builtins(requests.Evaluate("1")) == {"op": "eval", "code": "1"}
    assert msgspec.to_builtins(requests.Compile("1", "p")) == {"op": "compile", "code": "1", "package": "p"}
    assert msgspec.to_builtins(requests.Profile("1", "time")) == {
        "op": "profile",
        "code": "1",
        "measure": "time",
    }
    assert msgspec.to_builtins(requests.TakeUp("/a.py")) == {"op": "take_up", "system": "/a.py"}


def test_an_unknown_request_is_refused_by_name():
    """A plug-in may send what an image has never heard of."""

    class Dance(Question[str], frozen=True, tag="dance"):
        """No image dances."""

    with pytest.raises(ImageError, match="the image memory does not know dance"):
        MemoryImage().answer(Dance())
