"""The methods for the contents of a catalogue: resources, prompts, completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.errors import GramercyError, ProtocolError
from gramercy.execution.callers import LOOP, Limit, is_async
from gramercy.gram.suggestion import suggest
from gramercy.mcp.jsonrpc import Code, invalid_params
from gramercy.mcp.listing import page_of
from gramercy.mcp.tool_calls import as_content, resource_content
from gramercy.tools.content import ResourceBlock, TextBlock
from gramercy.tools.context import current_call

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gramercy.mcp.catalogue import Catalog, Prompt, Resource, Template
    from gramercy.mcp.jsonrpc import Request, Shaper

LONGEST_URI = 4_000  # browsers and servers stop at 2,000 to 8,000
MOST_COMPLETIONS = 100  # the most that the protocol allows
MOST_NAMED = 5  # resources named to a client that asks for an unknown one
# A reader that takes longer is broken; longer work belongs into a tool.
READ_SECONDS = 60.0


class CatalogMethods:
    """Answers resources/*, prompts/* and completion/complete from one catalogue."""

    def __init__(self, catalog: Catalog, shaper: Shaper, page_size: int) -> None:
        self._catalog = catalog
        self._shaper = shaper
        self._page_size = page_size

    def resources(self, request: Request) -> dict[str, Any]:
        """List the resources."""
        return self._page(request, "resources", [_described(r) for r in self._catalog.resources.values()])

    def templates(self, request: Request) -> dict[str, Any]:
        """List the resource templates."""
        found = [_described(template) for template in self._catalog.templates.values()]
        return self._page(request, "resourceTemplates", found)

    def prompts(self, request: Request) -> dict[str, Any]:
        """List the prompts."""
        return self._page(request, "prompts", [_described_prompt(p) for p in self._catalog.prompts.values()])

    def _page(self, request: Request, name: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        return self._shaper.cached(request, page_of(items, request, name, self._page_size))

    def read(self, request: Request) -> Coroutine[Any, Any, dict[str, Any]]:
        """Read a resource."""
        uri = self.known(request)
        found = self._catalog.find(uri)
        if found is None:
            raise not_found(request, uri, self._catalog)
        return self._read(request, uri, *found)

    async def _read(
        self, request: Request, uri: str, source: Resource | Template, variables: dict[str, str]
    ) -> dict[str, Any]:
        given = (variables,) if variables else ()
        value = await _called(source.read, given, uri, inline=source.inline)
        parts = value if isinstance(value, list | tuple) else [value]
        contents = [_as_resource(part, uri, source.mime_type) for part in parts]
        return self._shaper.cached(request, {"contents": contents}, 0)

    def known(self, request: Request) -> str:
        """Return the address that a request names, unless it is too long."""
        uri = request.text("uri")
        if len(uri) > LONGEST_URI:
            raise invalid_params(f"uri is longer than {LONGEST_URI} characters")
        return uri

    def get_prompt(self, request: Request) -> Coroutine[Any, Any, dict[str, Any]]:
        """Fill in a prompt."""
        name = request.text("name")
        prompt = self._catalog.prompts.get(name)
        if prompt is None:
            raise ProtocolError(Code.INVALID_PARAMS, f"Unknown prompt: {name[:100]}")
        arguments = request.mapping("arguments")
        if not all(type(value) is str for value in arguments.values()):
            raise invalid_params("the arguments of a prompt are strings")
        missing = [a.name for a in prompt.arguments if a.required and a.name not in arguments]
        if missing:
            raise invalid_params(f"{name} needs {', '.join(missing)}")
        return self._prompt(request, prompt, arguments)

    async def _prompt(self, request: Request, prompt: Prompt, arguments: dict[str, str]) -> dict[str, Any]:
        value = await _called(prompt.get, (dict(arguments),), prompt.name, inline=prompt.inline)
        parts = value if isinstance(value, list | tuple) else [value]
        result: dict[str, Any] = {"messages": [_as_message(part, request.version) for part in parts]}
        return {"description": prompt.description, **result} if prompt.description else result

    def complete(self, request: Request) -> Coroutine[Any, Any, dict[str, Any]]:
        """Complete an argument."""
        reference, argument = request.mapping("ref"), request.mapping("argument")
        field = {"ref/prompt": "name", "ref/resource": "uri"}.get(str(reference.get("type")))
        typed, name = argument.get("value"), argument.get("name")
        if field is None or type(reference.get(field)) is not str or type(typed) is not str:
            raise invalid_params(
                "expected ref {type: ref/prompt, name} or {type: ref/resource, uri} "
                "and argument {name, value}",
            )
        if reference[field] not in (self._catalog.prompts if field == "name" else self._catalog.templates):
            raise ProtocolError(Code.INVALID_PARAMS, f"Unknown {field}: {reference[field][:100]}")
        values = self._catalog.completions.get((reference[field], str(name)))
        known = request.mapping("context").get("arguments")
        return _completed(values, typed, known if isinstance(known, dict) else {})


async def _completed(values: Callable[..., Any] | None, typed: str, known: dict[str, Any]) -> dict[str, Any]:
    found = [] if values is None else await _called(values, (typed, known), "the completion", inline=True)
    texts = [str(text) for text in found]
    shown = texts[:MOST_COMPLETIONS]
    return {"completion": {"values": shown, "total": len(texts), "hasMore": len(texts) > len(shown)}}


async def _called(function: Callable[..., Any], given: tuple[Any, ...], what: str, *, inline: bool) -> Any:
    """Call a function of the catalogue within limits; only errors of our own tree are told to the client."""
    limit = Limit(what[:200], None if inline or is_async(function) else READ_SECONDS)
    try:
        return await LOOP.call(function, *given, limit=limit, inline=inline)
    except GramercyError as error:
        fault = getattr(current_call(), "fault", None) or (
            error if isinstance(error, ProtocolError) else None
        )
        raise fault or ProtocolError(Code.INTERNAL_ERROR, str(error)[:2_000]) from None


def _described(entry: Resource | Template) -> dict[str, Any]:
    address = {"uri": entry.uri} if hasattr(entry, "uri") else {"uriTemplate": entry.uri_template}
    found = {**address, "name": entry.name, "description": entry.description, "mimeType": entry.mime_type}
    return {key: value for key, value in found.items() if value}


def _described_prompt(prompt: Prompt) -> dict[str, Any]:
    found: dict[str, Any] = {"name": prompt.name}
    if prompt.description:
        found["description"] = prompt.description
    if prompt.arguments:
        found["arguments"] = [
            {
                "name": a.name,
                "required": a.required,
                **({"description": a.description} if a.description else {}),
            }
            for a in prompt.arguments
        ]
    return found


def _as_resource(part: Any, uri: str, mime_type: str | None) -> dict[str, Any]:
    if isinstance(part, ResourceBlock):
        return resource_content(part.uri, part.content, part.mime_type)
    return resource_content(uri, part if isinstance(part, str | bytes) else str(part), mime_type)


def _as_message(part: Any, version: str) -> dict[str, Any]:
    role = getattr(part, "role", "user")
    content = getattr(part, "content", part) if hasattr(part, "role") else part
    block = TextBlock(content) if isinstance(content, str) else content
    return {"role": role, "content": as_content(block, version)}


def not_found(request: Request, uri: str, catalog: Catalog) -> ProtocolError:
    """Return the error for an unknown address, with similar ones."""
    code = Code.INVALID_PARAMS if request.modern else Code.RESOURCE_NOT_FOUND
    known = [*catalog.resources, *catalog.templates]
    near = suggest(uri[:LONGEST_URI], known, most=MOST_NAMED)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known[:MOST_NAMED])}"
    return ProtocolError(code, f"Resource not found: {uri[:200]}; {hint}", {"uri": uri})
