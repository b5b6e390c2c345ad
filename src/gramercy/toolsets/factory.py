"""Make tools that act on an image. Where there are several images, the caller names one.

Tools that run code serve blocking callers and callers on an event loop. On the loop a call can be cancelled,
and its output is reported while it runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gramercy.images.output import folded
from gramercy.tools.content import Ended, RunFacts, facts_of, with_facts
from gramercy.tools.context import current_call, running_key
from gramercy.tools.definition import create_tool
from gramercy.tools.tool import Likeness
from gramercy.toolsets.rendering import evaluated, moment_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Mapping, Sequence

    from gramercy.images.base import Progress, Reply, Span, Watcher
    from gramercy.images.files.changes import FileChange
    from gramercy.images.image import Image
    from gramercy.images.requests import Work
    from gramercy.tools.effects import Effect
    from gramercy.tools.safety import Safety
    from gramercy.tools.tool import Tool

T = TypeVar("T")
# How long a cancelled call waits for the end of its evaluation. Some code ignores an interrupt.
STOP_SECONDS = 1.0


class ImageSource(Protocol):
    """Gives tools the image of a call."""

    def get(self, handle: str | None = None) -> Image:
        """Return the image of that handle; without one, the default."""

    def handles(self) -> list[str]:
        """List the handles, the default first."""


class SingleImage:
    """A source with one image."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def get(self, handle: str | None = None) -> Image:
        """Return the image."""
        del handle
        return self._image

    def handles(self) -> list[str]:
        """List its handle."""
        return [self._image.name]


class Speakers:
    """The images of one gallery for tools of one language: those that speak it come first."""

    def __init__(self, gallery: ImageSource, language: str) -> None:
        self._gallery = gallery
        self.accepts_more = getattr(gallery, "accepts_more", False)
        self._handles = sorted(gallery.handles(), key=lambda name: gallery.get(name).language != language)
        # A source that accepts more images has to be asked each time: it closes idle ones.
        self._default = None if self.accepts_more else gallery.get(self._handles[0])

    def get(self, handle: str | None = None) -> Image:
        """Return the image of that handle. Without a handle, return the first that speaks the language."""
        if handle is None and self._default is not None:
            return self._default
        return self._gallery.get(self._handles[0] if handle is None else handle)

    def handles(self) -> list[str]:
        """List the handles, the default first."""
        return self._handles


def source_of(image: Image | ImageSource) -> ImageSource:
    """Return a source. A single image is wrapped in one."""
    # Only a source can list handles. This check of an attribute does not start an image.
    return image if hasattr(image, "handles") else SingleImage(image)  # type: ignore[return-value]


def text(description: str, **more: Any) -> dict[str, Any]:
    """Describe a text argument."""
    return {"type": "string", "description": description, **more}


def flag(description: str, **more: Any) -> dict[str, Any]:
    """Describe a true-or-false argument."""
    return {"type": "boolean", "description": description, **more}


def whole(description: str, **more: Any) -> dict[str, Any]:
    """Describe a whole-number argument."""
    return {"type": "integer", "description": description, **more}


def array_of(name: str, **properties: Any) -> dict[str, Any]:
    """Describe a structured result: an object with a list of objects that all have these properties."""
    item = {"type": "object", "properties": properties, "required": list(properties)}
    listed = {name: {"type": "array", "items": item}}
    return {"type": "object", "properties": listed, "required": [name]}


# Files listed for one call. A build changes thousands, and the image knows them all.
MOST_FILES = 200
# The end of the output is enough to see progress. Clients show a progress message on a line or two.
LONGEST_MESSAGE = 500
# Seconds after which a silent call is first reported as running, and the interval of further reports.
FIRST_WORD = 1.0
QUIET_SECONDS = 10.0
PACKAGE = text("Package (Lisp) or module (Python) to look names up in; by default the current one")
# The tools that only evaluate, with their category and the argument that holds the code.
EVALUATORS = (
    ("eval_form", "execution", "form"),
    ("evaluate-lisp", "session", "code"),
    ("evaluate-python", "session", "code"),
)


# Arguments that name one thing in the image. A tool accepts each of these words for its own.
NAMES = ("symbol", "function", "variable", "class", "name")


def _renamed(own: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Accept the word that another tool has for the argument."""
    given = [word for word in NAMES if word in arguments]
    if len(given) != 1 or given[0] == own:
        return arguments, ""
    rest = {word: value for word, value in arguments.items() if word != given[0]}
    return {own: arguments[given[0]], **rest}, f"{given[0]} was taken as {own}."


def as_evaluation(code: str = "", **when: Any) -> tuple[Likeness, ...]:
    """Return the `judged_as` of a tool that runs code: rules about evaluations hold for it.

    `code` names the argument with the code, if there is one. `when` are the arguments with which the tool
    runs code.
    """
    return tuple(
        Likeness(name, (category,), {argument: code} if code else {}, when)
        for name, category, argument in EVALUATORS
    )


class Workshop:
    """Makes the tools of one source.

    `longest_timeout` is the upper bound of the timeout that a caller may choose. With None a caller cannot
    choose. `open_world` tells whether evaluated code can reach anything outside of the project,
    `writes_files` whether it can change the files of the project. `beside` are the names of all tools that
    are served together, since a text should name no others. None means all tools.
    """

    def __init__(
        self,
        source: ImageSource,
        longest_timeout: float | None = None,
        *,
        open_world: bool | Callable[[], bool] = True,
        writes_files: bool = True,
        beside: Container[str] | None = None,
    ) -> None:
        self.source = source
        self.longest_timeout = longest_timeout
        self.open_world = open_world
        self.writes_files = writes_files
        self._beside = beside

    def has(self, tool: str) -> bool:
        """Return whether a tool is served together with those that are made here."""
        return self._beside is None or tool in self._beside

    def told(self, description: str, *more: tuple[str, str]) -> str:
        """Return a description with those of the sentences (tool name, sentence) whose tool is served."""
        return " ".join([description, *(sentence for tool, sentence in more if self.has(tool))])

    def evaluated(self, reply: Reply) -> Any:
        """Return an evaluation as a handler's result, which names only tools that are served."""
        return evaluated(
            reply,
            can_read_on=self.has("read_output"),
            shows_objects=self.has("inspect_object"),
            moment=self.moment_of(reply),
        )

    def moment_of(self, reply: Reply) -> str:
        """Say that the stack of an error is kept, and which of the served tools show it."""
        return "" if reply.ok else moment_text(reply, self._error_tools(reply))

    def _error_tools(self, reply: Reply) -> list[str]:
        """Return the served tools for the moment of an error."""
        tools = ["error_frames", "eval_in_frame"]
        if reply.error is not None and reply.error.choices:
            tools.append("invoke_restart")
        return [tool for tool in tools if self.has(tool)]

    def make(  # noqa: PLR0913 - a tool is described by this many things
        self,
        name: str,
        description: str,
        properties: dict[str, Any],
        run: Callable[[Image, dict[str, Any]], Any],
        *,
        run_async: Callable[[Image, dict[str, Any]], Any] | None = None,
        effect: Callable[[Image, dict[str, Any]], Effect | str] | None = None,
        target: Callable[[Image, dict[str, Any]], object] | None = None,
        required: Sequence[str] = (),
        level: Safety | str = "safe",
        categories: Sequence[str] = (),
        **options: Any,
    ) -> Tool:
        """Make one tool. It takes an image handle when there is a choice. The options are those of a Tool.

        Its effects stay in the image unless the options say otherwise. `target` is its `target_state`.
        """
        schema = {
            "type": "object",
            "properties": {**properties, **self._handle()},
            "required": list(required),
            "additionalProperties": False,
        }

        named = [word for word in NAMES if word in required]
        if len(named) == 1:
            options.setdefault("aliases", partial(_renamed, named[0]))
        return create_tool(
            name,
            description,
            schema,
            self._handler(run),
            safety_level=level,
            categories=categories,
            async_handler=None if run_async is None else self._async_handler(run_async),
            effect=None if effect is None else self._on_image(effect),
            target_state=None if target is None else self._on_image(target),
            **{"open_world": False, **options},
        )

    def _on_image(self, look: Callable[[Image, dict[str, Any]], T]) -> Callable[[Mapping[str, Any]], T]:
        """Return a function that inspects the image of a call before the decision about the call."""

        def looked(arguments: Mapping[str, Any]) -> T:
            given = dict(arguments)
            return look(self.source.get(given.pop("image", None)), given)

        return looked

    def _handler(self, run: Callable[[Image, dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
        if not self.source.handles():
            # The tool acts on no image.
            return lambda arguments: run(self.source.get(arguments.get("image")), arguments)

        def handler(arguments: dict[str, Any]) -> Any:
            image = self.source.get(arguments.pop("image", None))
            began = image.span()
            return _told(image, began, run(image, arguments))

        return handler

    def _async_handler(self, run: Callable[[Image, dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
        def handler(arguments: dict[str, Any]) -> Any:
            image = self.source.get(arguments.pop("image", None))
            began = image.span()
            value = run(image, arguments)
            if hasattr(value, "__await__"):
                return _told_later(image, began, value)
            return _told(image, began, value)

        # The executor must call it on the event loop, although it may return a plain result.
        handler.may_wait = True  # type: ignore[attr-defined]
        return handler

    def _handle(self) -> dict[str, Any]:
        handles = self.source.handles()
        if getattr(self.source, "accepts_more", False):
            described = f"Handle of the image to use: {', '.join(handles)} or one from open_image"
            return {"image": text(f"{described}; by default {handles[0]}", minLength=1)}
        if len(handles) < 2:  # noqa: PLR2004 - one image leaves no choice
            return {}
        return {"image": text(f"Image to use; by default {handles[0]}", enum=handles)}


def time_limit(longest: float) -> dict[str, Any]:
    """Describe the argument for the timeout of a call."""
    return {
        "type": "number",
        "description": "Time limit in seconds",
        "exclusiveMinimum": 0,
        "maximum": longest,
    }


class Running:
    """Runs the work that the arguments of a call mean in an image, and renders the reply."""

    def __init__(
        self,
        work: Callable[[Image, dict[str, Any]], Work[Reply]],
        render: Callable[[Reply, dict[str, Any]], Any],
    ) -> None:
        self._work = work
        self._render = render

    def blocking(self, image: Image, arguments: dict[str, Any]) -> Any:
        """Run and block until the reply."""
        reply = image.run(self._work(image, arguments), timeout=arguments.get("timeout"))
        return self._told(image, reply, arguments)

    def begun(self, image: Image, arguments: dict[str, Any]) -> Any:
        """Run without blocking the event loop. Return the result, or an awaitable for it."""
        work = self._work(image, arguments)
        reply = image.begin(work, timeout=arguments.get("timeout"), watch=_reporter())
        if hasattr(reply, "__await__"):
            return self._awaited(image, reply, arguments)
        return self._told(image, reply, arguments)

    async def _awaited(self, image: Image, reply: Awaitable[Reply], arguments: dict[str, Any]) -> Any:
        import asyncio

        try:
            return self._told(image, await reply, arguments)
        except asyncio.CancelledError as error:
            # The image is interrupted, and usually answers at once.
            if (end := getattr(reply, "end", None)) is not None:
                await asyncio.wait({end}, timeout=STOP_SECONDS)
                if end.done() and not end.cancelled():
                    error.args = (Ended(self._told(image, end.result(), arguments)),)
            raise

    def _told(self, image: Image, reply: Reply, arguments: dict[str, Any]) -> Any:
        span, key = reply.span, running_key.get()
        if key and span.after != span.before and span.after:
            image.note_call(span.after, key)
        return with_facts(self._render(reply, arguments), facts_of_reply(image, reply))

    def make(
        self, workshop: Workshop, name: str, description: str, properties: dict[str, Any], **options: Any
    ) -> Tool:
        """Make the tool. The options are those of `Workshop.make`.

        It takes a timeout where callers may choose one.
        """
        longest = workshop.longest_timeout
        if longest is not None:
            properties = {**properties, "timeout": time_limit(longest)}
        # An undo restores files that evaluated code removes, except for those beyond its limits.
        hints = {"destructive": workshop.writes_files, "open_world": workshop.open_world}
        # A person approves code in a certain state. After another call it may do something else.
        more = {"target": present_state, **hints, **options}
        return workshop.make(name, description, properties, self.blocking, run_async=self.begun, **more)


def present_state(image: Image, arguments: Mapping[str, Any]) -> str:
    """Name the state in which a call would run, so that an approval can be sealed to it."""
    del arguments
    return state_name(image, image.epoch())


def state_name(image: Image, epoch: str) -> str:
    """Return a name for a state that is unique among all images."""
    return f"{image.name} at {epoch}"


def facts_of_reply(image: Image, reply: Reply) -> RunFacts:
    """Return where an evaluation ran and which files it changed, for the journal."""
    span = reply.span
    files = listed_files(reply.files) if reply.files else ()
    files += unknown_files(reply.unknown_files)
    return RunFacts(image.name, span.epoch, span.before, span.after, span.sandbox, files)


def unknown_files(why: str) -> tuple[str, ...]:
    """Return the fact that not all changed files are known, if that is so."""
    return (f"not all known: {why}",) if why else ()


def listed_files(files: Sequence[FileChange]) -> tuple[str, ...]:
    """List changed files. Of very many, list the first and count the rest."""
    listed = tuple(f"{each.change} {each.path}" for each in files[:MOST_FILES])
    left = len(files) - len(listed)
    return (*listed, f"and {left:,} more") if left else listed


def _told(image: Image, began: Span, value: Any) -> Any:
    """Return the result of a call with the facts where it ran, unless the result has them."""
    if facts_of(value) is not None:
        return value
    span = image.span()
    return with_facts(value, RunFacts(image.name, span.epoch, began.after, span.after, span.sandbox))


async def _told_later(image: Image, began: Span, value: Awaitable[Any]) -> Any:
    return _told(image, began, await value)


class Quiet:
    """Selects the progress texts to report: new ones, and from time to time that the work goes on."""

    def __init__(self) -> None:
        self._words = ""
        self._due = FIRST_WORD

    def is_news(self, words: str, seconds: float) -> bool:
        """Return whether to report a text at this many seconds after the start."""
        if seconds < self._due and words in {"", self._words}:
            return False
        self._words, self._due = words, seconds + QUIET_SECONDS
        return True


def _reporter() -> Watcher:
    """Return a watcher that reports the progress of an evaluation to the caller."""
    report, quiet = current_call().report, Quiet()

    def tell(progress: Progress) -> None:
        printed = folded(progress.stdout + progress.stderr).rstrip()[-LONGEST_MESSAGE:]
        if quiet.is_news(printed, progress.seconds):
            report(round(progress.seconds, 1), message=printed or f"running for {progress.seconds:.0f} s")

    return tell
