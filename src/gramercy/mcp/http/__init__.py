"""MCP over Streamable HTTP: an ASGI application, its limits and gates, and a server to run it."""

from gramercy.errors import ServingError
from gramercy.mcp.http.app import HttpApp
from gramercy.mcp.http.auth import Caller, OpenGate, TokenGate
from gramercy.mcp.http.oauth import OAuthGate, OAuthSettings
from gramercy.mcp.http.server import HttpServer, serve_http
from gramercy.mcp.http.settings import HttpSettings

__all__ = [
    "Caller",
    "HttpApp",
    "HttpServer",
    "HttpSettings",
    "OAuthGate",
    "OAuthSettings",
    "OpenGate",
    "ServingError",
    "TokenGate",
    "serve_http",
]
