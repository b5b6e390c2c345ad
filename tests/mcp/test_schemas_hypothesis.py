"""Every tool of a real server with real images, called with whatever its schema allows and forbids."""

from __future__ import annotations

import json

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

from gramercy.mcp.base import Peer
from gramercy.workbench.selection import TOOLSETS
from gramercy.workbench.serving import Service, open_server
from tests.support import said_besides, start_server

IMAGES = {"lisp": "sbcl", "snake": "python"}
# Known to one image or the other, so that not everything ends with a name that does not exist.
REAL = (
    "car", "json", "json.loads", "cl-user", "(defun f (x) (* x x))", "def f(x): return x * x", "f", "1", "x",
    "print('é' * 70000)", "(print #\\Nul)", '(error "~a" 1)', "raise SystemExit", "notes.txt", "../notes.txt",
    "(loop)", "while True: pass", "(sb-ext:exit :abort t)", "import os; os._exit(3)", "*", "\\", "(", "[",
    "\0", "\u202e", "x" * 100_000,
)  # fmt: skip
HOSTILE = {
    "lisp": ("(loop)", "(sb-ext:exit :abort t)", '(error "no")', "(make-list (expt 10 12))", "(read)"),
    "snake": ("while True: pass", "import os; os._exit(3)", "raise SystemExit", "input()", "1 << (1 << 60)"),
}
SIX = {"lisp": "(+ 1 2 3)", "snake": "1 + 2 + 3"}
EVALUATION_SECONDS = 1
# Nothing is evaluated twice for nothing: what takes an image long is asked less often.
QUICK, SLOW = 30, 6
SLOW_TOOLS = {
    *("reset-session", "load-system", "open_image", "checkpoint_image", "rollback_image", "undo_last"),
    *("save_state", "restore_state", "run_tests", "profile_form", "load_file"),
}


def listed_tools():
    """Return the tools as a client sees them; nothing is started for that."""
    images = tuple(f"{name}={language}" for name, language in IMAGES.items())
    server = open_server(Service(images=images, toolsets=tuple(TOOLSETS)))
    answer = server.engine.handle(
        Peer(version="2025-11-25"), b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    )
    assert isinstance(answer, bytes)
    return {tool["name"]: tool for tool in json.loads(answer)["result"]["tools"]}


TOOLS = listed_tools()
SCHEMAS = {name: tool["inputSchema"] for name, tool in TOOLS.items()}
DANGEROUS = {name for name, tool in TOOLS.items() if tool["_meta"]["gramercy/safety"] == "dangerous"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "notes.txt").write_text("one\ntwo\n")
    return folder


@pytest.fixture(scope="module")
def client(project):
    """Return a client without elicitation of a server with both images and all tools."""
    words = [f"--image={name}={language}" for name, language in IMAGES.items()]
    words += [f"--toolset={name}" for name in tuple(TOOLSETS)]
    server = start_server(*words, "--timeout", str(EVALUATION_SECONDS), cwd=project)
    server.initialize()
    yield server
    # One line, on how images are confined.
    said = said_besides(server)
    server.close()
    assert said == []


def allowed(schema):
    """Return a strategy for what a flat schema allows, often with names that mean something here."""
    kinds = {name: _values(name, kind) for name, kind in schema["properties"].items()}
    needed = {name: kinds.pop(name) for name in schema["required"]}
    return st.fixed_dictionaries(needed, optional=kinds)


def _values(name, kind):
    anything = from_schema(kind)
    if name == "image":
        return st.sampled_from([*IMAGES] * 3) | anything
    if name == "package":
        return st.sampled_from(["cl-user", "json"] * 2) | anything
    if kind["type"] == "string" and not {"enum", "pattern"} & set(kind):
        return st.sampled_from([text[: kind.get("maxLength")] for text in REAL]) | anything
    return anything


OTHER_TYPES: tuple[object, ...] = (
    *(None, True, 7, -1, 1.5, 10**30, "", "nothing like it", "x" * 200),
    *([], ["a"], {}),
)


@st.composite
def invalid_arguments(draw, schema):
    """Return what a schema forbids: wrong values, unknown names, missing ones."""
    arguments = dict(draw(allowed(schema)))
    for name in draw(st.lists(st.sampled_from([*schema["properties"], "unknown"]), min_size=1, max_size=3)):
        if name in schema["required"] and draw(st.booleans()):
            arguments.pop(name, None)
        else:
            arguments[name] = draw(st.sampled_from(OTHER_TYPES))
    assume(not jsonschema.Draft202012Validator(schema).is_valid(arguments))
    return arguments


def places_of(schema, arguments):
    """Return the names that an independent validator complains about."""
    for error in jsonschema.Draft202012Validator(schema).iter_errors(arguments):
        if error.validator == "required":
            yield error.message.split("'")[1]
        elif error.validator == "additionalProperties":
            yield "unknown"
        else:
            yield str(error.path[0])


def call(client, name, arguments):
    """Call a tool and return whether it failed, and its text."""
    answer = client.ask("tools/call", name=name, arguments=arguments)
    assert set(answer) == {"jsonrpc", "id", "result"}, answer
    result = answer["result"]
    wanted = TOOLS[name].get("outputSchema")
    assert set(result) - {"structuredContent"} == {"content", "isError"}
    # Whoever promises a schema keeps it; nobody else gives data.
    assert ("structuredContent" in result) is (wanted is not None and not result["isError"])
    if "structuredContent" in result:
        jsonschema.validate(result["structuredContent"], wanted)
    # What is told besides, as the number of an object, stands in a text of its own.
    assert {block["type"] for block in result["content"]} == {"text"}
    return result["isError"], result["content"][0]["text"]


def examples(name):
    return settings(
        max_examples=SLOW if name in SLOW_TOOLS else QUICK,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


def test_the_server_lists_the_tools_that_are_tried_here(client):
    """MCP server, checklist 6: deterministic listing; nothing is left out below."""
    found = client.ask("tools/list")["result"]["tools"]
    assert {tool["name"]: tool["inputSchema"] for tool in found} == SCHEMAS
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["additionalProperties"] is False
        assert {kind["type"] for kind in schema["properties"].values()} <= {
            *("string", "integer", "number", "boolean", "array")
        }


@pytest.mark.parametrize("name", SCHEMAS)
def test_allowed_arguments_are_never_an_error_of_the_protocol(client, project, name):
    """MCP server, judges: hypothesis-jsonschema over every tool's input schema, on real images."""

    @examples(name)
    @given(allowed(SCHEMAS[name]))
    def check(arguments):
        failed, text = call(client, name, arguments)
        assert not text.startswith("Invalid arguments"), arguments
        if name in DANGEROUS:
            assert failed
        # Characters are what is bounded; a client counts about four of them to a token.
        assert len(text) < 110_000

    check()
    assert client.ask("ping")["result"] == {}
    # Nothing was written; an empty .git keeps its place while images run.
    found = {file.name: file.read_text() for file in project.rglob("*") if file.is_file()}
    assert found == {"notes.txt": "one\ntwo\n"}


@pytest.mark.parametrize("name", SCHEMAS)
def test_forbidden_arguments_are_a_result_that_says_where(client, name):
    """MCP server, checklist 2: invalid arguments are isError with paths and reasons."""
    schema = SCHEMAS[name]

    @examples(name)
    @given(invalid_arguments(schema))
    @example({"unknown": 1})
    def check(arguments):
        failed, text = call(client, name, arguments)
        assert failed, arguments
        missed = [place for place in places_of(schema, arguments) if place not in text]
        assert missed == [], (arguments, text)

    check()


@pytest.mark.parametrize("name", ["eval_form", "preview_form"])
@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.slow
def test_code_that_never_ends_or_ends_everything_is_answered(client, name, image):
    """MCP server, judges: no crash and no hang, whatever is evaluated."""
    for code in HOSTILE[image]:
        failed, text = call(client, name, {"form": code, "image": image})
        # That a preview failed is its result.
        assert failed or (name == "preview_form" and "[ERROR]" in text), text
    assert call(client, "eval_form", {"form": SIX[image], "image": image}) == (False, "=> 6")


def takes_numbers(schema):
    return any(kind["type"] == "integer" for kind in schema["properties"].values())


@pytest.mark.parametrize("name", [name for name, schema in SCHEMAS.items() if takes_numbers(schema)])
def test_whole_numbers_may_be_written_with_a_point(client, name):
    """JSON Schema: 5.0 is an integer, and some clients write it so."""
    kinds = SCHEMAS[name]["properties"]
    numbers = {key: 5.0 for key, kind in kinds.items() if kind["type"] == "integer"}
    texts = {key: "1" for key in SCHEMAS[name]["required"] if kinds[key]["type"] == "string"}
    _, text = call(client, name, {**texts, **numbers})
    assert "Invalid arguments" not in text
    assert "float" not in text
    assert "5.0" not in text
