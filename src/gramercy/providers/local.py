"""Models inside this process: a file in the format gguf, run by llama.cpp through the package xllamacpp.

The library also serves HTTP on a loopback port, which cannot be disabled: its key is random and not stored.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from gramercy.errors import CutStreamError, ModelUnavailableError, ProviderError
from gramercy.providers.base import CallPart, StopPart, TextPart, ThoughtPart, Usage, UsagePart
from gramercy.providers.grammar import ANSWERING, Writing, chat_messages, grammar_of
from gramercy.providers.model_files import find_model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
    from pathlib import Path

    from gramercy.providers.base import ModelCall, Part, Request, StopReason

# Two threads on two busy cores were 10 to 20 times slower than one thread.
THREADS: Final = 1
# In tokens, of question and answer together; the small model then needs 250 MB, and 8,192 need 90 MB more.
CONTEXT: Final = 4096
# A small model that has not finished after this many tokens repeats itself.
MOST_TOKENS: Final = 512
# Questions are read in batches, and can be cancelled between two of them: about a second.
BATCH: Final = 128
INSTALL: Final = "pip install 'gramercy[local]'"

_STOPS: dict[str, StopReason] = {"stop": "end", "length": "length"}


class LocalProvider:
    """Asks models whose files are on this machine; each is loaded at its first question.

    A model that is named at the start is looked for at once, so that its absence is reported before anything
    begins.
    """

    name = "Local"

    def __init__(self, model: str | None = None, find: Callable[[str], Engine] | None = None) -> None:
        self._find = find or find_engine
        self._engines: dict[str, Engine] = {}
        if model is not None:
            self._engine(model)

    async def chat(self, request: Request) -> AsyncIterator[Part]:
        """Stream the answer to one question."""
        engine = self._engine(request.model)
        heard = Heard(grammar_of(request.tools) if request.tools else None)
        async with aclosing(heard.parts(engine, request)) as parts:
            async for part in parts:
                yield part
        # The position in the conversation: the same each time, and no other call of it has the same.
        call = heard.call(f"call_{len(request.messages)}")
        if call is not None and _is_repeated(call, request):
            # Small models like to repeat a call that has worked; its result is there and needs an answer.
            call, heard = None, Heard(ANSWERING, heard.usage)
            async with aclosing(heard.parts(engine, request)) as parts:
                async for part in parts:
                    yield part
        if call is not None:
            yield CallPart(call)
        yield UsagePart(heard.usage)
        yield StopPart("calls" if call is not None and heard.stop == "end" else heard.stop)

    async def aclose(self) -> None:
        """Release the models; their memory is freed when no other provider uses them."""
        self._engines.clear()

    def _engine(self, model: str) -> Engine:
        if model not in self._engines:
            self._engines[model] = self._find(model)
        return self._engines[model]


class Heard:
    """A model's output for one question: text, or a call if there is a grammar."""

    stop: StopReason

    def __init__(self, grammar: dict[str, Any] | None, usage: Usage | None = None) -> None:
        self._grammar = grammar
        self._written = Writing()
        self.usage = usage or Usage()

    async def parts(self, engine: Engine, request: Request) -> AsyncGenerator[Part, None]:
        """Yield the text as it comes."""
        stop = ""
        async with aclosing(engine.stream(self._body(request))) as chunks:
            async for chunk in chunks:
                if "usage" in chunk:
                    self.usage += _usage(chunk["usage"])
                for choice in chunk.get("choices", ()):
                    stop = choice.get("finish_reason") or stop
                    for part in self._said(choice.get("delta") or {}):
                        yield part
        if not stop:
            raise CutStreamError("the local model stopped without saying why: none of its calls is run")
        self.stop = _STOPS.get(stop, "other")

    def call(self, name: str) -> ModelCall | None:
        """Return the call, if the output is one."""
        return self._written.call(name) if self._grammar is not None else None

    def _body(self, request: Request) -> dict[str, Any]:
        return {
            "messages": chat_messages(request),
            "temperature": request.temperature or 0,
            "max_tokens": request.max_tokens or MOST_TOKENS,
            **({"json_schema": self._grammar} if self._grammar is not None else {}),
        }

    def _said(self, delta: dict[str, Any]) -> Iterator[Part]:
        if thought := delta.get("reasoning_content"):
            yield ThoughtPart(thought)
        if text := delta.get("content"):
            for piece in self._written.take(text) if self._grammar is not None else (text,):
                yield TextPart(piece)


def _usage(told: dict[str, Any]) -> Usage:
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Usage(told.get("prompt_tokens", 0), told.get("completion_tokens", 0), cached)


def _is_repeated(call: ModelCall, request: Request) -> bool:
    """Whether the same call was made just before, and has succeeded."""
    last = next((each for each in reversed(request.messages) if each.role != "tool"), None)
    failed = {each.call_id for each in request.messages if each.role == "tool" and each.is_error}
    return last is not None and any(
        (each.name, each.arguments) == (call.name, call.arguments) and each.id not in failed
        for each in last.calls
    )


class Engine:
    """A loaded model. Its questions are answered one after the other, each on a thread of its own."""

    def __init__(self, path: Path, server: Any = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._server = server

    async def stream(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the library's output as it comes; leaving the block stops the library."""
        loop, chunks = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any] | BaseException | None]()
        given_up = threading.Event()

        def tell(chunk: dict[str, Any] | BaseException | None) -> bool:
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:  # the loop has been closed, so no task reads the answer any more
                given_up.set()
            return given_up.is_set()

        asked = {
            **body,
            "stream": True,
            "stream_options": {"include_usage": True},
            # The library then reports between two batches, so that the question can be cancelled there.
            "return_progress": True,
        }
        # Not a daemon: the library must not run while the interpreter shuts down.
        threading.Thread(target=self._ask, args=(asked, tell, given_up), name="gramercy-local-model").start()
        try:
            while (chunk := await chunks.get()) is not None:
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
        finally:
            given_up.set()

    def _ask(
        self,
        body: dict[str, Any],
        tell: Callable[[dict[str, Any] | BaseException | None], bool],
        given_up: threading.Event,
    ) -> None:
        def take(chunk: dict[str, Any]) -> bool:
            fault = chunk.get("error")
            return tell(self._fault(fault) if fault else chunk)

        try:
            with self._lock:
                if not given_up.is_set():
                    self._loaded().handle_chat_completions(body, take)
        except ProviderError as error:
            tell(error)
        except Exception as error:  # noqa: BLE001 - the library raises what C++ throws
            tell(ProviderError(f"the local model {self._path.name} failed: {error}"))
        finally:
            tell(None)

    def _loaded(self) -> Any:
        if self._server is None:
            self._server = _server(self._path)
        return self._server

    def _fault(self, fault: dict[str, Any]) -> ProviderError:
        if fault.get("type") == "exceed_context_size_error":
            return ProviderError(
                f"the question has {fault.get('n_prompt_tokens')} tokens, and the local model reads "
                f"{fault.get('n_ctx')}: ask for less, or set GRAMERCY_LOCAL_CONTEXT to a greater number",
                fault.get("code"),
            )
        return ProviderError(
            f"the local model {self._path.name} failed: {fault.get('message', fault)!s:.500}",
            fault.get("code"),
        )


_ENGINES: WeakValueDictionary[tuple[Path, int, int], Engine] = WeakValueDictionary()


def find_engine(model: str) -> Engine:
    """Return the engine of a model; two users of the same file share its memory."""
    path = find_model(model)
    _library()
    key = (path.resolve(), _threads(), context_size())
    engine = _ENGINES.get(key)
    if engine is None:
        engine = _ENGINES[key] = Engine(path)
    return engine


def _library() -> Any:
    try:
        import xllamacpp
    except ImportError:
        raise ModelUnavailableError(
            f"local models need the package xllamacpp: {INSTALL}; "
            "or give another one: --model OpenAI/gpt-4o-mini"
        ) from None
    return xllamacpp


def _server(path: Path) -> Any:
    library = _library()
    wanted = library.CommonParams()
    wanted.model.path = str(path)
    wanted.n_ctx, wanted.n_parallel, wanted.warmup, wanted.verbosity = context_size(), 1, False, -1
    wanted.n_batch = wanted.n_ubatch = BATCH
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = _threads()
    # Keep no other conversations beside the last one.
    wanted.cache_ram_mib = 0
    wanted.ui = False
    wanted.api_keys = [secrets.token_urlsafe(32)]
    try:
        return library.Server(wanted)
    except (RuntimeError, MemoryError):
        raise ModelUnavailableError(
            f"{path} cannot be loaded: the file is damaged, too big for the memory here, "
            "or of a kind that this version of xllamacpp does not know"
        ) from None


def _threads() -> int:
    return _number("GRAMERCY_LOCAL_THREADS", THREADS)


def context_size() -> int:
    """Return the context size of a local model in tokens."""
    return _number("GRAMERCY_LOCAL_CONTEXT", CONTEXT)


def _number(variable: str, otherwise: int) -> int:
    told = os.environ.get(variable, "").strip()
    if not told:
        return otherwise
    if not told.isdecimal() or int(told) < 1:
        raise ModelUnavailableError(f"{variable} is {told!r:.40}: expected a whole number above 0")
    return int(told)
