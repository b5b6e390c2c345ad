"""OAuth resource-server mode, with a real key set and real signatures."""

import asyncio
import base64
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from gramercy.mcp.http import OAuthGate, OAuthSettings, ServingError
from gramercy.mcp.http.auth import Caller
from gramercy.tools.safety import Safety

RESOURCE = "https://tools.example.com/mcp"
ISSUER = "https://login.example.com"
NOW = 1_800_000_000


def public(key, name, algorithm):
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": name, "alg": algorithm, "use": "sig"}


@pytest.fixture(scope="module")
def rsa_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def other_key():
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def key_set(rsa_key):
    return {"keys": [public(rsa_key, "one", "RS256"), {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}]}


@pytest.fixture(scope="module")
def make(rsa_key):
    def making(key=None, algorithm="RS256", kid="one", **changed):
        claims = {
            "iss": ISSUER,
            "aud": RESOURCE,
            "sub": "ada",
            "exp": 4_000_000_000,
            "scope": "gramercy:cautious",
        }
        claims = {name: value for name, value in {**claims, **changed}.items() if value is not None}
        return jwt.encode(claims, key or rsa_key, algorithm=algorithm, headers={"kid": kid})

    return making


@pytest.fixture
def gate(key_set):
    return OAuthGate(OAuthSettings(resource=RESOURCE, issuer=ISSUER, keys=key_set))


def admit(gate, token):
    return asyncio.run(gate.admit(f"Bearer {token}".encode()))


@pytest.mark.parametrize(
    ("scope", "ceiling"),
    [
        ("gramercy:safe", "safe"),
        ("gramercy:cautious", "cautious"),
        ("gramercy:safe gramercy:dangerous other", "dangerous"),
        ("other gramercy:safe", "safe"),
    ],
)
def test_scopes_give_ceilings(gate, make, scope, ceiling):
    """The broadest scope counts."""
    assert admit(gate, make(scope=scope)) == Caller("ada", ceiling)


def test_scopes_may_come_as_a_list(gate, make):
    """Some authorization servers write scp."""
    assert admit(gate, make(scope=None, scp=["gramercy:safe"])) == Caller("ada", Safety.SAFE)


@pytest.mark.parametrize("scope", ["", "other", "gramercy", "Gramercy:Safe", None, 7])
def test_a_token_without_a_scope_of_ours_is_forbidden(gate, make, scope):
    """2026-07-28, Runtime Insufficient Scope Errors."""
    refusal = admit(gate, make(scope=scope))
    assert refusal.status == 403
    assert 'error="insufficient_scope"' in refusal.challenge
    assert 'scope="gramercy:safe"' in refusal.challenge


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": 1_600_000_000},
        {"exp": None},
        {"aud": "https://other.example.com/mcp"},
        {"aud": None},
        {"aud": [RESOURCE + "/more", ISSUER]},
        {"iss": "https://evil.example.com"},
        {"iss": None},
        {"sub": None},
        {"nbf": 3_900_000_000},
        {"kid": "unknown"},
        {"kid": "secret"},
    ],
)
def test_tokens_for_others_or_other_times_are_refused(gate, make, changed):
    """2026-07-28, Token Handling: expired, not yet valid, another audience, another issuer, unknown keys."""
    refusal = admit(gate, make(**changed))
    assert refusal.status == 401
    assert 'error="invalid_token"' in refusal.challenge


def test_an_unsigned_token_is_refused(gate, make):
    """Algorithm none."""
    head = base64.urlsafe_b64encode(b'{"alg":"none","kid":"one"}').rstrip(b"=").decode()
    body = make().split(".")[1]
    for end in (".", "", "." + make().split(".")[2]):
        assert admit(gate, f"{head}.{body}{end}").status == 401


def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(gate, make, rsa_key):
    """Algorithm confusion: HS256 with what everybody knows."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    secret = rsa_key.public_key().public_bytes(serialization.Encoding.PEM, form)
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one"}').rstrip(b"=").decode()
    signed = f"{head}.{make().split('.')[1]}"
    signature = hmac.digest(secret, signed.encode(), "sha256")
    token = f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert admit(gate, token).status == 401


def test_a_token_of_another_key_is_refused(gate, make, other_key):
    """The right name on the wrong key."""
    assert admit(gate, make(key=other_key, algorithm="ES256")).status == 401
    tampered = make()
    head, body, signature = tampered.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    forged = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "eve"}).encode()).rstrip(b"=").decode()
    assert admit(gate, f"{head}.{forged}.{signature}").status == 401


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "." * 5, "e30.e30.e30", "x" * 20_000, "\xff\xfe"])
def test_what_is_no_token_is_refused(gate, token):
    """Nonsense never becomes an error of ours."""
    assert admit(gate, token).status == 401


def test_an_audience_may_end_with_a_slash(gate, make):
    """2026-07-28, Canonical Server URI."""
    assert isinstance(admit(gate, make(aud=[RESOURCE + "/"])), Caller)


def test_a_remembered_token_expires(key_set, make):
    """What was checked once is not believed for ever."""
    now = [NOW]
    gate = OAuthGate(OAuthSettings(resource=RESOURCE, issuer=ISSUER, keys=key_set), clock=lambda: now[0])
    token = make(exp=4_000_000_000)
    assert isinstance(admit(gate, token), Caller)
    assert len(gate._seen) == 1
    gate._seen[next(iter(gate._seen))] = (Caller("ada"), NOW + 5)
    now[0] += 10
    assert admit(gate, token) == Caller("ada", Safety.CAUTIOUS)


class Issuer:
    """The key set of an authorization server at an address, and how often it was asked for."""

    def __init__(self, document):
        self.document = document
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                body = json.dumps(outer.document).encode()
                self.send_response(302 if outer.document is None else 200)
                self.send_header("location", "file:///etc/passwd")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"


@pytest.fixture
def issuer(key_set):
    found = Issuer(key_set)
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.server.shutdown()
    thread.join(10)
    found.server.server_close()


def test_keys_are_fetched_once_and_again_when_a_new_one_appears(issuer, make, other_key, key_set):
    """Rotation of keys; strangers cannot make us ask for every request."""
    now = [NOW]
    settings = OAuthSettings(resource=RESOURCE, issuer=ISSUER, keys=issuer.url)
    gate = OAuthGate(settings, clock=lambda: now[0])
    for number in range(3):
        assert isinstance(admit(gate, make(sub=f"user {number}")), Caller)
    assert issuer.asked == 1
    new = make(key=other_key, algorithm="ES256", kid="two")
    for _ in range(5):
        assert admit(gate, new).status == 401
    assert issuer.asked == 1
    issuer.document = {"keys": [*key_set["keys"], public(other_key, "two", "ES256")]}
    now[0] += 11
    assert isinstance(admit(gate, new), Caller)
    assert issuer.asked == 2


def test_keys_are_not_looked_for_elsewhere(issuer, make):
    """A redirection is not followed; the caller is told to come back."""
    issuer.document = None
    gate = OAuthGate(OAuthSettings(resource=RESOURCE, issuer=ISSUER, keys=issuer.url))
    assert admit(gate, make()).status == 503


def test_keys_may_be_in_a_file(tmp_path, key_set, make):
    """For machines without a way out."""
    (tmp_path / "keys.json").write_text(json.dumps(key_set))
    gate = OAuthGate(OAuthSettings(resource=RESOURCE, issuer=ISSUER, keys=str(tmp_path / "keys.json")))
    assert isinstance(admit(gate, make()), Caller)


@pytest.mark.parametrize(
    "changed",
    [
        {"keys": "http://login.example.com/keys"},
        {"keys": "/nowhere/at/all"},
        {"resource": "tools.example.com"},
        {"resource": RESOURCE + "#part"},
        {"algorithms": ("HS256",)},
        {"algorithms": ("none",)},
    ],
)
def test_settings_that_are_not_safe_are_refused(key_set, changed):
    """Keys over plain HTTP, shared secrets, no signature."""
    with pytest.raises(ServingError):
        OAuthGate(OAuthSettings(**{"resource": RESOURCE, "issuer": ISSUER, "keys": key_set, **changed}))


def test_clients_find_the_authorization_server(start, tools, gate, make):
    """RFC 9728: the challenge names the metadata, the metadata names the server; then a token is enough."""
    site = start(gate=gate)
    refused = site.post(tools.modern_message("whoami"), **tools.modern_headers("whoami"))
    assert refused.status_code == 401
    challenge = refused.headers["www-authenticate"]
    assert (
        'resource_metadata="https://tools.example.com/.well-known/oauth-protected-resource/mcp"' in challenge
    )
    base = site.url.removesuffix("/mcp")
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
        found = site.client.get(base + path).json()
        assert found["resource"] == RESOURCE
        assert found["authorization_servers"] == [ISSUER]
        assert found["scopes_supported"] == ["gramercy:safe", "gramercy:cautious", "gramercy:dangerous"]
    site.headers["authorization"] = f"Bearer {make()}"
    assert site.post_modern("whoami").json()["result"] == {"principal": "ada", "ceiling": "cautious"}


def test_a_session_follows_the_newest_token_and_belongs_to_its_subject(start, tools, gate, make):
    """Scopes can grow and shrink; a session id is not a key."""
    site = start(gate=gate)
    session = site.initialize(authorization=f"Bearer {make()}")
    less = f"Bearer {make(scope='gramercy:safe')}"
    answer = site.post(tools.message("whoami"), authorization=less, **session)
    assert answer.json()["result"]["ceiling"] == "safe"
    stolen = site.post(tools.message("whoami"), authorization=f"Bearer {make(sub='eve')}", **session)
    assert stolen.status_code == 404


@pytest.mark.contract("trust.approval.subjects")
def test_subjects_that_begin_alike_are_still_two(gate, make):
    """Trust, 10: on the old code the first 200 characters named the principal."""
    alike = "x" * 250
    names = [admit(gate, make(sub=alike + end)).principal for end in ("a", "b", "a")]
    assert names[0] != names[1]
    assert names[0] == names[2]
    assert all(len(name) <= 200 for name in names)
    assert admit(gate, make(sub="ada")).principal == "ada"
