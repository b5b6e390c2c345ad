"""What a server offers beside tools: resources, resource templates, prompts, and completions of arguments.

Everything can be added and taken away while it is being served. Functions may be async. Plain ones run on a
thread of their own unless they are declared `inline`, that is, cheap. Nothing here knows the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import unquote

from gramercy.errors import InvalidToolError

if TYPE_CHECKING:
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
