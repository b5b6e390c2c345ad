"""The results of remote tools become outputs of ours: text, pictures, errors; bounded."""

from __future__ import annotations

import base64

import pytest

from gramercy.mcp.foreign.registration import read_result
from gramercy.tools.content import AudioBlock, ImageBlock, ResourceBlock, ResourceLink, TextBlock

PNG = b"\x89PNG\r\n\x1a\n"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


def encoded(data):
    return base64.b64encode(data).decode()


def test_texts_become_one_text():
    """Other servers: content is mapped."""
    output = read_result({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})
    assert (output.value, output.error, output.blocks) == ("a\nb", None, ())


def test_every_kind_of_content_is_kept_as_what_it_is():
    """Other servers: images as blocks."""
    output = read_result(
        {
            "content": [
                {"type": "text", "text": "look", "annotations": {"audience": []}},
                {"type": "image", "data": encoded(PNG), "mimeType": "image/x-other"},
                {"type": "audio", "data": encoded(b"wav"), "mimeType": "audio/wav\r\nX: y"},
                {"type": "resource", "resource": {"uri": "a:b", "text": "in\x1b", "mimeType": "text/plain"}},
                {"type": "resource", "resource": {"uri": "a:c", "blob": encoded(b"\0")}},
                {"type": "resource_link", "uri": "a:d", "name": "d\u202e"},
            ]
        }
    )
    assert output.value is None
    assert output.blocks == (
        TextBlock("look"),
        ImageBlock(PNG, "image/png"),
        AudioBlock(b"wav", "application/octet-stream"),
        ResourceBlock("a:b", "in\\u{1b}", "text/plain"),
        ResourceBlock("a:c", b"\0"),
        ResourceLink("a:d", "d\\u{202e}"),
    )


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (7, "[a piece of content that is no object]"),
        ({"type": "hologram"}, "[a piece of content of an unknown kind, 'hologram']"),
        ({"type": "text", "text": 7}, "[a text that is no text]"),
        ({"type": "image", "data": "?"}, "[data that is not Base64]"),
        ({"type": "image"}, "[data that is not Base64]"),
        (
            {"type": "resource", "resource": {"uri": "a:b", "blob": 1}},
            "[resource a:b: data that is not Base64]",
        ),
        ({"type": "resource"}, "[a piece of content of an unknown kind, 'resource']"),
    ],
)
def test_content_that_cannot_be_used_is_told(item, said):
    """Other servers: nonsense is told, not raised."""
    assert read_result({"content": [item]}).value == said


def test_an_error_is_an_error_with_its_text():
    """Other servers: isError is mapped."""
    failed = read_result({"content": [{"type": "text", "text": "no disk"}], "isError": True})
    assert (failed.value, failed.error) == (None, "no disk")
    assert read_result({"isError": True}).error == "the remote tool failed and gave no reason"
    assert read_result({"isError": "yes", "content": []}).error is None


def test_structured_content_is_kept_and_is_the_text_where_there_is_none():
    """MCP server, checklist 5: text is always sufficient."""
    output = read_result({"structuredContent": {"sum": 5}})
    assert (output.value, output.structured) == ('{"sum":5}', {"sum": 5})
    assert read_result({"content": "?", "structuredContent": [1]}).structured is None


def test_output_is_cut_and_the_cut_announced():
    """MCP server, checklist 8: output capped."""
    items = [{"type": "text", "text": "x" * 60_000}, {"type": "text", "text": "y" * 60_000}]
    text = read_result({"content": items}).value
    assert len(text) < 101_000
    assert text.endswith("… [output cut: 40,000 of 60,000 characters shown]")


def test_too_much_data_and_too_many_pieces_are_left_out():
    """Other servers: output capped."""
    picture = {"type": "image", "data": encoded(PNG + b"x" * 4_999_992), "mimeType": "image/png"}
    output = read_result({"content": [picture, picture]})
    assert isinstance(output.blocks[0], ImageBlock)
    assert output.blocks[1] == TextBlock("[5,000,000 bytes were left out: a result may have 8,388,608]")
    many = read_result({"content": [{"type": "text", "text": "a"}] * 5_000})
    assert many.value.endswith("… [4,900 more pieces of content were left out]")


def test_pictures_go_through_the_guard_as_blocks(echo):
    """Other servers: through the executor."""
    result = echo("picture")("see")
    assert result.success
    assert "[image: image/png, 8 bytes]" in result.content
    assert result.metadata["blocks"][1].data.startswith(b"\x89PNG")


def test_a_failing_and_a_talkative_tool_through_the_guard(echo, stranger):
    """Other servers: through the executor."""
    failed = echo("fail")("it broke")
    assert (failed.success, failed.error) == (False, "it broke")
    assert len(read_result(stranger("talkative").call("echo", {})).value) < 101_000


LEFT_OUT = "a picture was left out: only PNG, JPEG, GIF and WebP are passed on"


@pytest.mark.contract("trust.looks.foreign")
@pytest.mark.parametrize("mime", ["image/svg+xml", "image/png", "image/x-unknown", None])
def test_a_picture_that_can_hold_code_is_left_out_whatever_it_is_called(mime):
    """Minor faults: SVG with a script was passed on to clients, which may run it."""
    for data in (SVG, b"\xef\xbb\xbf  " + SVG, b"", b"%PDF-1.7"):
        item = {"type": "image", "data": encoded(data), "mimeType": mime}
        output = read_result({"content": [item]})
        assert output.blocks == ()
        assert LEFT_OUT in output.value


@pytest.mark.contract("trust.looks.foreign")
def test_a_resource_that_is_an_svg_is_handed_on_as_text_or_not_at_all():
    """Minor faults: what a client draws as a picture comes by another way too."""
    text = {"uri": "a:b", "text": SVG.decode(), "mimeType": "image/svg+xml"}
    blob = {"uri": "a:c", "blob": encoded(SVG), "mimeType": "Image/SVG+xml"}
    kept = {"uri": "a:d", "blob": encoded(PNG), "mimeType": "image/svg+xml"}
    output = read_result({"content": [{"type": "resource", "resource": each} for each in (text, blob, kept)]})
    as_text, left_out, picture = output.blocks
    assert as_text == ResourceBlock("a:b", SVG.decode(), "text/plain")
    assert isinstance(left_out, TextBlock)
    assert LEFT_OUT in left_out.text
    assert picture == ResourceBlock("a:d", PNG, "image/png")


@pytest.mark.contract("trust.looks.foreign")
@pytest.mark.parametrize("depth", [61, 500, 900])
def test_structured_content_that_is_nested_too_deeply_is_left_out_and_told(depth):
    """Minor faults: what is passed on is read again by programs with less patience."""
    value: object = 1
    for _ in range(depth):
        value = {"a": value}
    output = read_result({"content": [{"type": "text", "text": "t"}], "structuredContent": value})
    assert output.structured is None
    assert output.value == "t\n[structured content was left out: it is nested more than 60 deep]"
