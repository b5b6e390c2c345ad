"""`gramercy doctor`: test everything that live images and the server need, and give advice.

With `--project`: show the settings for the images of that project, and start those images.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gramercy.errors import GramercyError, HandshakeError, ImageError
from gramercy.images.caches import cache_directory, core_name, find_core
from gramercy.images.environment import DISK_MB, LANGUAGES, LISP_MB, Finding, Status, memory_for
from gramercy.images.groups import told_bound
from gramercy.images.live import LiveImage
from gramercy.images.opening import FINDINGS, ImageSettings, open_image
from gramercy.images.own import own_findings
from gramercy.images.programs import find_program, path_findings
from gramercy.images.sandbox import Confinement, find_confinement, weaknesses, why_not
from gramercy.images.sbcl import INSTALL, find_sbcl, sbcl_version
from gramercy.journal.base import MEMORY, State
from gramercy.journal.opening import default_place, open_journal
from gramercy.ui.cli.options import add_environment_options, json_option, timeout_option, told_settings
from gramercy.ui.cli.plugins import plugin_findings
from gramercy.ui.cli.terminal import json_text, visible
from gramercy.ui.clients.base import Machine, own_command
from gramercy.ui.clients.known import CLIENTS
from gramercy.ui.doctor.attempts import groups
from gramercy.ui.doctor.entries import examine_entries
from gramercy.ui.doctor.escapes import Arena, EscapeResult, run_escapes, short_list
from gramercy.ui.doctor.handshake import ERAS, Conversation, converse
from gramercy.workbench.configuration import read_configuration, user_file
from gramercy.workbench.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.workbench.configuration import Configuration

# No image is started after this time. The timeout of each call bounds the rest.
LATEST_START_SECONDS = 20.0
# The probes take milliseconds. This ends one that hangs.
CALL_SECONDS = 5.0
# For a client of the server: to start it, and to call a tool that starts an image.
SERVER_SECONDS = 8.0
OLDEST_PYTHON = (3, 11)


def line(check: Finding) -> str:
    """Format a check for people."""
    text = f"{check.status:8} {check.name:22} {check.detail}"
    return visible(f"{text}\n{'':9}{'':22} {check.advice}" if check.advice else text)


@dataclass(frozen=True, slots=True)
class Probe:
    """Code in one language that shows state, loses it and ends the process."""

    define: str
    change: str
    read: str
    crash: str


PROBES = {
    "sbcl": Probe(
        "(defparameter *doctor* 42)", "(setf *doctor* 0)", "*doctor*", "(sb-ext:exit :code 3 :abort t)"
    ),
    "python": Probe("doctor = 42", "doctor = 0", "doctor", "import os; os._exit(3)"),
}


@click.command()
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Instead: what was found for the images of this directory, and what they say when they are started.",
)
@click.option(
    "--attack",
    is_flag=True,
    help="Instead: make every attempt to get out of an image that is known, and list what is not held.",
)
@add_environment_options
@timeout_option
@json_option("Write the checks as JSON.")
def doctor(*, project: Path | None, attack: bool, as_json: bool, **options: Any) -> int:
    """Check live images by starting, crashing and attacking them, and the server by being its client."""
    if attack:
        if project is not None:
            raise click.UsageError("--attack makes projects of its own: leave out --project")
        return _attack(as_json=as_json)
    checks = []
    for check in _chosen(project, options):
        checks.append(check)
        if not as_json:
            color = {Status.OK: "green", Status.WARNING: "yellow", Status.FAILED: "red"}[check.status]
            click.secho(line(check), fg=color if check.status is not Status.OK else None)
    is_well = all(check.status is not Status.FAILED for check in checks)
    if as_json:
        click.echo(json_text({"ok": is_well, "checks": [msgspec.structs.asdict(check) for check in checks]}))
    return 0 if is_well else 1


def _chosen(project: Path | None, options: dict[str, Any]) -> Iterator[Finding]:
    told = told_settings(options)
    if project is not None:
        return survey(project.resolve(), told)
    if told != Settings():
        raise click.UsageError("options about an image need the project it is for: --project DIR")
    return examine()


def examine() -> Iterator[Finding]:
    """Make the checks, cheap ones first."""
    latest = monotonic() + LATEST_START_SECONDS
    yield _python()
    sbcl = _sbcl()
    yield sbcl
    yield _bubblewrap()
    try:
        confinement = find_confinement()
    except ImageError as error:
        yield Finding("confinement", Status.FAILED, str(error))
        return
    yield _confinement(confinement)
    yield Finding("memory bound", Status.OK, told_bound())
    yield from _git()
    yield from path_findings()
    yield check_journal()
    yield from plugin_findings()
    for language in ("sbcl", "python") if sbcl.status is Status.OK else ("python",):
        if monotonic() > latest:
            yield Finding(f"{language} image", Status.WARNING, "not tried: the checks before took too long")
            continue
        yield from _image(language, confinement)
    for era in ERAS:
        yield _server(era)
    has_entries = False
    for finding in _entries(Path.cwd()):
        has_entries = True
        yield finding
    if not has_entries:
        advice = "gramercy install --client NAME --write adds one"
        yield Finding("clients", Status.OK, f"no entry of gramercy in the settings of {len(CLIENTS)}", advice)


def _entries(project: Path) -> Iterator[Finding]:
    return examine_entries(Machine(sys.platform, Path.home(), os.environ), project)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Finding("Python", Status.FAILED, version, "use Python 3.11 or newer")
    return Finding("Python", Status.OK, f"{version} ({sys.executable})")


def _sbcl() -> Finding:
    if find_program("sbcl") is None:
        return Finding("SBCL", Status.WARNING, "not installed; there are Python images only", INSTALL)
    try:
        sbcl = find_sbcl()
        version = sbcl_version(sbcl)
        was_cached = (cache_directory() / core_name(sbcl, version)).exists()
        started = perf_counter()
        core = find_core(sbcl, version)
    except ImageError as error:
        return Finding("SBCL", Status.FAILED, str(error), f"reinstall it: {INSTALL}")
    if core is None:
        advice = f"make {cache_directory()} writable, or set XDG_CACHE_HOME"
        return Finding("SBCL", Status.OK, f"{version}, started from source, which is slow", advice)
    how = "core cached" if was_cached else f"core built in {perf_counter() - started:.1f} s"
    return Finding("SBCL", Status.OK, f"{version}, {how}")


def _bubblewrap() -> Finding:
    reason = why_not(Confinement.BUBBLEWRAP)
    if reason is None:
        return Finding("bubblewrap", Status.OK, find_program("bwrap") or "")
    advice = (
        "apt-get install bubblewrap" if "not installed" in reason else "allow user namespaces for bubblewrap"
    )
    return Finding("bubblewrap", Status.WARNING, reason, advice)


def _confinement(confinement: Confinement) -> Finding:
    open_ways = weaknesses(confinement)
    if not open_ways:
        return Finding("confinement", Status.OK, confinement)
    return Finding(
        "confinement", Status.WARNING, f"{confinement}, which does not confine: {', '.join(open_ways)}"
    )


def _git() -> Iterator[Finding]:
    """Check whether git runs programs that a bare repository inside of a project names."""
    git = find_program("git")
    if git is None:
        return
    # Run it outside of every project, whose own settings must not count.
    done = subprocess.run(  # noqa: S603 - our own words
        [git, "config", "--global", "--get", "safe.bareRepository"],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=CALL_SECONDS,
        check=False,
    )
    if done.stdout.strip().lower() == "explicit":
        yield Finding("git", Status.OK, "runs nothing that a bare repository inside of a project names")
        return
    told = "takes a directory with HEAD, objects and refs for a repository; below the top of a project one "
    advice = "git config --global safe.bareRepository explicit"
    yield Finding("git", Status.OK, f"{told}that code makes stands until it is moved aside", advice)


def check_journal() -> Finding:
    """Open the journal that commands use, if it exists. A check must not create it."""
    where = os.environ.get("GRAMERCY_JOURNAL") or str(default_place())
    path = Path(where)
    if "://" not in where and where != MEMORY and not path.exists():
        return Finding("journal", Status.OK, f"none yet; the first call makes {where}")
    try:
        with closing(open_journal(where)) as journal:
            waiting, doubtful = (len(journal.records([state])) for state in (State.AWAITING, State.IN_DOUBT))
    except GramercyError as error:
        return Finding(
            "journal", Status.FAILED, str(error), "until then no call is run that must be recorded"
        )
    detail = f"{where}, {waiting} waiting for a decision, {doubtful} in doubt"
    if aside := sorted(path.parent.glob(f"{path.name}.damaged-*[0-9]")):
        advice = f"a damaged journal was set aside as {aside[-1]}: keep it for the audit, or remove it"
        return Finding("journal", Status.WARNING, detail, advice)
    advice = "gramercy approvals resolve KEY, once you know whether it happened" if doubtful else ""
    return Finding("journal", Status.WARNING if doubtful else Status.OK, detail, advice)


def _image(language: str, confinement: Confinement) -> Iterator[Finding]:
    with Arena() as arena:
        image = LiveImage(
            "doctor", ImageSettings(language, arena.project, confinement).program, timeout=CALL_SECONDS
        )
        try:
            yield from _life(image, PROBES[language], language)
            yield _escapes(image, arena, language, confinement)
        except GramercyError as error:
            yield Finding(f"{language} image", Status.FAILED, str(error), "run again; if it stays, report it")
        finally:
            image.close()


def _life(image: LiveImage, probe: Probe, language: str) -> Iterator[Finding]:
    started = perf_counter()
    first = image.evaluate(probe.define)
    spent = (perf_counter() - started) * 1000
    if not first.ok:
        raise ImageError(first.error.message if first.error else "it does not evaluate")
    yield Finding(f"{language} starts", Status.OK, f"and evaluates within {spent:.0f} ms")
    image.evaluate(probe.change)
    image.undo()
    yield _expect(f"{language} undo", image.evaluate(probe.read).values, "a change was taken back")
    ended = image.evaluate(probe.crash)
    if ended.ok:
        yield Finding(
            f"{language} recovery", Status.FAILED, "the image could not be crashed, so nothing is proven"
        )
    else:
        yield _expect(
            f"{language} recovery", image.evaluate(probe.read).values, "crashed, and its state came back"
        )


def _expect(name: str, values: list[str], words: str) -> Finding:
    if values == ["42"]:
        return Finding(name, Status.OK, words)
    return Finding(name, Status.FAILED, f"expected 42, found {', '.join(values) or 'nothing'}")


def _escapes(image: LiveImage, arena: Arena, language: str, confinement: Confinement) -> Finding:
    results = list(run_escapes(image, arena, confinement, chosen=short_list()))
    return verdict(f"{language} escapes", results)


def verdict(name: str, results: list[EscapeResult]) -> Finding:
    """Judge attempts: only known ones may succeed, and each must have been made."""
    escaped = [f"{each.name} ({each.detail})" for each in results if each.is_hole]
    untried = [f"{each.name} ({each.detail})" for each in results if not each.escaped and not each.tried]
    if escaped:
        advice = "do not run untrusted code in images here"
        return Finding(name, Status.FAILED, f"got out: {'; '.join(escaped)}", advice)
    if untried:
        return Finding(name, Status.WARNING, f"not tried: {'; '.join(untried)}")
    let = sum(result.escaped for result in results)
    allowed = f", {let} are known not to be" if let else ""
    return Finding(name, Status.OK, f"{len(results) - let} of {len(results)} attempts were refused{allowed}")


def _attack(*, as_json: bool) -> int:
    """Make every attempt in every language. Return 1 if an attempt succeeded that should be refused."""
    from gramercy.ui.doctor.scenes import run_battery

    confinement = find_confinement()
    found: dict[str, list[EscapeResult]] = {}
    for language in LANGUAGES:
        if language == "sbcl" and find_program("sbcl") is None:
            continue
        found[language] = []
        for result in run_battery(language, confinement):
            found[language].append(result)
            _show_progress(f"{language} in {confinement}: {len(found[language])} {result.attempt.id}")
        _show_progress("")
        if not as_json:
            click.echo(_table(language, confinement, found[language]))
    is_well = not any(each.is_hole for results in found.values() for each in results)
    if as_json:
        shown = {language: list(map(_result, results)) for language, results in found.items()}
        click.echo(json_text({"ok": is_well, "sandbox": confinement, "attempts": shown}))
    else:
        click.echo(_not_held(found))
    return 0 if is_well else 1


def _show_progress(text: str) -> None:
    """Overwrite the previous line, on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text[:76]}", err=True, nl=False)


def _table(language: str, confinement: Confinement, results: list[EscapeResult]) -> str:
    lines = [f"{language} in {confinement}", f"  {'':40} {'made':>5} {'held':>5} {'not held':>9}"]
    for name, group in groups().items():
        lines.append(_row(group.title, [each for each in results if each.attempt.group == name]))
    previews = sum(each.preview for each in results)
    return "\n".join([*lines, _row(f"all, {previews} of them in a preview", results), ""])


def _row(title: str, results: list[EscapeResult]) -> str:
    """Count attempts. One that could not be made is neither made nor refused."""
    made = [each for each in results if each.tried or each.escaped]
    out = sum(each.escaped for each in made)
    return f"  {title:40} {len(made):5} {len(made) - out:5} {out or '':>9}"


def _not_held(found: dict[str, list[EscapeResult]]) -> str:
    """List the successful attempts, once for all languages, with the reason where it is known."""
    open_ways: dict[tuple[str, str], list[str]] = {}
    for language, results in found.items():
        for each in results:
            if each.escaped or not each.tried:
                open_ways.setdefault((each.name, _why(each)), []).append(language)
    if not open_ways:
        return "Every attempt was held."
    lines = [f"  {name} ({', '.join(languages)}): {why}" for (name, why), languages in open_ways.items()]
    return visible("\n".join(["Not held, or not tried:", *lines]))


def _why(result: EscapeResult) -> str:
    if not result.escaped:
        return f"it could not be tried: {result.detail}"
    if result.reason is not None:
        return f"known: {result.reason}"
    return f"{'NOT YET HELD' if result.attempt.awaits else 'IT GOT OUT'}: {result.detail}"


def _result(result: EscapeResult) -> dict[str, Any]:
    attempt = result.attempt
    return {
        "id": attempt.id,
        "name": result.name,
        "group": attempt.group,
        "preview": result.preview,
        "held": not result.escaped,
        "tried": result.tried,
        "known": result.reason,
        "detail": visible(result.detail),
    }


def _server(era: str) -> Finding:
    """Start the server as a client would, and evaluate code through it."""
    name = f"server {era}"
    with tempfile.TemporaryDirectory(prefix="gramercy-doctor-") as project:
        command = [*own_command(), "serve", "--image", "python", "--project", project]
        started = perf_counter()
        try:
            conversation = Conversation(command, project, SERVER_SECONDS)
            try:
                count = converse(conversation, era, ("evaluate-python", {"code": "6 * 7"}), "=> 42")
                spent = (perf_counter() - started) * 1000
            finally:
                conversation.close()
        except (HandshakeError, OSError, KeyError, TypeError) as error:
            advice = f"see what it says: {' '.join(command[:-2])} </dev/null"
            return Finding(name, Status.FAILED, str(error), advice)
    return Finding(name, Status.OK, f"started, has {count} tools and ran one, within {spent:.0f} ms")


QUESTIONS = {
    "python": "import sys; print(f'Python {sys.version.split()[0]}, sys.prefix {sys.prefix}')",
    "sbcl": '(format t "SBCL ~a, ~a" (lisp-implementation-version) *default-pathname-defaults*)',
}


def survey(project: Path, told: Settings) -> Iterator[Finding]:
    """Show the settings that a project's files and environment give to its images, then start the images."""
    configuration = read_configuration(project, told)
    yield from _configured(configuration)
    yield from own_findings(project)
    for language in LANGUAGES:
        if language == "sbcl" and find_program("sbcl") is None:
            continue
        told_by = FINDINGS.get(language)
        for finding in told_by(project, configuration.environment) if told_by else ():
            yield Finding(f"{language} {finding.name}", finding.status, finding.detail, finding.advice)
        yield _asked(language, project, configuration)
    yield from _entries(project)


def _configured(configuration: Configuration) -> Iterator[Finding]:
    files = ", ".join(map(str, configuration.files))
    none = f"no file: neither gramercy.toml or [tool.gramercy] in the project, nor {user_file()}"
    yield Finding("configuration", Status.OK, files or none)
    for remark in configuration.remarks:
        yield Finding("configuration", Status.WARNING, remark)
    environment = configuration.environment
    memory = f"{environment.memory_mb} MB"
    if environment.memory_mb is None:
        memory = f"{memory_for('python', None)} MB for Python, {LISP_MB} MB for SBCL"
    disk = DISK_MB if environment.disk_mb is None else environment.disk_mb
    parts = [f"timeout {configuration.timeout:g} s", f"memory {memory}", f"network {environment.network}"]
    parts += [f"{disk} MB written by a call"]
    parts += [f"project {'read-only' if environment.files == 'read' else 'writable'}"]
    parts += [f"published {port.outer}:{port.inner}" for port in environment.publish]
    parts += [f"variable {name}" for name in environment.variables]
    parts += [f"init {environment.init}"] if environment.init is not None else []
    yield Finding("limits", Status.OK, ", ".join(parts))


def _asked(language: str, project: Path, configuration: Configuration) -> Finding:
    """Start an image of the project and ask it for its description."""
    name = f"{language} image"
    image = None
    try:
        image = open_image(
            language,
            project=project,
            timeout=configuration.timeout,
            environment=configuration.environment,
        )
        reply = image.evaluate(QUESTIONS[language])
    except GramercyError as error:
        return Finding(name, Status.FAILED, str(error))
    finally:
        if image is not None:
            image.close()
    if not reply.ok:
        return Finding(name, Status.FAILED, reply.error.message if reply.error else "it does not evaluate")
    return Finding(name, Status.OK, f"started: {reply.stdout.strip()}")
