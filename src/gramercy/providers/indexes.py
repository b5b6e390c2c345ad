"""Package indexes as configured for pip: its files and variables, proxies, certificates, passwords.

Nothing is installed: a file is found and can be read from any offset. pip itself is only asked for its
default index.
"""

from __future__ import annotations

import base64
import configparser
import html
import os
import re
import ssl
import subprocess
import sys
import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import msgspec

from gramercy.directories import config_directories, config_home
from gramercy.errors import ModelUnavailableError
from gramercy.images.programs import find_program
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# As in pip.
SECONDS, RETRIES = 15.0, 5
# A page that lists the files of one project; the biggest projects have some megabytes.
LONGEST_PAGE: Final = 32 << 20
# pip starts in half a second, on a busy machine in several seconds.
PIP_SECONDS: Final = 30.0
# The exceptions of opening an address: an answer that is not HTTP and an invalid address raise no OSError.
UNREADABLE: Final = (OSError, HTTPException, ValueError)
_DEFAULT = re.compile(r"--index-url\b.*?\(default\s+([a-z]+://[^\s)]+)\)", re.DOTALL)
_HREF = re.compile(r"""<a\s[^>]*?href\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)


class PipSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of pip's configuration that is about downloading files."""

    indexes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    proxy: str = ""
    certificates: str = ""
    client_certificate: str = ""
    trusted: tuple[str, ...] = ()
    seconds: float = SECONDS
    retries: int = RETRIES


def read_pip_settings(environ: Mapping[str, str] | None = None) -> PipSettings:
    """Return the settings that pip would use for a download: its files, overridden by its variables."""
    environ = os.environ if environ is None else environ
    told: dict[str, str] = {}
    for path in _files(environ):
        told |= _told_by(path)
    told |= {
        name[4:].lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("PIP_") and value.strip()
    }
    indexes: tuple[str, ...] = ()
    if told.get("no-index", "").lower() not in ("1", "true", "yes", "on"):
        indexes = (told.get("index-url") or default_index(), *told.get("extra-index-url", "").split())
    bundle = environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE") or ""
    return PipSettings(
        indexes=tuple(filter(None, indexes)),
        links=tuple(told.get("find-links", "").split()),
        proxy=told.get("proxy", ""),
        certificates=told.get("cert", bundle),
        client_certificate=told.get("client-cert", ""),
        trusted=tuple(told.get("trusted-host", "").split()),
        seconds=_number(told.get("timeout") or told.get("default-timeout"), SECONDS),
        retries=int(_number(told.get("retries"), RETRIES)),
    )


def default_index() -> str:
    """Return pip's default index; empty if there is no pip to ask."""
    for command in ([sys.executable, "-P", "-m", "pip"], [find_program("pip") or find_program("pip3") or ""]):
        try:
            # Isolated, since files and variables are read here; wide, so that no address is folded.
            said = subprocess.run(  # noqa: S603 - the pip of this environment
                [*command, "--isolated", "download", "--help"],
                capture_output=True,
                text=True,
                timeout=PIP_SECONDS,
                check=True,
                env={**os.environ, "COLUMNS": "400"},
            ).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        if found := _DEFAULT.search(said):
            return found[1]
    return ""


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield pip's configuration files, in increasing order of precedence."""
    own = environ.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return
    for directory in config_directories(environ):
        yield directory / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield Path(environ.get("HOME") or Path.home(), ".pip", "pip.conf")
    yield config_home(environ) / "pip" / "pip.conf"
    yield Path(sys.prefix, "pip.conf")
    if own:
        yield Path(own)


def _told_by(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return {}
    except configparser.Error as error:
        raise ModelUnavailableError(f"pip's file {path} cannot be read: {error!s:.200}") from None
    found: dict[str, str] = {}
    for section in ("global", "download"):
        if parser.has_section(section):
            found |= {key.replace("_", "-"): value for key, value in parser.items(section) if value}
    return found


def _number(text: str | None, otherwise: float) -> float:
    try:
        return max(0.0, float(text)) if text else otherwise
    except ValueError:
        return otherwise


def shown(url: str) -> str:
    """Return an address without its password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # Any part of it may be a password.
        return "an address that is none"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


class Indexes:
    """Finds files in the configured indexes, and opens them."""

    def __init__(self, settings: PipSettings) -> None:
        self.settings = settings
        self._openers: dict[bool, urllib.request.OpenerDirector] = {}

    def find(self, project: str, file: str) -> str:
        """Return the address of a project's file, or raise ModelUnavailableError with the tried places."""
        tried = []
        for place in self.settings.links:
            try:
                found = _in_directory(place, file) or self._on_page(place, file)
            except UNREADABLE:  # other packages may be the reason for this place
                continue
            if found:
                return found
        for index in self.settings.indexes:
            page = f"{index.rstrip('/')}/{project}/"
            try:
                if found := self._on_page(page, file):
                    return found
                tried.append(f"{shown(page)} does not list it")
            except UNREADABLE as error:
                tried.append(f"{shown(page)}: {why_unread(error)}")
        listed = "; ".join(tried) or "there is no index (pip's no-index, or no pip to ask: set PIP_INDEX_URL)"
        raise ModelUnavailableError(f"{file} is nowhere to be had: {listed}")

    def _on_page(self, page: str, file: str) -> str | None:
        with self.open(page) as answer:
            address = answer.geturl()
            text = answer.read(LONGEST_PAGE).decode("utf-8", "replace")
        for match in _HREF.finditer(text):
            # Drop the digest after the #: ours counts, and a proxy would be sent it.
            url = urldefrag(urljoin(address, html.unescape(match[1] or match[2] or ""))).url
            if unquote(urlsplit(url).path).rpartition("/")[2] == file:
                # The password is for the same host only; a link to another host gets none.
                return _with_password(url, page)
        return None

    def open(self, url: str, headers: Mapping[str, str] | None = None) -> Any:
        """Open an address; OSError says why it cannot be opened."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "file"):
            raise OSError(f"cannot read addresses of the kind {parts.scheme!r:.20}")
        if parts.scheme == "file" and url.endswith("/"):
            url += "index.html"
        asked = urllib.request.Request(  # noqa: S310 - the schemes are those above
            parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else url,
            headers={"User-Agent": "gramercy", **(headers or {})},
        )
        if password := _password(parts.hostname or "", parts.username, parts.password):
            # A redirect to another host does not get it.
            asked.add_unredirected_header("Authorization", f"Basic {password}")
        hosts = (parts.hostname, parts.netloc.rpartition("@")[2])
        is_trusted = any(host in self.settings.trusted for host in hosts)
        return self._opener(is_trusted=is_trusted).open(asked, timeout=self.settings.seconds or SECONDS)

    def _opener(self, *, is_trusted: bool) -> urllib.request.OpenerDirector:
        if is_trusted not in self._openers:
            handlers: list[urllib.request.BaseHandler] = [
                urllib.request.HTTPSHandler(context=_context(self.settings, is_trusted=is_trusted))
            ]
            if self.settings.proxy:
                way = self.settings.proxy if "://" in self.settings.proxy else f"http://{self.settings.proxy}"
                handlers.append(urllib.request.ProxyHandler({"http": way, "https": way}))
            self._openers[is_trusted] = urllib.request.build_opener(*handlers)
        return self._openers[is_trusted]


def _context(settings: PipSettings, *, is_trusted: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.certificates or None)
    if settings.client_certificate:
        context.load_cert_chain(settings.client_certificate)
    if is_trusted:
        # As the person has configured pip; the download is compared with a digest of ours in any case.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _in_directory(place: str, file: str) -> str | None:
    parts = urlsplit(place)
    if parts.scheme not in ("", "file"):
        return None
    path = Path(unquote(parts.path) if parts.scheme else place).expanduser() / file
    return path.absolute().as_uri() if path.is_file() else None


def _with_password(url: str, page: str) -> str:
    there, here = urlsplit(url), urlsplit(page)
    password, at, _ = here.netloc.rpartition("@")
    if not at or there.hostname != here.hostname or "@" in there.netloc:
        return url
    return there._replace(netloc=f"{password}@{there.netloc}").geturl()


def _password(host: str, name: str | None, word: str | None) -> str:
    """Return the credentials for a host: from its address, else from the file .netrc."""
    if name is None and host:
        import netrc

        try:
            known = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
        except (OSError, UnicodeError, netrc.NetrcParseError):
            known = None
        if known is None:
            return ""
        name, word = known[0], known[2]
    if not name:
        return ""
    return base64.b64encode(f"{unquote(name)}:{unquote(word or '')}".encode()).decode()


def why_unread(error: Exception) -> str:
    """Say in a few words why an address could not be read."""
    if isinstance(error, HTTPError):
        known = HTTPStatus(error.code).phrase if error.code in _STATUSES else ""
        return f"it answers {error.code} {known}".strip()
    if isinstance(error, HTTPException):
        return "its answer is not HTTP, or ends too early"
    inner = error.reason if isinstance(error, URLError) else error
    return inner[:200] if isinstance(inner, str) else reason_of(inner)[:200]


_STATUSES = frozenset(status.value for status in HTTPStatus)
