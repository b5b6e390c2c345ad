"""What may be posted, and how it is answered."""

import json

import pytest

MEGABYTE = 1 << 20


def test_a_request_is_answered_as_json(site):
    """Streamable HTTP, Sending Messages."""
    answer = site.post_modern("echo", text="hello")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["result"]["echo"] == "hello"


@pytest.mark.parametrize("body", [b"{", b"", b"\xff\xfe", b'{"a":1,}', b"[" * 200_000, b"nonsense"])
def test_what_is_not_json_is_a_parse_error(site, body):
    """JSON-RPC 2.0, error object; HTTP 400."""
    answer = site.post(body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == -32700


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "application/json; charset=latin-1",
    ],
)
def test_other_content_types_are_refused(site, tools, kind):
    """A page can send plain text and forms across origins without being asked; JSON it cannot."""
    answer = site.post(tools.message("echo"), content_type=kind)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", 'application/json;charset="UTF-8"']
)
def test_json_in_utf8_is_accepted_however_it_is_written(site, tools, kind):
    """RFC 9110, media types."""
    assert (
        site.post(tools.modern_message("echo"), content_type=kind, **tools.modern_headers("echo")).status_code
        == 200
    )


def test_compressed_bodies_are_refused(site, tools):
    """What unpacks to gigabytes is never unpacked."""
    assert site.post(tools.message("echo"), content_encoding="gzip").status_code == 415


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json, text/event-stream", 200),
        ("text/event-stream,application/json;q=0.5", 200),
        ("*/*", 200),
        ("application/*, text/*", 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("text/html", 406),
        ("application/json, text/event-stream;q=0", 406),
        ("*/*;q=0.000", 406),
    ],
)
def test_clients_must_accept_both_kinds_of_answers(site, tools, accept, status):
    """Streamable HTTP, Sending Messages 2."""
    answer = site.post(tools.modern_message("echo"), accept=accept, **tools.modern_headers("echo"))
    assert answer.status_code == status


def test_a_client_without_accept_header_accepts_everything(site, tools):
    """RFC 9110, 12.5.1."""
    with site.connect() as connection:
        connection.sendall(site.raw(tools.modern_message("echo"), **tools.modern_headers("echo")))
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_a_body_of_ten_megabytes_is_read(site, tools):
    """The limit of a frame is the same on all transports."""
    body = tools.modern_message("echo", text="x" * (10 * MEGABYTE - 300))
    answer = site.post(body, **tools.modern_headers("echo"))
    assert answer.status_code == 200
    assert answer.json()["result"]["size"] > 10 * MEGABYTE - 300


def test_a_longer_body_is_refused_before_it_is_read(site):
    """Content-Length is believed when it says too much."""
    with site.connect() as connection:
        connection.sendall(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 99999999\r\n\r\n"
        )
        assert connection.recv(12) == b"HTTP/1.1 413"


def test_a_longer_body_in_chunks_is_refused(start):
    """A body without a length is counted while it is read."""
    site = start(body_limit=1000)
    answer = site.client.post(
        site.url,
        content=(b" " * 300 for _ in range(8)),
        headers={**site.headers, "content-type": "application/json"},
    )
    assert answer.status_code == 413
    assert site.toy.taken == []


def test_a_body_that_comes_in_pieces_is_put_together(site, tools):
    """Two segments, one message."""
    body = json.dumps(tools.modern_message("echo", text="pieces")).encode()
    headers = {**site.headers, "content-type": "application/json", **tools.modern_headers("echo")}
    answer = site.client.post(site.url, content=(piece for piece in (body[:20], body[20:])), headers=headers)
    assert answer.json()["result"]["echo"] == "pieces"


def test_a_notification_is_accepted_without_a_body(site, tools):
    """Streamable HTTP, Sending Messages 5."""
    session = site.initialize()
    answer = site.post(tools.message("notifications/initialized", None), **session)
    assert (answer.status_code, answer.content) == (202, b"")


def test_a_response_of_the_client_is_accepted_in_a_session(site):
    """2025-11-25, Sending Messages to the Server 4."""
    session = site.initialize()
    assert site.post({"jsonrpc": "2.0", "id": "q", "result": {}}, **session).status_code == 202


def test_a_response_of_the_client_is_refused_in_the_newer_era(site, tools):
    """2026-07-28: the client must not send responses."""
    answer = site.post({"jsonrpc": "2.0", "id": 1, "result": {}}, **tools.modern_headers("x"))
    assert answer.status_code == 400


def test_a_batch_is_answered_in_a_session_and_refused_in_the_newer_era(site, tools):
    """2025-03-26 has batches."""
    session = site.initialize("2025-03-26")
    batch = [tools.message("echo", 1), tools.message("echo", 2)]
    assert [one["id"] for one in site.post(batch, **session).json()] == [1, 2]
    assert site.post(batch, **tools.modern_headers("echo")).status_code == 400


@pytest.mark.parametrize(
    ("code", "status"),
    [(-32601, 404), (-32600, 400), (-32020, 400), (-32021, 400), (-32022, 400), (-32602, 200), (-32603, 200)],
)
def test_the_newer_era_tells_some_errors_by_the_status(site, code, status):
    """2026-07-28, Protocol Version Header; the id of the request comes back."""
    answer = site.post_modern("fail", code=code)
    assert (answer.status_code, answer.json()["id"]) == (status, 1)


def test_missing_metadata_is_a_bad_request(site):
    """2026-07-28: a request without what it must declare is answered -32602 and 400."""
    assert site.post_modern("fail", code=-32602, data={"missing": "x"}).status_code == 400


def test_the_older_era_answers_errors_with_200(site, tools):
    """The error is in the body, where older clients look for it."""
    session = site.initialize()
    assert site.post(tools.message("fail", code=-32601), **session).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD"])
def test_other_methods_are_not_allowed(site, method):
    """The answer says which are."""
    answer = site.client.request(method, site.url)
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_the_newer_era_has_only_post(site, method):
    """2026-07-28, Earlier Streamable HTTP Revisions."""
    answer = site.client.request(method, site.url, headers={"mcp-protocol-version": "2026-07-28"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_nothing_is_elsewhere(site):
    """There is one endpoint."""
    answer = site.client.get(site.url + "/other")
    assert answer.status_code == 404
    assert "/mcp" in answer.json()["error"]["message"]


@pytest.mark.contract("trust.approval.faults")
def test_a_fault_inside_is_answered_without_details_and_is_in_the_log(site, caplog):
    """Never a traceback to a caller; one line without secrets for the person who runs the server."""
    answer = site.post_modern("explode", text="my-password")
    assert answer.status_code == 500
    error = answer.json()["error"]
    said, reference = error["message"].rsplit(" ", 1)
    assert (error["code"], said) == (-32603, "Internal error: the log of the server has it under")
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"the HTTP request 'POST' '/mcp' failed, reference {reference}: RuntimeError at app.py:" in line
    assert "secret" not in line + caplog.text
    assert "my-password" not in line + caplog.text


def test_a_header_that_comes_twice_is_refused(site, tools):
    """Somebody before us may have looked at the other one."""
    headers = [*site.headers.items(), *tools.modern_headers("echo").items(), ("mcp-method", "other")]
    answer = site.client.post(
        site.url,
        content=json.dumps(tools.modern_message("echo")),
        headers=[*headers, ("content-type", "application/json")],
    )
    assert answer.status_code == 400
    assert "mcp-method" in answer.json()["error"]["message"]


def test_nonsense_instead_of_http_ends_the_connection(site):
    """The server goes on."""
    with site.connect() as connection:
        connection.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert connection.recv(12) in {b"HTTP/1.1 400", b""}
    assert site.post_modern("echo").status_code == 200


def test_requests_may_be_pipelined(site, tools):
    """Answers come in the order of the requests."""
    one = site.raw(tools.modern_message("echo"), **tools.modern_headers("echo"))
    with site.connect() as connection:
        connection.sendall(one * 5)
        received = b""
        while received.count(b"HTTP/1.1 200") < 5:
            piece = connection.recv(65536)
            assert piece
            received += piece
