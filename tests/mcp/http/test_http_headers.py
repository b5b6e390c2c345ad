"""Headers that must agree with the body, and those that tell the era."""

import base64

import pytest

from gramercy.mcp.http.headers import find_repeated

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
        "list": {"type": "array", "items": {"properties": {"no": {"x-mcp-header": "No"}}}},
    },
}


def refused(answer, code=-32020):
    return answer.status_code == 400 and answer.json()["error"]["code"] == code and answer.json()["id"] == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"mcp-method": ""},
        {"mcp-method": "prompts/list"},
        {"mcp-method": "TOOLS/CALL"},
        {"mcp-name": ""},
        {"mcp-name": "other"},
        {"mcp-name": "ECHO"},
        {"mcp-protocol-version": ""},
        {"mcp-protocol-version": "2025-11-25"},
        {"mcp-protocol-version": "v999"},
        {"mcp-name": "=?base64?b3RoZXI=?="},
        {"mcp-name": "=?base64?ZWNobw?="},
        {"mcp-name": "=?base64?!!!?="},
    ],
)
def test_headers_that_contradict_the_body_are_a_mismatch(site, tools, changed):
    """2026-07-28, Server Validation."""
    headers = {**tools.modern_headers("tools/call", "echo"), **changed}
    assert refused(site.post(tools.modern_message("tools/call", name="echo"), **headers))


@pytest.mark.parametrize("written", ["  echo  ", "=?base64?ZWNobw==?="])
def test_a_name_may_have_spaces_around_it_or_be_encoded(site, tools, written):
    """2026-07-28, Value Encoding; RFC 9110, 5.5."""
    headers = {**tools.modern_headers("tools/call"), "mcp-name": written}
    with site.connect() as connection:
        connection.sendall(site.raw(tools.modern_message("tools/call", name="echo"), **headers))
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_a_name_beyond_ascii_must_be_encoded(site, tools):
    """2026-07-28, Value Encoding."""
    body = tools.modern_message("tools/call", name="grüße")
    encoded = base64.b64encode("grüße".encode()).decode()
    headers = tools.modern_headers("tools/call")
    assert site.post(body, **{**headers, "mcp-name": f"=?base64?{encoded}?="}).status_code == 200
    raw = [(k.encode(), v.encode()) for k, v in {**site.headers, **headers, "mcp-name": "grüße"}.items()]
    answer = site.client.post(site.url, json=body, headers=raw)
    assert refused(answer)


@pytest.mark.parametrize(
    ("method", "field"),
    [("prompts/get", "name"), ("resources/read", "uri"), ("tasks/get", "taskId"), ("tasks/cancel", "taskId")],
)
def test_the_name_header_repeats_what_the_method_is_about(site, tools, method, field):
    """2026-07-28, Standard Request Headers; the tasks extension, Routing Headers."""
    body = tools.modern_message(method, **{field: "this"})
    assert site.post(body, **tools.modern_headers(method, "this")).status_code == 200
    assert refused(site.post(body, **tools.modern_headers(method, "that")))
    assert refused(site.post(body, **tools.modern_headers(method)))


def test_header_names_are_read_in_any_case(site, tools):
    """RFC 9110, 5.1."""
    headers = {name.upper(): value for name, value in tools.modern_headers("echo").items()}
    assert site.post(tools.modern_message("echo"), **headers).status_code == 200


def test_a_newer_header_without_metadata_goes_to_the_engine_as_newer(start, tools):
    """2026-07-28: the era is told by the header, what is missing by the engine."""
    site = start()
    site.post(tools.message("server/discover"), **tools.modern_headers("server/discover"))
    assert len(site.toy.taken) == 1


def test_an_unknown_version_in_a_session_is_a_bad_request(site, tools):
    """2025-11-25, Protocol Version Header; the answer tells which versions there are."""
    session = {**site.initialize(), "mcp-protocol-version": "1999-01-01"}
    answer = site.post(tools.message("echo"), **session)
    assert refused(answer, -32022)
    assert "2026-07-28" in answer.json()["error"]["data"]["supported"]


def test_a_session_without_a_version_header_is_served(site, tools):
    """2025-03-26 has no such header."""
    session = site.initialize()
    assert site.post(tools.message("echo"), mcp_session_id=session["mcp-session-id"]).status_code == 200


def test_routing_headers_are_not_looked_at_in_the_older_era(site, tools):
    """They came with 2026-07-28."""
    session = site.initialize(mcp_method="whatever")
    assert site.post(tools.message("echo"), mcp_method="other", **session).status_code == 200


@pytest.mark.parametrize(
    "params", [3, [1], {"_meta": 3}, {"_meta": {"io.modelcontextprotocol/protocolVersion": 5}}]
)
def test_parameters_of_a_wrong_shape_do_not_break_the_transport(site, tools, params):
    """The engine says what is wrong with them."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    assert site.post(body, **tools.modern_headers("tools/call", "x")).status_code in {200, 400, 500}


@pytest.fixture
def mirrored(start, tools):
    site = start(schema_of=lambda name: SCHEMA if name == "query" else None)

    def call(arguments, **headers):
        body = tools.modern_message("tools/call", name="query", arguments=arguments)
        sent = {f"mcp-param-{name}": value for name, value in headers.items()}
        return site.post(body, **tools.modern_headers("tools/call", "query"), **sent)

    return call


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": None}, {}),
        ({"region": "us"}, {"region": "us"}),
        ({"region": "us"}, {"region": "=?base64?dXM=?="}),
        ({"region": "=?base64?dXM="}, {"region": "=?base64?dXM="}),
        ({"count": 42}, {"count": "42"}),
        ({"count": 42}, {"count": "42.0"}),
        ({"dry": True}, {"dry": "true"}),
        ({"where": {"zone": "a"}}, {"zone": "a"}),
        ({"list": [{"no": 1}]}, {}),
        ({"region": "us"}, {"region": "us", "unknown": "is nobody's business"}),
    ],
)
def test_mirrored_arguments_that_agree_are_served(mirrored, arguments, headers):
    """2026-07-28, Custom Headers from Tool Parameters."""
    assert mirrored(arguments, **headers).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "us"}, {}),
        ({"region": "us"}, {"region": "eu"}),
        ({}, {"region": "us"}),
        ({"region": "Hello"}, {"region": "=?base64?SGVsbG8?="}),
        ({"region": "Hello"}, {"region": "=?base64?SGVs!!!bG8=?="}),
        ({"count": 42}, {"count": "43"}),
        ({"count": 42}, {"count": "many"}),
        ({"dry": True}, {"dry": "True"}),
        ({"where": {"zone": "a"}}, {}),
    ],
)
def test_mirrored_arguments_that_differ_are_a_mismatch(mirrored, arguments, headers):
    """2026-07-28, Server Behavior for Custom Headers."""
    assert refused(mirrored(arguments, **headers))


def test_only_properties_reached_by_properties_are_mirrored():
    """2026-07-28, Schema Extension."""
    found = {(one.header, one.path) for one in find_repeated(SCHEMA)}
    assert found == {
        (b"mcp-param-region", ("region",)),
        (b"mcp-param-count", ("count",)),
        (b"mcp-param-dry", ("dry",)),
        (b"mcp-param-zone", ("where", "zone")),
    }
