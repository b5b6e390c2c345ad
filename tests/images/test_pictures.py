"""What a picture is, by its bytes alone, and which ones may be shown."""

import struct

import pytest

from gramercy.images.base import Display, Reply
from gramercy.images.pictures import LARGEST, Picture, check, examine, settled, without_pictures
from tests.support import png

REFUSED = "^(it|the) "
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    b"\xff\xc0\x00\x0b\x08\x00\x07\x00\x05\x01\x01\x11\x00"
    b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\xd2\xff\xd9"
)


def test_formats_are_known_by_their_bytes_with_their_sizes() -> None:
    assert examine(png(30, 20)) == Picture("image/png", 30, 20)
    assert examine(JPEG) == Picture("image/jpeg", 5, 7)
    gif = b"GIF89a" + struct.pack("<HH", 4, 9) + bytes(8) + b";"
    assert examine(gif) == Picture("image/gif", 4, 9)
    lossless = struct.pack("<I", (12 - 1) | (34 - 1) << 14)
    body = b"WEBPVP8L" + struct.pack("<I", 20) + b"\x2f" + lossless + bytes(20)
    assert examine(b"RIFF" + struct.pack("<I", len(body)) + body) == Picture("image/webp", 12, 34)
    assert examine(b'<?xml version="1.0"?>\n<svg xmlns="">').mime == "image/svg+xml"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        png()[:-1],
        png()[:40],
        b"\x89PNG\r\n\x1a\n",
        png(pixels=b"\0"),
        png(pixels=bytes(1000)),
        JPEG[:-2],
        JPEG[:4] + b"\xff\xd9",
        b"RIFF\xff\xff\0\0WEBPVP8 " + bytes(40),
        b"GIF89a" + bytes(4),
    ],
)
def test_what_is_cut_broken_or_unknown_is_refused(data: bytes) -> None:
    """A service of a model refuses every later request of a conversation that holds a broken picture."""
    with pytest.raises(ValueError, match=REFUSED):
        check(data)


def test_every_prefix_and_every_flipped_byte_of_a_png_is_refused() -> None:
    whole = png(5, 5)
    for end in range(len(whole)):
        with pytest.raises(ValueError, match=REFUSED):
            check(whole[:end])
    for place in range(len(whole)):
        with pytest.raises(ValueError, match=REFUSED):
            check(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])


def test_what_is_too_large_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"2001x1 px.*make it smaller"):
        check(png(2_001, 1))
    with pytest.raises(ValueError, match=r"750,001 bytes.*write it to a file"):
        check(bytes(LARGEST + 1))
    with pytest.raises(ValueError, match="no pixels"):
        check(png(0, 0))


def test_a_bomb_is_not_unpacked() -> None:
    """A picture of 1x1 px whose pixels would fill the memory."""
    with pytest.raises(ValueError, match="3 bytes of pixels where its size says 2"):
        check(png(1, 1, pixels=bytes(50_000_000)))


def test_a_history_keeps_what_a_picture_was_and_not_its_bytes() -> None:
    shown = Display("picture", "image/png", png(30, 20), "figure 1")
    kept = without_pictures(Reply(ok=True, displays=[shown, Display("table", text="a b")])).displays
    assert kept[0].data == b""
    assert kept[0].text == "figure 1, 30x20 px, PNG 72 bytes"
    assert kept[1].text == "a b"
    assert settled(kept[0]) == kept[0]
