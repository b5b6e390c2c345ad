"""What a server offers beside tools: resources, resource templates, prompts, and completions of arguments.

Everything can be added and taken away while it is being served. Functions may be async. Plain ones run on a
thread of their own unless they are declared `inline`, that is, cheap. The methods that serve it come last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import unquote

from gramercy.errors import GramercyError, InvalidToolError, ProtocolError
from gramercy.execution.callers import LOOP, Limit, is_async
from gramercy.mcp.jsonrpc import Code, invalid_params
from gramercy.mcp.listing import page_of
from gramercy.mcp.tool_calls import as_content, resource_content
from gramercy.tools.content import ResourceBlock, TextBlock
from gramercy.tools.context import current_call

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gramercy.mcp.versions import Request, Shaper
    from gramercy.tools.content import Block

Change: TypeAlias = Literal["resources", "prompts", "resource"]
Watcher: TypeAlias = Callable[[Change, str], None]
_VARIABLE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that can be read under one address; `read` takes nothing and gives text, bytes or blocks."""

    uri: str
    name: str
    read: Callable[[], Any]
    description: str = ""
    mime_type: str | None = None
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """A family of resources; `read` takes the variables of the address as a dictionary."""

    uri_template: str
    name: str
    read: Callable[[dict[str, str]], Any]
    pattern: re.Pattern[str]
    description: str = ""
    mime_type: str | None = None
    inline: bool = False

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the variables of an address of this family, or None."""
        found = self.pattern.fullmatch(uri)
        return None if found is None else {name: unquote(value) for name, value in found.groupdict().items()}


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """One argument of a prompt; all are text."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a prompt."""

    role: Literal["user", "assistant"]
    content: Block


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text for a person to start from; `get` takes the arguments and gives text or a list of messages."""

    name: str
    get: Callable[[dict[str, str]], Any]
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()
    inline: bool = False


class Catalog:
    """The resources, templates, prompts and completions of a server. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Template] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[tuple[str, str], Callable[[str, dict[str, str]], Any]] = {}
        self._watchers: list[Watcher] = []
        self._on_subscription: list[Callable[[], object]] = []

    def when_subscribed(self, begin: Callable[[], object]) -> None:
        """Have `begin` called once, when a client first wants to be told that a resource has changed."""
        self._on_subscription.append(begin)

    def subscribed(self) -> None:
        """Note that a client wants to be told when a resource changes."""
        waiting, self._on_subscription = self._on_subscription, []
        for begin in waiting:
            begin()

    def resource(self, uri: str, name: str, read: Callable[[], Any], **about: Any) -> Resource:
        """Offer a resource; `about` may give description, mime_type and inline."""
        resource = Resource(uri, name, read, **about)
        with self._lock:
            self.resources = _sorted({**self.resources, uri: resource})
        self._changed("resources")
        return resource

    def template(
        self, uri_template: str, name: str, read: Callable[[dict[str, str]], Any], **about: Any
    ) -> Template:
        """Offer a family such as `file:///{+path}`; `{name}` stops at a slash, `{+name}` does not."""
        template = Template(uri_template, name, read, _pattern(uri_template), **about)
        with self._lock:
            self.templates = _sorted({**self.templates, uri_template: template})
        self._changed("resources")
        return template

    def prompt(
        self,
        name: str,
        get: Callable[[dict[str, str]], Any],
        *,
        arguments: Iterable[PromptArgument] = (),
        **about: Any,
    ) -> Prompt:
        """Offer a prompt; `about` may give description and inline."""
        prompt = Prompt(name, get, arguments=tuple(arguments), **about)
        with self._lock:
            self.prompts = _sorted({**self.prompts, name: prompt})
        self._changed("prompts")
        return prompt

    def complete(self, name: str, argument: str, values: Callable[[str, dict[str, str]], Any]) -> None:
        """Complete an argument of a prompt (by its name) or a variable of a template (by its address).

        `values` takes what was typed and the other arguments known so far, and gives a list of texts.
        """
        with self._lock:
            self.completions = {**self.completions, (name, argument): values}

    def remove(self, name: str) -> bool:
        """Take away the prompt, resource or template of that name or address; tell whether there was one."""
        kind: Change | None = None
        with self._lock:
            if name in self.prompts:
                kind = "prompts"
                self.prompts = {key: value for key, value in self.prompts.items() if key != name}
            elif name in self.resources or name in self.templates:
                kind = "resources"
                self.resources = {key: value for key, value in self.resources.items() if key != name}
                self.templates = {key: value for key, value in self.templates.items() if key != name}
        if kind is not None:
            self._changed(kind)
        return kind is not None

    def find(self, uri: str) -> tuple[Resource | Template, dict[str, str]] | None:
        """Return what is read under an address, with the variables in it."""
        resource = self.resources.get(uri)
        if resource is not None:
            return resource, {}
        for template in self.templates.values():
            variables = template.match(uri)
            if variables is not None:
                return template, variables
        return None

    def updated(self, uri: str) -> None:
        """Tell those who watch a resource that its content has changed."""
        self._changed("resource", uri)

    def watch(self, watcher: Watcher) -> None:
        """Call the watcher after every change, on whatever thread it was made."""
        self._watchers.append(watcher)

    def _changed(self, change: Change, uri: str = "") -> None:
        for watcher in self._watchers:
            watcher(change, uri)


def _sorted(entries: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(entries.items()))


def _pattern(uri_template: str) -> re.Pattern[str]:
    """Compile an address with variables; two of them side by side could be told apart in many ways."""
    pieces: list[str] = []
    end = 0
    for found in _VARIABLE.finditer(uri_template):
        between = uri_template[end : found.start()]
        if pieces and not between:
            raise InvalidToolError(f"{uri_template!r:.100}: put a text between two variables")
        pieces += [re.escape(between), f"(?P<{found[2]}>{'.+' if found[1] else '[^/?#]+'})"]
        end = found.end()
    if not pieces or "{" in uri_template[end:]:
        raise InvalidToolError(
            f"{uri_template!r:.100} is no template: expected variables such as {{name}} or {{+path}}"
        )
    try:
        return re.compile("".join(pieces) + re.escape(uri_template[end:]))
    except re.error as error:
        raise InvalidToolError(f"{uri_template!r:.100} is no template: {error}") from None


LONGEST_URI = 4_000  # browsers and servers stop at 2,000 to 8,000
MOST_COMPLETIONS = 100  # the most that the protocol allows
# A reader that takes longer is broken; what takes long is a tool.
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
            raise _not_found(request, uri)
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
        """Return the address that a request names; it must not be endless."""
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
    """Call a function of the catalogue within bounds; only errors of our own tree are told to the client."""
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


def _not_found(request: Request, uri: str) -> ProtocolError:
    code = Code.INVALID_PARAMS if request.modern else Code.RESOURCE_NOT_FOUND
    return ProtocolError(code, "Resource not found", {"uri": uri})
