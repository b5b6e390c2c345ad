"""Check pictures: their format, their size in pixels, and whether they are complete and small enough.

A picture comes from evaluated code, so it may be anything. If a client forwards a broken one, its model's
service returns an error for that call and for every later one: such a picture must never be sent.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from gramercy.images.base import Display, Reply

# The model services take up to 8,000 px, but only 2,000 in a conversation of more than 20 pictures.
LONGEST_SIDE = 2_000
# One MB as base64: a fifth of a service's limit for one picture. The programs in an image scale down their
# own drawings, so only pictures that user code gives as bytes reach this limit.
LARGEST = 750_000
SVG = "image/svg+xml"
FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WebP", SVG: "SVG"}
_PNG = b"\x89PNG\r\n\x1a\n"
_BEGINNINGS = {
    "image/png": (_PNG,),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}
# Samples of a pixel by the colour type of a PNG.
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_HEAD = 13
_MARKER = 0xFF
# Of JPEG: begin and end, markers without a length (restarts), and those of frames, which hold the size.
_BEGIN, _END, _SCAN = 0xD8, 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Picture(NamedTuple):
    """The format of a picture and its size in pixels. An SVG has no size."""

    mime: str
    width: int = 0
    height: int = 0

    def told(self, count: int) -> str:
        """Describe it, with the number of its bytes."""
        size = f"{self.width}x{self.height} px, " if self.width else ""
        return f"{size}{FORMATS[self.mime]} {_amount(count)}"


def _amount(count: int) -> str:
    return f"{count} bytes" if count < 1_000 else f"{count / 1_000:.0f} KB"  # noqa: PLR2004 - a kilobyte


def is_picture(data: bytes) -> bool:
    """Return whether bytes begin like a picture that a model can be shown."""
    return raster_format(data) is not None


def raster_format(data: bytes) -> str | None:
    """Return the media type of a raster picture by its first bytes, None for anything else."""
    for mime, beginnings in _BEGINNINGS.items():
        if data.startswith(beginnings):
            return mime
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def examine(data: bytes) -> Picture:
    """Identify a picture by its bytes. Raise ValueError for an incomplete picture or unknown format."""
    if data.startswith(_PNG):
        return _png(data)
    if data.startswith(b"\xff\xd8\xff"):
        return _jpeg(data)
    if data[:6] in {b"GIF87a", b"GIF89a"} and len(data) > _HEAD and data.endswith(b";"):
        return Picture("image/gif", *struct.unpack("<HH", data[6:10]))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if b"<svg" in data[:2_000]:
        return Picture(SVG)
    raise ValueError("it is neither PNG, JPEG, GIF, WebP nor SVG")


def check(data: bytes) -> Picture:
    """Identify a picture. Raise ValueError, with advice, if it cannot be shown."""
    if len(data) > LARGEST:
        raise ValueError(
            f"it has {len(data):,} bytes, and at most {LARGEST:,} are shown: "
            "make it smaller, or write it to a file"
        )
    picture = examine(data)
    if max(picture.width, picture.height) > LONGEST_SIDE:
        raise ValueError(
            f"it has {picture.width}x{picture.height} px, and at most {LONGEST_SIDE:,} on a side are shown: "
            "make it smaller, or write it to a file"
        )
    if picture.mime != SVG and not (picture.width and picture.height):
        raise ValueError("it has no pixels")
    return picture


def _png(data: bytes) -> Picture:
    """Check every chunk and that all pixels are there: decoders refuse a cut PNG."""
    place, head, pixels, names = len(_PNG), b"", [], []
    while place + 12 <= len(data):
        size, name = struct.unpack(">I4s", data[place : place + 8])
        body, end = data[place + 8 : place + 8 + size], place + 12 + size
        if len(body) < size or zlib.crc32(name + body) != int.from_bytes(data[end - 4 : end]):
            raise ValueError(f"the PNG is broken or cut at byte {place:,}")
        names.append(name)
        if name == b"IHDR":
            head = body
        elif name == b"IDAT":
            pixels.append(body)
        elif name == b"IEND":
            break
        place = end
    if names[:1] != [b"IHDR"] or names[-1:] != [b"IEND"] or len(head) != _HEAD:
        raise ValueError("the PNG is broken or cut: it has no beginning or no end")
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", head)
    if colour not in _SAMPLES:
        raise ValueError("the PNG is broken: it has no known kind of pixels")
    line = (width * depth * _SAMPLES[colour] + 7) // 8 + 1
    if not interlaced and max(width, height) <= LONGEST_SIDE:
        _inflate(b"".join(pixels), line * height)
    return Picture("image/png", width, height)


def _inflate(packed: bytes, size: int) -> None:
    """Check that this many bytes are packed. No more than that are ever unpacked."""
    try:
        found = len(zlib.decompressobj().decompress(packed, size + 1))
    except zlib.error as error:
        raise ValueError(f"the pixels of the PNG are broken: {error}") from None
    if found != size:
        raise ValueError(f"the PNG has {found:,} bytes of pixels where its size says {size:,}")


def _jpeg(data: bytes) -> Picture:
    """Walk the segments before the pixels to the one that holds the size."""
    if not data.rstrip(b"\0").endswith(bytes((_MARKER, _END))):
        raise ValueError("the JPEG is cut: it has no end")
    place, found = 2, None
    while place + 9 < len(data) and data[place] == _MARKER:
        marker = data[place + 1]
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            found = Picture("image/jpeg", width, height)
        if marker == _SCAN and found is not None:
            return found
        place += 2 + int.from_bytes(data[place + 2 : place + 4])
    raise ValueError("the JPEG is broken: it does not tell its size")


def _webp(data: bytes) -> Picture:
    if len(data) < 30 or int.from_bytes(data[4:8], "little") + 8 > len(data):  # noqa: PLR2004 - the three heads
        raise ValueError("the WebP is cut")
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    elif kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (value & 0x3FFF for value in struct.unpack("<HH", data[26:30]))
    return Picture("image/webp", width, height)


def settled(display: Display) -> Display:
    """Return a picture with a description. If it cannot be shown, drop its bytes and add the reason."""
    name = display.text or "picture"
    if display.kind != "picture" or not display.data:
        return display
    try:
        picture = check(display.data)
    except ValueError as error:
        return msgspec.structs.replace(display, text=name, data=b"", note=f"not shown: {error}")
    told = f"{name}, {picture.told(len(display.data))}"
    return msgspec.structs.replace(display, mime=picture.mime, text=told)


def without_pictures(reply: Reply) -> Reply:
    """Return the reply for the history: with descriptions of its pictures, without their bytes."""
    kept = [msgspec.structs.replace(settled(display), data=b"") for display in reply.displays]
    return msgspec.structs.replace(reply, displays=kept)
