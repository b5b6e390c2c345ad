"""What can go wrong with another server, in words for the person or model who wanted something of it."""

from __future__ import annotations

from gramercy.errors import SourceError


class ForeignError(SourceError):
    """Another MCP server, or the file with the pins of its tools, cannot be used as asked."""


class ServerGoneError(ForeignError):
    """The connection to another server has ended."""


class ForgottenError(ForeignError):
    """A server over HTTP knows the session no more; the request was not carried out."""


class RemoteError(ForeignError):
    """Another server has answered with an error of the protocol."""

    def __init__(self, message: str, code: int, data: object = None) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


class ChangedError(ForeignError):
    """A tool is no longer what a person accepted."""
