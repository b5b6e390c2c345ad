"""Pictures over MCP: content that a client decodes from the bytes of a real server."""

import base64
import shutil

import pytest

from gramercy.images.pictures import Picture, check
from tests.support import png, start_server

BOUND = 60
PICTURE = png(30, 20)
OCTETS = " ".join(map(str, PICTURE))
SHOWN = {
    "python": f"class Plot:\n    def _repr_png_(self): return {PICTURE!r}\nPlot()",
    "sbcl": f"(defclass plot () ()) (defmethod gramercy:picture ((p plot)) (coerce '({OCTETS}) 'vector))"
    " (make-instance 'plot)",
}
TOOL = {"sbcl": "evaluate-lisp", "python": "evaluate-python"}


@pytest.fixture(params=["sbcl", "python"])
def language(request):
    """Return the language of an image."""
    if request.param == "sbcl" and shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    return request.param


@pytest.fixture
def server(language, tmp_path):
    """Start a server and shake hands."""
    client = start_server("--image", language, cwd=tmp_path)
    client.seconds = BOUND
    assert client.initialize()
    yield client
    client.close()


def pictures(result):
    """Return what the image content of a result is, decoded."""
    found = [part for part in result["content"] if part["type"] == "image"]
    assert {part["mimeType"] for part in found} <= {"image/png"}
    return [check(base64.b64decode(part["data"], validate=True)) for part in found]


@pytest.mark.contract("day.pictures.mcp")
def test_a_picture_is_image_content_beside_text_that_says_what_it_is(server, language):
    """Pictures and tables: MCP image content; clients drop text and pictures beside structuredContent."""
    result = server.call(TOOL[language], code=SHOWN[language])
    assert pictures(result) == [Picture("image/png", 30, 20)]
    assert result["content"][0]["type"] == "text"
    assert "30x20 px, PNG 72 bytes" in result["content"][0]["text"]
    assert result["isError"] is False
    assert "structuredContent" not in result


@pytest.mark.contract("day.pictures.mcp")
def test_previews_have_pictures_and_the_history_only_tells_of_them(server, language):
    previewed = server.call("preview_form", code=SHOWN[language])
    assert pictures(previewed) == [Picture("image/png", 30, 20)]
    server.call(TOOL[language], code=SHOWN[language])
    history = server.call("get_repl_history")
    assert pictures(history) == []
    assert "30x20 px, PNG 72 bytes" in history["content"][0]["text"]
