"""Pictures and tables of an evaluation as a caller of a tool gets them."""

from gramercy.images.base import Display, Form, ImageFault, Notice, Reply
from gramercy.tools.content import ImageBlock, ToolOutput
from gramercy.toolsets.rendering import LONGEST_ANSWER, evaluated, preview_text
from tests.support import png


def test_a_picture_is_a_block_beside_text_that_says_what_it_is() -> None:
    shown = evaluated(Reply(ok=True, forms=[Form(["1"])], displays=[_picture("figure 1")]))
    assert isinstance(shown, ToolOutput)
    assert shown.value == "=> 1\n\n[picture] figure 1, 30x20 px, PNG 72 bytes"
    assert shown.blocks == (ImageBlock(png(30, 20), "image/png"),)


def test_the_bytes_decide_what_format_a_picture_has() -> None:
    wrong = Display("picture", "image/jpeg", png(), "photo")
    shown = evaluated(Reply(ok=True, displays=[wrong]))
    assert isinstance(shown, ToolOutput)
    assert [block.mime_type for block in shown.blocks if isinstance(block, ImageBlock)] == ["image/png"]


def test_a_failed_evaluation_keeps_its_pictures() -> None:
    reply = Reply(ok=False, error=ImageFault("ValueError", "bad"), displays=[_picture("figure 1")])
    shown = evaluated(reply)
    assert isinstance(shown, ToolOutput)
    assert shown.error is not None
    assert shown.error.startswith("[ERROR] ValueError")
    assert shown.error.endswith("[picture] figure 1, 30x20 px, PNG 72 bytes")
    assert len(shown.blocks) == 1


def test_a_broken_picture_is_told_and_never_sent() -> None:
    shown = evaluated(Reply(ok=True, displays=[Display("picture", "image/png", png()[:-5], "plot")]))
    assert isinstance(shown, str)
    assert "[picture] plot (not shown: the PNG is broken or cut" in shown


def test_a_short_svg_is_given_as_text_and_a_long_one_named() -> None:
    short = Display("picture", "image/svg+xml", b"<svg><circle/></svg>", "Shape")
    long = Display("picture", "image/svg+xml", b"<svg>" + b"x" * 5_000, "Shape")
    shown = evaluated(Reply(ok=True, displays=[short, long]))
    assert isinstance(shown, str)
    assert "[picture] Shape, SVG 20 bytes; as text:\n<svg><circle/></svg>" in shown
    assert "[picture] Shape, SVG 5 KB; SVG is not shown to models: give it as PNG" in shown


def test_a_table_follows_the_value_and_all_stays_within_the_room() -> None:
    table = Display("table", text="\n".join(f"{n:4} row" for n in range(2_000)))
    value = Form(["<DataFrame, 2,000 rows x 1 column>"])
    short = evaluated(Reply(ok=True, forms=[value], displays=[Display("table", text="  a\n0 1")]))
    assert short == "=> <DataFrame, 2,000 rows x 1 column>\n  a\n0 1"
    notices = [Notice("warning", "W", "w" * 5_000)]
    for stdout in ("", "x" * 20_000):
        reply = Reply(ok=True, forms=[value], displays=[table], stdout=stdout, warnings=notices)
        shown = evaluated(reply)
        assert isinstance(shown, str)
        assert len(shown) <= LONGEST_ANSWER
        assert "=> <DataFrame, 2,000 rows x 1 column>\n   0 row" in shown
        assert "1,667 more" in shown


def test_a_preview_tells_of_pictures() -> None:
    reply = Reply(ok=True, forms=[Form(["1"])], displays=[_picture("figure 1")])
    assert "[picture] figure 1, 30x20 px" in preview_text(reply, is_answer=True)


def _picture(name: str) -> Display:
    return Display("picture", "image/png", png(30, 20), name)
