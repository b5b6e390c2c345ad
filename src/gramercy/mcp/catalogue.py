"""The offers of a server beside tools: resources, resource templates, prompts, completions of arguments.

Everything can be added and removed while it is being served. Functions may be async. Plain functions run on a
thread of their own unless they are declared `inline`, that is, cheap. This module knows nothing of the
protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from threading import Lock, RLock
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

import msgspec

from gramercy.errors import InvalidToolError
from gramercy.tools.content import Block  # noqa: TC001 - msgspec reads the types of fields

Change: TypeAlias = Literal["resources", "prompts", "resource"]
Watcher: TypeAlias = Callable[[Change, str], None]
_VARIABLE = r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}"


class Resource(msgspec.Struct, frozen=True):
    """A resource that can be read under one address; `read` takes nothing and gives text, bytes or blocks."""

    uri: str
    name: str
    read: Callable[[], Any]
    description: str = ""
    mime_type: str | None = None
    inline: bool = False


class Template(msgspec.Struct, frozen=True):
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


class PromptArgument(msgspec.Struct, frozen=True):
    """One argument of a prompt; all are text."""

    name: str
    description: str = ""
    required: bool = False


class PromptMessage(msgspec.Struct, frozen=True):
    """One message of a prompt."""

    role: Literal["user", "assistant"]
    content: Block


class Prompt(msgspec.Struct, frozen=True):
    """A text for a person to start from; `get` takes the arguments and gives text or a list of messages."""

    name: str
    get: Callable[[dict[str, str]], Any]
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()
    inline: bool = False


class Catalog:
    """The resources, templates, prompts and completions of a server. Safe to use from several threads.

    `fill` adds the initial offers. It is called at the first look into the catalogue, and watchers are not
    notified of it.
    """

    def __init__(self, fill: Callable[[Catalog], object] | None = None) -> None:
        self._lock = Lock()
        self._resources: dict[str, Resource] = {}
        self._templates: dict[str, Template] = {}
        self._prompts: dict[str, Prompt] = {}
        self._completions: dict[tuple[str, str], Callable[[str, dict[str, str]], Any]] = {}
        # Reentrant: the function that fills the catalogue also looks into it.
        self._filling = RLock()
        self._fill = fill
        self._is_filled = fill is None
        self._watchers: list[Watcher] = []
        self._on_subscription: list[Callable[[], object]] = []

    @property
    def resources(self) -> dict[str, Resource]:
        """The resources by address."""
        self._look()
        return self._resources

    @property
    def templates(self) -> dict[str, Template]:
        """The families of resources by their address with variables."""
        self._look()
        return self._templates

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The prompts by name."""
        self._look()
        return self._prompts

    @property
    def completions(self) -> dict[tuple[str, str], Callable[[str, dict[str, str]], Any]]:
        """The functions that complete an argument, by prompt or template and argument."""
        self._look()
        return self._completions

    def _look(self) -> None:
        if self._is_filled:
            return
        with self._filling:
            fill, self._fill = self._fill, None
            if fill is None:
                return
            try:
                fill(self)
            except BaseException:
                self._fill = fill  # the next look tries again, and raises too
                raise
            self._is_filled = True

    def when_subscribed(self, begin: Callable[[], object]) -> None:
        """Have `begin` called once, when a client first subscribes to changes of a resource."""
        self._on_subscription.append(begin)

    def subscribed(self) -> None:
        """Note that a client has subscribed to changes of a resource."""
        self._look()
        waiting, self._on_subscription = self._on_subscription, []
        for begin in waiting:
            begin()

    def resource(self, uri: str, name: str, read: Callable[[], Any], **about: Any) -> Resource:
        """Offer a resource; `about` may give description, mime_type and inline."""
        resource = Resource(uri, name, read, **about)
        self._look()
        with self._lock:
            self._resources = _sorted({**self._resources, uri: resource})
        self._changed("resources")
        return resource

    def template(
        self, uri_template: str, name: str, read: Callable[[dict[str, str]], Any], **about: Any
    ) -> Template:
        """Offer a family such as `file:///{+path}`; `{name}` stops at a slash, `{+name}` does not."""
        template = Template(uri_template, name, read, _pattern(uri_template), **about)
        self._look()
        with self._lock:
            self._templates = _sorted({**self._templates, uri_template: template})
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
        self._look()
        with self._lock:
            self._prompts = _sorted({**self._prompts, name: prompt})
        self._changed("prompts")
        return prompt

    def complete(self, name: str, argument: str, values: Callable[[str, dict[str, str]], Any]) -> None:
        """Complete an argument of a prompt (by its name) or a variable of a template (by its address).

        `values` takes the typed text and the other arguments known so far, and returns a list of texts.
        """
        self._look()
        with self._lock:
            self._completions = {**self._completions, (name, argument): values}

    def remove(self, name: str) -> bool:
        """Remove the prompt, resource or template of that name or address; tell whether there was one."""
        kind: Change | None = None
        self._look()
        with self._lock:
            if name in self._prompts:
                kind = "prompts"
                self._prompts = {key: value for key, value in self._prompts.items() if key != name}
            elif name in self._resources or name in self._templates:
                kind = "resources"
                self._resources = {key: value for key, value in self._resources.items() if key != name}
                self._templates = {key: value for key, value in self._templates.items() if key != name}
        if kind is not None:
            self._changed(kind)
        return kind is not None

    def find(self, uri: str) -> tuple[Resource | Template, dict[str, str]] | None:
        """Return the resource or template of an address, with the variables in the address."""
        resource = self.resources.get(uri)
        if resource is not None:
            return resource, {}
        for template in self.templates.values():
            variables = template.match(uri)
            if variables is not None:
                return template, variables
        return None

    def updated(self, uri: str) -> None:
        """Notify the watchers of a resource that its content has changed."""
        self._changed("resource", uri)

    def watch(self, watcher: Watcher) -> None:
        """Call the watcher after every change, on the thread that made the change."""
        self._watchers.append(watcher)

    def _changed(self, change: Change, uri: str = "") -> None:
        if change != "resource" and not self._is_filled:
            return
        for watcher in self._watchers:
            watcher(change, uri)


def _sorted(entries: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(entries.items()))


def _pattern(uri_template: str) -> re.Pattern[str]:
    """Compile an address with variables; two adjacent variables would be ambiguous."""
    pieces: list[str] = []
    end = 0
    for found in re.finditer(_VARIABLE, uri_template):
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
