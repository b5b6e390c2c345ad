"""The tools of other MCP servers: connected to, accepted one by one, and guarded like our own.

The rest of the package does not need this subpackage, and nothing here is imported before it is used.
"""

from gramercy.errors import ChangedError, ForeignError, RemoteError, ServerGoneError
from gramercy.mcp.foreign.definitions import Definition, Listing, Review, Standing, review_tools
from gramercy.mcp.foreign.pins import PinFile, default_pins
from gramercy.mcp.foreign.registration import Registration, register_foreign, registered_name
from gramercy.mcp.foreign.server import ForeignServer, connect_server

__all__ = [
    "ChangedError",
    "Definition",
    "ForeignError",
    "ForeignServer",
    "Listing",
    "PinFile",
    "Registration",
    "RemoteError",
    "Review",
    "ServerGoneError",
    "Standing",
    "connect_server",
    "default_pins",
    "register_foreign",
    "registered_name",
    "review_tools",
]
