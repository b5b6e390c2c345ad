"""Complete names in an image. Nobody waits for this: an image that is busy has no names to offer."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Any

from gramercy.errors import GramercyError

if TYPE_CHECKING:
    from gramercy.images.base import Image

SECONDS = 1.0
# More than are shown, so that those that begin with what was typed are among them.
MOST_NAMES = 1_000
LONGEST_TYPED = 200


class Symbols:
    """Asks images for names, each for one thing at a time."""

    def __init__(self) -> None:
        self._asked: dict[str, Future[list[str]]] = {}

    async def of(self, image: Image, typed: str) -> list[str]:
        """Return names in an image for what was typed, the best first; without anything, its definitions."""
        before = self._asked.get(image.name)
        if len(typed) > LONGEST_TYPED or (before is not None and not before.done()):
            return []
        asked = self._asked[image.name] = Future()
        # Not a worker: one that is given up would be interrupted in the middle of its talk with the image.
        Thread(target=_answer, args=(asked, image, typed), daemon=True).start()
        done, _ = await asyncio.wait({asyncio.wrap_future(asked)}, timeout=SECONDS)
        return asked.result() if done else []


def _answer(asked: Future[list[str]], image: Image, typed: str) -> None:
    try:
        names = _matching(image, typed) if typed else _defined(image)
    except GramercyError:
        names = []
    except BaseException as error:  # noqa: BLE001 - raised again where the result is taken
        asked.set_exception(error)
        return
    asked.set_result(names)


def _defined(image: Image) -> list[str]:
    data = image.ask("definitions").data
    entries = [entry for found in data.values() if isinstance(found, list) for entry in found]
    return sorted({name for name in map(_name, entries) if name and not name.startswith("(")})


def _matching(image: Image, typed: str) -> list[str]:
    mark = ":" if image.language == "sbcl" else "."
    place, _, start = typed.rpartition(mark)
    details = {"package": place.rstrip(mark)} if place.rstrip(mark) else {}
    data = image.ask("apropos", pattern=start, limit=MOST_NAMES, **details).data
    names = {_name(entry) for entry in data.get("matches", data.get("symbols", []))}

    def rank(name: str) -> tuple[bool, bool, str]:
        begins = name.rpartition(mark)[2].lower().startswith(start.lower())
        # Keywords are names of nothing but themselves.
        return not begins, name.startswith(":"), name

    return sorted(filter(None, names), key=rank)


def _name(entry: Any) -> str:
    return str(entry.get("name", "")) if isinstance(entry, dict) else ""
