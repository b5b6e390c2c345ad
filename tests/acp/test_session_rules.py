"""What an editor offers as always allowed in a session is about the real file, and never a control file."""

from __future__ import annotations

import json

import pytest

from gramercy.acp.approval import ALWAYS, _base, _options, _subject
from gramercy.acp.updates import differences, view_of
from gramercy.execution.approval import Denied
from gramercy.execution.executor import Executor
from gramercy.providers.base import ModelCall
from gramercy.testing.image import MemoryImage
from gramercy.tools.registry import Registry
from gramercy.toolsets.core import register_core_tools


@pytest.fixture
def asked(tmp_path):
    """Return what makes the question about a call of write_file."""
    (tmp_path / "real.md").write_text("old\n")
    (tmp_path / "link.md").symlink_to("real.md")
    registry = Registry()
    register_core_tools(registry, MemoryImage("python"), project=tmp_path)
    requests = []

    def person(tool, arguments, request):
        del tool, arguments
        requests.append(request)
        return Denied("no")

    def ask(path):
        arguments = {"path": path, "content": "new\n"}
        Executor(registry, person).execute({"id": "1", "name": "write_file", "arguments": arguments})
        return requests[-1]

    return ask


@pytest.mark.contract("trust.paths.offers")
@pytest.mark.parametrize("path", ["real.md", "./real.md", "link.md"])
def test_always_in_this_session_is_about_the_real_file(asked, path):
    """Another link must not inherit the yes."""
    request = asked(path)
    assert _subject(request) == ("write_file", "real.md")
    assert ALWAYS in {option["optionId"] for option in _options(request)}


@pytest.mark.contract("trust.paths.offers")
def test_a_control_file_is_not_offered_as_always_allowed(asked):
    """Each change of one is a person's own decision."""
    assert ALWAYS not in {option["optionId"] for option in _options(asked(".envrc"))}


@pytest.mark.contract("trust.beyond.editor")
@pytest.mark.parametrize(
    "path", ["real.md", "./real.md", "link.md", "a/..//real.md", "{}/real.md", "other.md"]
)
def test_the_difference_in_an_editor_is_that_of_the_real_file(asked, tmp_path, path):
    """The last is what the model wrote before a person edited the path."""
    given = path.format(tmp_path)
    request = asked("real.md" if path == "other.md" else given)
    call = ModelCall("1", "write_file", json.dumps({"path": given, "content": "new\n"}))
    view = view_of("1", call, request.tool, str(tmp_path))
    view.arguments = dict(request.arguments)
    [diff], [place] = differences(request.effect_data["difference"], _base(request, view))
    assert diff["path"] == place["path"] == str(tmp_path / "real.md")
