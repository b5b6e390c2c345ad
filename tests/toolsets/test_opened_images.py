"""Images that callers open: each has its own, and nobody sees another's. Real images."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from gramercy.errors import ImageError
from gramercy.execution.calls import ToolCall
from gramercy.execution.executor import Executor
from gramercy.gram.json_schema import compile_schema
from gramercy.images.base import Gallery
from gramercy.images.opening import open_image
from gramercy.tools.context import Call, enter_call, leave_call
from gramercy.tools.registry import Registry
from gramercy.toolsets.evaluation import evaluation_tools
from gramercy.toolsets.factory import Workshop
from gramercy.toolsets.opened_images import OpenedImages, opened_image_tools


class Caller(Call):
    """A call of somebody in particular."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def principal(self) -> str:
        """Who calls."""
        return self.name


@contextmanager
def called_by(name):
    token = enter_call(Caller(name))
    try:
        yield
    finally:
        leave_call(token)


@pytest.fixture
def studio(tmp_path):
    shared = open_image("python", name="shared", project=tmp_path)

    def opened(name, language):
        return open_image(language, name=name, project=tmp_path)

    made = OpenedImages(Gallery([shared]), opened, most=2)
    yield made
    for image in (shared, *made.opened()):
        image.close()


@pytest.fixture
def executor(studio):
    return Executor(Registry([*opened_image_tools(studio), *evaluation_tools(Workshop(studio))]))


def call(executor, name, **arguments):
    return executor.execute(ToolCall("1", name, arguments))


def test_an_opened_image_is_addressed_by_its_handle_and_apart_from_the_shared_one(executor):
    """MCP, item 7: images are addressed by an explicit optional handle."""
    handle = call(executor, "open_image", language="python").content
    call(executor, "eval_form", form="x = 1")
    call(executor, "eval_form", form="x = 2", image=handle)
    assert call(executor, "eval_form", form="x").content == "=> 1"
    assert call(executor, "eval_form", form="x", image=handle).content == "=> 2"


def test_handles_cannot_be_guessed(executor):
    handles = {call(executor, "open_image", language="python").content for _ in range(2)}
    assert len(handles) == 2
    assert min(len(handle) for handle in handles) >= 20


def test_an_image_of_another_caller_is_not_there(executor):
    """MCP, item 7: bound to the principal."""
    with called_by("ann"):
        handle = call(executor, "open_image", language="python").content
    with called_by("bob"):
        for tool, arguments in (
            ("eval_form", {"form": "1", "image": handle}),
            ("close_image", {"handle": handle}),
        ):
            refused = call(executor, tool, **arguments)
            assert not refused.success
            assert "there is no image" in refused.content
        assert handle not in call(executor, "list_images").content
    with called_by("ann"):
        assert handle in call(executor, "list_images").content
        assert call(executor, "eval_form", form="1 + 1", image=handle).content == "=> 2"


@pytest.mark.contract("answers.structured")
def test_programs_get_the_list_of_images_as_data(executor):
    """Structured results: complete without the text, and as the schema says."""
    handle = call(executor, "open_image", language="python").content
    result = call(executor, "list_images")
    assert result.metadata["structured"] == {
        "images": [
            {"handle": "shared", "language": "python", "is_own": False},
            {"handle": handle, "language": "python", "is_own": True},
        ]
    }
    schema = executor.settings.registry.get("list_images").output_schema
    assert compile_schema(schema).is_valid(result.metadata["structured"])


def test_a_caller_has_a_bounded_number_of_images(executor):
    with called_by("ann"):
        first, _ = (call(executor, "open_image", language="python").content for _ in range(2))
        refused = call(executor, "open_image", language="python")
        assert "close_image" in refused.content
        call(executor, "close_image", handle=first)
        assert call(executor, "open_image", language="python").success
    with called_by("bob"):
        assert call(executor, "open_image", language="python").success


def test_an_image_that_nobody_uses_is_closed(studio, executor):
    """MCP, item 7: handles expire."""
    handle = call(executor, "open_image", language="python").content
    call(executor, "eval_form", form="1", image=handle)
    image = studio.opened()[0]
    studio._idle_seconds = -1.0
    refused = call(executor, "eval_form", form="1", image=handle)
    assert "not used for long is closed" in refused.content
    assert studio.opened() == ()
    assert image._lifecycle.family is None


def test_the_image_that_is_there_for_everybody_cannot_be_closed(studio, executor):
    refused = call(executor, "close_image", handle="shared")
    assert "reset-session" in refused.content
    assert call(executor, "list_images").content == "shared (for everybody, python)"
    with pytest.raises(ImageError):
        studio.get("absent")


@pytest.mark.contract("day.long.job.beside")
def test_an_image_in_which_a_job_runs_is_not_idle(studio):
    """A training of hours must not be ended because nobody called meanwhile."""
    with called_by("ada"):
        handle = studio.open("python")
        studio.get(handle).start_job("import time\nwhile True: time.sleep(0.01)")
        studio._idle_seconds = -1.0
        assert studio.get(handle).jobs()[0].state == "running"
