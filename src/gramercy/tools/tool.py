"""The Tool: one immutable type for both families of contracts, and its forms for models."""

from __future__ import annotations

import dataclasses
import inspect
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias

import msgspec

from gramercy.errors import GramercyError, InvalidToolError
from gramercy.tools.arguments import ArgumentChecker
from gramercy.tools.safety import Safety
from gramercy.tools.values import copy_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from gramercy.gram.json_schema import Schema
    from gramercy.tools.effects import Effect

Handler: TypeAlias = "Callable[[dict[str, Any]], Any]"
SchemaStyle: TypeAlias = Literal["openai", "anthropic", "mcp", "openai-responses", "gemini", "langchain"]


class Parameter(msgspec.Struct, frozen=True):
    """One argument that a tool takes, as its schema describes it."""

    name: str
    type: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Edits:
    """How calls change a text, if their arguments do not hold the whole text.

    `texts` returns the text before and after a call. `narrowed` returns the arguments of a call that changes
    the text to another one: the one with the hunks that a person accepted. `arguments` names those that a
    person need not see beside the diff.
    """

    texts: Callable[[Mapping[str, Any]], tuple[str, str]]
    narrowed: Callable[[Mapping[str, Any], str, str], dict[str, Any]]
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Likeness:
    """Another tool that is equivalent as far as rules are concerned.

    `arguments` maps the names of arguments in that tool to their names in this one. `when` has the values
    that arguments must have for a call to count as a call of that tool; if it is empty, every call does.
    """

    name: str
    categories: tuple[str, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict, hash=False)
    when: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def covers(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether a call with these arguments can do what the other tool can."""
        return all(arguments.get(name) == value for name, value in self.when.items())

    def taken(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call, also under the names that they have in the other tool."""
        theirs = {name: arguments[own] for name, own in self.arguments.items() if own in arguments}
        return {**arguments, **theirs}


class Place(Protocol):
    """Where a path of one call really leads. Rules, question, seal and the tool itself all use this value.

    `name` is the real name from the directory of the project, links resolved, and `absolute` the same from
    the root of the file system. `spellings` are these two, the text as given and every link on the way:
    everything that a rule which asks or denies may match. `identity` changes if another file or directory
    replaces it. `control` names the program that reads the file for something to run; it is empty for other
    files. `trouble` says why the path cannot be used, and the tool answers with it; no rule allows such a
    path by its text. `withheld` is set for a tool that reads: it tells whether rules forbid showing a real
    name.
    """

    name: str
    is_link: bool
    trouble: str
    withheld: Callable[[str], bool] | None

    @property
    def absolute(self) -> str:
        """The real path from the root of the file system."""

    @property
    def shown(self) -> str:
        """The real name on one line, with nothing hidden, for a person."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every spelling of it that a rule may match."""

    @property
    def identity(self) -> str:
        """The identity that an approval is tied to."""

    @property
    def control(self) -> str:
        """The program that reads the file for something to run."""

    def beside(self, name: str) -> Place:
        """Return the place of another real name of the same project."""

    def unopened(self) -> Place:
        """Return the same without open directories: it can be shown and compared, not used."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The arguments of a tool that are paths, and how to resolve those of one call.

    `find` takes the arguments of a call and returns a place for each path in them. The tool gets these
    instead of its arguments; each is also a `str`, the text as given. `reads` and `writes` name the arguments
    by what the tool does there. `like` names other tools that reach the same files: a rule about a path of
    theirs also applies here. `walks` says that a call also reads everything below its path.
    """

    find: Callable[[Mapping[str, Any]], dict[str, Place]]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    like: tuple[Likeness, ...] = ()
    walks: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A named operation with a schema, a safety level and the function that does it.

    `inline` declares a synchronous handler cheap enough to run on an event loop's own thread. `async_handler`
    does the same work for callers on an event loop, if that is better than a thread. `deadline` is in
    seconds. `target_state` returns the state that the call acts on (a file's hash, say): an approval is void
    if that state has changed since the person looked. `effect` previews what the call would do, in parts or
    as text, for the person who decides. `edits` names the arguments with a text before and after a proposed
    change, of which the person may accept some hunks and reject others; if no arguments hold these texts, it
    is an `Edits` that computes them. `aliases` takes the arguments of a call that do not fit and returns them
    under the names and words that the tool knows, with a note for the answer; `{ms}` in the note stands for
    the time of the call. `judged_as` names tools whose rules also apply to this one: it can do what they can.
    `paths` declares the arguments that are paths, so that rules, questions and seals see where they lead.
    `probe` checks, without effects, whether an interrupted call has happened: True, False, or None if that is
    unknown.

    Clients also get: a `title` for people; `read_only`, `destructive`, `idempotent` and `open_world`, derived
    from the safety level if they are not given (`open_world` may be a function that is called when the tool
    is first listed); `output_schema` of the structured results.
    """

    name: str
    description: str
    schema: Schema
    handler: Handler
    safety_level: Safety = Safety.SAFE
    categories: tuple[str, ...] = ()
    deadline: float | None = None
    inline: bool = False
    idempotent: bool = False
    target_state: Callable[[Mapping[str, Any]], object] | None = None
    effect: Callable[[dict[str, Any]], Effect | str] | None = None
    function: Callable[..., Any] | None = None
    async_handler: Callable[[dict[str, Any]], Awaitable[Any]] | None = None
    edits: tuple[str, str] | Edits | None = None
    aliases: Callable[[dict[str, Any]], tuple[dict[str, Any], str]] | None = None
    judged_as: tuple[Likeness, ...] = ()
    probe: Callable[[dict[str, Any]], bool | None] | None = None
    paths: Paths | None = None
    title: str = ""
    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | Callable[[], bool] | None = None
    output_schema: Schema | None = None
    is_async: bool = field(init=False)
    is_plain: bool = field(init=False)
    level_word: str = field(init=False, repr=False)
    checker: ArgumentChecker = field(init=False, repr=False)
    _shown: dict[str, dict[str, Any]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "safety_level", Safety.parse(self.safety_level))
        object.__setattr__(self, "is_async", _is_async(self.function or self.handler))
        # Every call reads these two; computing them each time would cost as much as the rest of the call.
        object.__setattr__(self, "is_plain", not self.is_async and self.deadline is None)
        object.__setattr__(self, "level_word", self.safety_level.value)
        object.__setattr__(self, "checker", ArgumentChecker(self.name, self.schema))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the tool {self.name} has no serialized form: its function belongs to this process. "
            "Send its specification, and bind that where it arrives."
        )

    def __copy__(self) -> Tool:
        return self

    def __deepcopy__(self, _: object) -> Tool:
        return self

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arguments in the order of the schema."""
        required = set(self.required)
        properties = self.schema.get("properties", {})
        return tuple(_parameter(name, schema, name in required) for name, schema in properties.items())

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the arguments that every call must give."""
        return tuple(self.schema.get("required", ()))

    def renamed(self, arguments: Any) -> tuple[Any, str]:
        """Return arguments that do not fit under the names that the tool knows, and a note about that."""
        return self.aliases(arguments) if self.aliases and type(arguments) is dict else (arguments, "")

    def places(self, arguments: Mapping[str, Any]) -> dict[str, Place]:
        """Resolve the paths of a call; an empty dictionary if the tool declares none."""
        return {} if self.paths is None else self.paths.find(arguments)

    def proposed_edit(self, arguments: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the text before and after the change that a call proposes; None if it proposes none."""
        if self.edits is None:
            return None
        if isinstance(self.edits, Edits):
            # If the text can no longer be changed, the tool itself refuses, with its own message.
            with suppress(GramercyError):
                return self.edits.texts(arguments)
            return None
        before, after = map(arguments.get, self.edits)
        return (before, after) if isinstance(before, str) and isinstance(after, str) else None

    def with_edit(self, arguments: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
        """Return the arguments of a proposal with another text after the change."""
        assert self.edits is not None  # noqa: S101 - only for a call that proposes an edit
        if isinstance(self.edits, Edits):
            return self.edits.narrowed(arguments, before, after)
        return {**arguments, self.edits[1]: after}

    @property
    def edit_arguments(self) -> tuple[str, ...]:
        """The arguments that a person need not see beside the diff."""
        return self.edits.arguments if isinstance(self.edits, Edits) else self.edits or ()

    def to_schema(self, style: SchemaStyle = "openai") -> dict[str, Any]:
        """Describe the tool for a model provider."""
        return _shape(style)(self, copy_json(self.schema))

    def listed(self, style: SchemaStyle = "openai") -> dict[str, Any]:
        """Return the description that all listings share, made once; calls are not checked with it."""
        found = self._shown.get(style)
        if found is None:
            found = self._shown[style] = self.to_schema(style)
        return found

    def with_safety(self, level: Safety) -> Tool:
        """Return the same tool at another level, with the same implementation."""
        return self if level is self.safety_level else dataclasses.replace(self, safety_level=level)

    def __repr__(self) -> str:
        return f"<Tool {self.name} {self.safety_level.value}>"


def tools_to_schema(tools: Iterable[Tool], style: SchemaStyle = "openai") -> list[dict[str, Any]]:
    """Describe several tools for a model provider.

    The descriptions are shared between listings, so that listing thousands of tools costs next to nothing:
    copy one before you change it, or use `Tool.to_schema()`, which always returns a new one.
    """
    return [tool.listed(style) for tool in tools]


def _shape(style: str) -> Callable[[Tool, Schema], dict[str, Any]]:
    try:
        return _SHAPES[style]
    except KeyError:
        raise InvalidToolError(f"unknown schema style {style!r}: expected {', '.join(_SHAPES)}") from None


def _is_async(function: object) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - the method itself is wanted, not a test
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _parameter(name: str, schema: Any, required: bool) -> Parameter:  # noqa: FBT001 - a field, not a mode
    described = schema if isinstance(schema, dict) else {}
    kind = described.get("type", "any")
    return Parameter(
        name=name,
        type=kind if isinstance(kind, str) else "|".join(map(str, kind)),
        description=described.get("description", ""),
        required=required,
    )


def _openai_shape(tool: Tool, schema: Schema) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": schema}
    return {"type": "function", "function": function}


def _anthropic_shape(tool: Tool, schema: Schema) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def _responses_shape(tool: Tool, schema: Schema) -> dict[str, Any]:
    # The strict form, which is the default there, has no optional arguments.
    about = {"name": tool.name, "description": tool.description}
    return {"type": "function", **about, "parameters": schema, "strict": False}


def _gemini_shape(tool: Tool, schema: Schema) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": schema}


def _langchain_shape(tool: Tool, schema: Schema) -> dict[str, Any]:
    return {**schema, "title": tool.name, "description": tool.description}


def _mcp_shape(tool: Tool, schema: Schema) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": tool.name}
    if tool.title:
        shown["title"] = tool.title
    shown |= {"description": tool.description, "inputSchema": schema}
    if tool.output_schema is not None:
        shown["outputSchema"] = tool.output_schema
    return {**shown, "annotations": _annotations(tool)}


def _annotations(tool: Tool) -> dict[str, bool]:
    """Return the four hints of MCP; undeclared hints follow from the level."""
    safe = tool.safety_level is Safety.SAFE
    world = tool.open_world() if callable(tool.open_world) else tool.open_world
    return {
        "readOnlyHint": safe if tool.read_only is None else tool.read_only,
        "destructiveHint": not safe if tool.destructive is None else tool.destructive,
        "idempotentHint": safe or tool.idempotent,
        "openWorldHint": not safe if world is None else world,
    }


_SHAPES: dict[str, Callable[[Tool, Schema], dict[str, Any]]] = {
    "openai": _openai_shape,
    "anthropic": _anthropic_shape,
    "mcp": _mcp_shape,
    "openai-responses": _responses_shape,
    "gemini": _gemini_shape,
    "langchain": _langchain_shape,
}
