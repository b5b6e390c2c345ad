"""Assemble a server: the tools of files and images, the guard, and the protocol engine.

It knows no transport. Nothing here starts an image, or imports the modules for that.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy import __version__
from gramercy.errors import SandboxError, SourceError
from gramercy.images.base import Gallery
from gramercy.images.environment import LANGUAGES
from gramercy.journal.base import MEMORY
from gramercy.tools.context import current_call
from gramercy.tools.registry import Registry
from gramercy.toolsets.project import project_tools
from gramercy.workbench.deferred import DeferredImage, close_within, offers_of
from gramercy.workbench.modes import Mode, approver_in
from gramercy.workbench.plugins import language_of
from gramercy.workbench.policies import Rulebook
from gramercy.workbench.recording import Ledger, Recording
from gramercy.workbench.selection import (
    DEFAULT_TOOLSETS,
    FOREMOST,
    chosen_tools,
    elsewhere,
    instructions_for,
)
from gramercy.workbench.site import Site
from gramercy.workbench.values import read_image_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.execution.approval import ApprovalHandler, ApprovalRequest
    from gramercy.execution.executor import Executor
    from gramercy.images.environment import Environment
    from gramercy.images.image import Image
    from gramercy.images.live import LiveImage
    from gramercy.mcp.catalogue import Catalog
    from gramercy.mcp.engine import Engine
    from gramercy.mcp.question_files import Nearby
    from gramercy.mcp.questions import RuleOffers
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import ImageSource
    from gramercy.toolsets.opened_images import OpenedImages
    from gramercy.workbench.audit import Audit
    from gramercy.workbench.control import Desk
    from gramercy.workbench.foreign import ForeignServers

NAME = "gramercy"
UNDO = "undo_last"


class Service(msgspec.Struct, frozen=True):
    """The options of a server: images as `LANGUAGE` or `NAME=LANGUAGE`, files with tools, and tool sets.

    `approver` is asked when a client cannot show a question to its person. `uses_roots` lets a folder of the
    client replace the project, which is right where client and server are on the same machine. There,
    `nearby` lets a message point the person to a file. `mode` says how much is asked.
    """

    images: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    project: str = "."
    uses_roots: bool = False
    nearby: bool = False
    sandbox: bool = True
    environment: Environment | None = None
    timeout: float = 60.0
    timeout_limit: float | None = 600.0
    toolsets: tuple[str, ...] = DEFAULT_TOOLSETS
    max_safety: str | None = None
    categories: tuple[str, ...] = ()
    strict: bool = False
    policy: str | None = None
    approver: ApprovalHandler | None = None
    fixtures: bool = False
    foreign: tuple[str, ...] = ()
    foreign_pins: str | None = None
    foreign_rules: tuple[str, ...] = ()
    foreign_env: tuple[str, ...] = ()
    mode: str = "ask"
    recording: Recording = Recording(MEMORY)


class Server:
    """An engine, its directory, and the images and other servers that must end with it."""

    foreign: ForeignServers | None = None
    # One line about the sandbox of its images.
    sandbox = ""
    rules: Rulebook | None = None

    def __init__(
        self,
        engine: Engine,
        site: Site,
        images: tuple[Image, ...],
        ledger: Ledger,
        studio: OpenedImages | None = None,
    ) -> None:
        self.engine = engine
        self.site = site
        self.images = images
        self.ledger = ledger
        self._studio = studio

    def all_images(self) -> tuple[Image, ...]:
        """Return the configured images, and those that callers have opened."""
        return (*self.images, *(self._studio.opened() if self._studio is not None else ()))

    def close(self, seconds: float) -> None:
        """End the images and wait for that, with a timeout."""
        close_within(seconds, (*self.all_images(), *([self.foreign] if self.foreign else ())))
        if self.rules is not None:
            self.rules.close()
        self.site.close()
        self.ledger.close()


def open_server(service: Service) -> Server:
    """Assemble a server. Without files and images it has one image of the default language."""
    names = read_image_names(service.images or _default_images(service))
    looking = _Look(service) if names else None
    site = Site(service.project, sandbox=service.sandbox, asks_client=service.uses_roots)
    rules = Rulebook(
        None if site.trouble else site.path(), service.policy, _on_standard_error, Mode(service.mode)
    )
    site.when_decided = rules.move
    tools: list[Tool] = []
    open_image = _opener(service, site, rules, tools)
    images = tuple(DeferredImage(name, language_of(kind), open_image, kind) for name, kind in names.items())
    studio = _studio(images, service, open_image)
    registry = Registry(_image_tools(images, service, studio, site) if images else ())
    if service.sources:
        _add_sources(registry, service.sources)
    foreign = _add_foreign(registry, service) if service.foreign else None
    tools += registry.library().values()
    ledger = Ledger(service.recording, service.project)
    sandbox = looking.line() if looking is not None else ""
    engine = _engine(registry, images, service, (site, sandbox, ledger), rules)
    server = Server(engine, site, images, ledger, studio)
    server.sandbox = sandbox
    server.rules = rules
    project = _project(service, site, images)
    ledger.look_after(engine.executor, partial(_desk, server, project), _on_standard_error)
    server.foreign = foreign
    return server


class _Look:
    """Detects the sandbox on a thread: bubblewrap is run for it while modules are loaded."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._line = ""
        self._error: SandboxError | None = None
        self._thread = threading.Thread(target=self._run, name="gramercy-sandbox", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from gramercy.images.sandbox import in_force, told_confinement

        environment = self._service.environment
        required = environment.require_sandbox if environment is not None else None
        try:
            self._line = told_confinement(in_force(sandbox=self._service.sandbox, required=required))
        except SandboxError as error:
            self._line = f"WARNING, {error}"
            # Without a requirement the server starts, and a call that needs an image reports the same error.
            self._error = error if required is not None else None

    def line(self) -> str:
        """Return the line, or raise if the required sandbox does not work here."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._line


def _default_images(service: Service) -> tuple[str, ...]:
    if service.sources or service.fixtures or service.foreign:
        return ()
    from gramercy.images.project import default_language

    return (default_language(service.project or "."),)


def _opener(
    service: Service, site: Site, rules: Rulebook, tools: list[Tool]
) -> Callable[[str, str], LiveImage]:
    def open_named(name: str, language: str) -> LiveImage:
        from gramercy.images.descriptors import raise_limit
        from gramercy.images.opening import open_image

        raise_limit()
        environment = _walled(service, site.path(), rules, tools) if service.sandbox else service.environment
        return open_image(
            language,
            name=name,
            project=site.path(),
            sandbox=service.sandbox,
            timeout=service.timeout,
            environment=environment,
            tell=_start_teller(),
        )

    return open_named


def _walled(service: Service, project: Path, rules: Rulebook, tools: list[Tool]) -> Environment | None:
    """Return the environment with the paths that are read-only for evaluated code."""
    named = (service.policy, service.foreign_pins, *service.sources, *rules.policies.own_files)
    if not any(named) and not rules.policy.rules:
        return service.environment
    from gramercy.workbench.keeping import walled

    return walled(service.environment, project, named, rules.policy, tools)


def _on_standard_error(line: str) -> None:
    # EPIPE from a client that has closed its end, or ENOSPC from a log, must not end the server.
    with suppress(OSError, ValueError):
        sys.stderr.write(f"gramercy: {line}\n")


def _start_teller() -> Callable[[str], None]:
    """Return a function that reports the steps of an image's start to the caller and to the log."""
    numbers = count(1)

    def tell(line: str) -> None:
        from gramercy.images.caches import on_standard_error

        # Far below a second: the seconds of the evaluation follow, and progress must not go back.
        current_call().report(next(numbers) / 10_000, message=line)
        on_standard_error(line)

    return tell


def _studio(
    images: tuple[Image, ...], service: Service, open_image: Callable[[str, str], LiveImage]
) -> OpenedImages | None:
    if not images or "images" not in service.toolsets:
        return None
    from gramercy.toolsets.opened_images import OpenedImages

    return OpenedImages(Gallery(images), open_image)


def _image_tools(
    images: tuple[Image, ...], service: Service, studio: OpenedImages | None, site: Site
) -> list[Tool]:
    from gramercy.toolsets.core import core_tools
    from gramercy.toolsets.factory import Speakers, Workshop
    from gramercy.toolsets.session import session_tools
    from gramercy.toolsets.time_travel import time_travel_tools
    from gramercy.toolsets.workspace import Workspace

    spoken = LANGUAGES if studio is not None else tuple(image.language for image in images)
    chosen = chosen_tools(service.toolsets, spoken)
    gallery = studio or Gallery(images)

    def workshop(source: ImageSource) -> Workshop:
        return Workshop(
            source,
            service.timeout_limit,
            open_world=partial(_reaches_out, service),
            writes_files=not (
                service.sandbox and service.environment and service.environment.files == "read"
            ),
            beside=chosen,
        )

    shop, workspace = workshop(gallery), Workspace(site.path)
    tools = [
        *core_tools(shop, workspace),
        *project_tools(shop, workspace),
        *session_tools(shop, images[0].language)[1:],
        *time_travel_tools(shop, workspace),
    ]
    # The one tool that is named after a language.
    tools += [
        session_tools(workshop(Speakers(gallery, language)), language)[0]
        for language in dict.fromkeys(spoken)
    ]
    if studio is not None:
        from gramercy.toolsets.opened_images import opened_image_tools

        tools += opened_image_tools(studio)
    return [tool for tool in tools if tool.name in chosen]


def _reaches_out(service: Service) -> bool:
    """Return whether evaluated code can reach beyond the project. Called when tools are first listed."""
    environment = service.environment
    if not service.sandbox or (environment and (environment.network == "open" or environment.publish)):
        return True
    # Landlock, the fallback for bubblewrap, is not relied on for that.
    from gramercy.images.sandbox import Confinement, why_not

    return why_not(Confinement.BUBBLEWRAP) is not None


def _add_sources(registry: Registry, sources: tuple[str, ...]) -> None:
    from gramercy.workbench.sources import load_tools

    loaded = load_tools(*sources)
    taken = [name for name in loaded.names() if name in registry]
    if taken:
        raise SourceError(
            f"{', '.join(sources)} defines {', '.join(taken)}, which the images have too: rename, "
            "or choose other tools for them with --toolset"
        )
    registry.register_all(loaded.library().values())


def _add_foreign(registry: Registry, service: Service) -> ForeignServers:
    from gramercy.images.trust import check_file
    from gramercy.workbench.foreign import ForeignServers, name_server

    if service.foreign_pins and Path(service.foreign_pins).is_file():
        check_file(service.foreign_pins)
    named = [
        name_server(word, variables=service.foreign_env, timeout=service.timeout) for word in service.foreign
    ]
    foreign = ForeignServers(named, service.foreign_pins, service.foreign_rules)
    foreign.register(registry)
    return foreign


def _engine(
    registry: Registry,
    images: tuple[Image, ...],
    service: Service,
    place: tuple[Site, str, Ledger],
    rules: Rulebook,
) -> Engine:
    site, sandbox, ledger = place
    from gramercy.execution.executor import WAIT_SECONDS, Executor
    from gramercy.mcp.engine import Engine

    executor = Executor(
        registry,
        service.approver,
        policy=rules.policy,
        max_safety_level=service.max_safety,
        journal=ledger.journal,
        approval_wait=ledger.recording.wait or WAIT_SECONDS,
        approval_expiry=ledger.recording.expiry,
    )
    project = _project(service, site, images)
    undoable = chosen_tools(service.toolsets) if images and UNDO in registry else frozenset[str]()
    ledger.wait_for_watchers(executor, project)
    ledger.tidy()
    rules.serve(executor)
    engine = Engine(
        executor,
        name=NAME,
        version=__version__,
        instructions=instructions_for(
            {image.name: image.language for image in images},
            registry.names(),
            "\n".join(filter(None, [site.introduction, sandbox and f"{sandbox[:1].upper()}{sandbox[1:]}."])),
        ),
        catalog=_fixtures(registry) if service.fixtures else _offers(images, executor, service, ledger),
        strict=service.strict,
        max_safety=service.max_safety,
        categories=service.categories or None,
        nearby=_nearby(service, rules),
        signing_key=ledger.signing_key(),
        session=ledger.session,
        project=project,
        deciding=partial(approver_in, Mode(service.mode), undoable=undoable),
    )
    if images:
        engine.served_elsewhere(elsewhere(service.toolsets))
        engine.put_first(FOREMOST)
    if images and site.trouble:
        engine.begin_with(site)
    return engine


def _project(service: Service, site: Site, images: tuple[Image, ...]) -> Callable[[], str]:
    """Return a function that names the served directory."""
    return site.told if images else partial(os.path.realpath, service.project)


def _desk(server: Server, project: Callable[[], str]) -> Desk:
    from gramercy.workbench.control import Desk

    return Desk(server.engine.executor, server.all_images, project, server.ledger.session)


def _nearby(service: Service, rules: Rulebook) -> Nearby:
    """Return what the server shares with its clients. A client on pipes has started the server."""
    from gramercy.mcp.question_files import Nearby, question_directory

    directory = None
    # A deleted working directory has no path, and some users have no home. Then there is no place to name.
    with suppress(OSError, RuntimeError):
        if service.nearby:
            directory = question_directory(Path(service.project).resolve(), os.environ)
    # Only the person may write their own rules, not a client on another machine.
    offers = partial(_rule_offers, rules.read_again) if service.nearby else None
    return Nearby(directory, os.environ if service.uses_roots else {}, offers)


def _rule_offers(written: Callable[[], object], request: ApprovalRequest) -> RuleOffers | None:
    # Only a question needs it, long after the start.
    from gramercy.workbench.always import form_offers

    return form_offers(written, request)


def _sandbox(service: Service) -> str:
    """Describe the sandbox of evaluated code."""
    from gramercy.images.sandbox import Confinement, find_confinement

    found = find_confinement(allow_none=True) if service.sandbox else Confinement.NONE
    return "no sandbox" if found is Confinement.NONE else f"sandbox {found.value}"


def _offers(
    images: tuple[Image, ...], executor: Executor, service: Service, ledger: Ledger
) -> Catalog | None:
    def audit() -> Audit:
        from gramercy.workbench.audit import Audit

        session = ledger.session if ledger.is_lasting else ""
        return Audit(executor.journal, session, sandbox=partial(_sandbox, service))

    return offers_of(images, executor, service.categories, audit) if images else None


def _fixtures(registry: Registry) -> Catalog:
    """Add the tools that the conformance suite of the protocol calls. Only a checkout has them."""
    from importlib.util import module_from_spec, spec_from_file_location

    from gramercy.mcp.catalogue import Catalog

    folder = Path(__file__).parents[3] / "tests" / "mcp" / "conformance_tools"
    spec = spec_from_file_location(folder.name, folder / "__init__.py")
    if spec is None or spec.loader is None or not folder.is_dir():
        raise SourceError(
            "--conformance-fixtures needs a checkout of gramercy: the tools for the conformance suite are in "
            f"its tests/mcp/{folder.name}, which an installed package does not have"
        )
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    catalog = Catalog()
    module.register_fixtures(registry, catalog)
    return catalog
