"""Seed 003, tools/call, word by word: a real server, a real Lisp image, bytes on pipes."""

from __future__ import annotations

import json
import re
import shutil
import sys

import pytest

from gramercy.testing.clients import StdioClient

pytestmark = pytest.mark.skipif(
    not shutil.which("sbcl"), reason="sbcl is not installed: apt-get install sbcl"
)
INVALID_PARAMS = -32602
OUTPUT = '(progn (format t "Hello, World!~%") (format *error-output* "Warning: deprecated function~%") nil)'
EXAMPLE = {"jsonrpc": "2.0", "id": 3, "method": "tools/call"}


def opened(project, *options):
    command = [sys.executable, "-m", "gramercy", "serve", "--image", "sbcl", "--project", str(project)]
    client = StdioClient(*command, *options)
    client.initialize()
    return client


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Open one server for the tests that only look at texts."""
    made = opened(tmp_path_factory.mktemp("project"))
    yield made
    made.hang_up()
    made.close()


@pytest.fixture
def strict_client(tmp_path):
    made = opened(tmp_path, "--strict")
    yield made
    made.hang_up()
    made.close()


def evaluate(client, code):
    return client.call("evaluate-lisp", code=code)


@pytest.mark.contract(
    "003.request.method",
    "003.request.object",
    "003.request.name",
    "003.request.arguments",
    "003.request.example",
    "003.success.envelope",
    "003.success.value",
    "003.success.no-error",
)
def test_the_example_request_is_answered_as_the_example_says(client):
    """Seed 003, Request and Success Response Format."""
    client.send(
        json.dumps(
            EXAMPLE | {"params": {"name": "evaluate-lisp", "arguments": {"code": "(+ 1 2 3)"}}}
        ).encode()
        + b"\n"
    )
    assert client.message() == {
        "jsonrpc": "2.0",
        "id": 3,
        "result": {"content": [{"type": "text", "text": "=> 6"}], "isError": False},
    }


@pytest.mark.contract("003.response.object", "003.response.content", "003.response.type", "003.response.text")
@pytest.mark.parametrize("code", ["(+ 1 2 3)", "(values)", '(error "x")', "(list", OUTPUT])
def test_a_result_is_a_list_of_texts_whatever_the_code_does(client, code):
    """Seed 003, Response."""
    content = evaluate(client, code)["content"]
    assert content
    assert [(set(item), item["type"], type(item["text"])) for item in content] == [
        ({"type", "text"}, "text", str)
    ] * len(content)


@pytest.mark.contract("003.response.is-error")
@pytest.mark.parametrize(("code", "fails"), [("1", False), ("(car 1)", True), (")", True)])
def test_is_error_tells_whether_the_tool_failed(client, code, fails):
    """Seed 003, Response."""
    assert evaluate(client, code)["isError"] is fails


@pytest.mark.contract("003.request.required", "003.protocol-error.envelope", "decision.08.wrong-shape-mcp")
@pytest.mark.parametrize(
    "params",
    [
        {"arguments": {"code": "1"}},
        {"name": 3, "arguments": {"code": "1"}},
        {"name": "evaluate-lisp", "arguments": "1"},
        {"name": "evaluate-lisp", "arguments": ["1"]},
        {"name": "evaluate-lisp", "arguments": None},
    ],
)
def test_a_call_of_wrong_shape_is_an_error_under_its_id_without_a_result(client, params):
    """Seed 003, Request and Protocol Errors."""
    answer = client.ask("tools/call", **params)
    assert answer["error"]["code"] == INVALID_PARAMS
    assert "result" not in answer
    assert answer["jsonrpc"] == "2.0"


@pytest.mark.contract("003.request.required")
def test_a_call_without_the_arguments_that_its_tool_needs_says_which(client):
    """Seed 003, Request: to the model, since it is the one who can mend it."""
    result = client.ask("tools/call", name="evaluate-lisp")["result"]
    assert result["isError"]
    fault = result["content"][0]["text"].splitlines()[1]
    assert fault.startswith("- code: expected string")
    assert fault.endswith("received nothing: it is required")


@pytest.mark.contract("003.values.one-line-each", "003.values.no-error")
def test_each_value_has_a_line_of_its_own(client):
    """Seed 003, Multi-Value Results."""
    assert evaluate(client, "(floor 10 3)") == {
        "content": [{"type": "text", "text": "=> 3\n=> 1"}],
        "isError": False,
    }


@pytest.mark.contract(
    "003.output.stdout",
    "003.output.stderr",
    "003.output.blank-line",
    "003.output.value-last",
    "003.output.example",
)
def test_the_example_with_output_is_produced_character_by_character(client):
    """Seed 003, Results with Output."""
    assert evaluate(client, OUTPUT) == {
        "content": [
            {
                "type": "text",
                "text": "[stdout]\nHello, World!\n\n[stderr]\nWarning: deprecated function\n\n=> NIL",
            }
        ],
        "isError": False,
    }


@pytest.mark.contract(
    "003.tool-error.is-result",
    "003.tool-error.type",
    "003.tool-error.message",
    "003.tool-error.backtrace",
    "003.tool-error.example",
)
def test_the_example_of_the_undefined_function_is_produced_in_this_form(client):
    """Seed 003, Tool Execution Errors."""
    answer = client.ask("tools/call", name="evaluate-lisp", arguments={"code": "(nonexistent-function)"})
    assert "error" not in answer
    assert answer["result"]["isError"] is True
    lines = answer["result"]["content"][0]["text"].splitlines()
    assert lines[0] == "[ERROR] UNDEFINED-FUNCTION"
    assert "NONEXISTENT-FUNCTION is undefined." in lines[1]
    assert lines[2:4] == ["", "[Backtrace]"]
    assert lines[4].startswith("0: (")
    frames = [line for line in lines[4:] if line[:1].isdigit()]
    assert [line.partition(":")[0] for line in frames] == [str(number) for number in range(len(frames))]


@pytest.mark.contract("003.protocol-error.unknown-tool", "decision.08.unknown-mcp")
def test_an_unknown_tool_is_a_protocol_error(client):
    """Seed 003, Protocol Errors."""
    answer = client.ask("tools/call", name="invalid-tool-name", arguments={})
    assert answer["error"]["code"] == INVALID_PARAMS
    assert answer["error"]["message"] == "Unknown tool: invalid-tool-name"
    assert "result" not in answer


@pytest.mark.contract("003.protocol-error.invalid-arguments", "decision.08.strict-switch")
def test_invalid_arguments_are_a_protocol_error_under_the_strict_switch(strict_client):
    """Seed 003, Protocol Errors; by default the model gets a result that it can repair the call with."""
    answer = strict_client.ask("tools/call", name="evaluate-lisp", arguments={"code": 3})
    assert answer["error"]["code"] == INVALID_PARAMS
    assert "code" in answer["error"]["message"]
    assert "result" not in answer


@pytest.mark.contract("decision.04.hyphens-on-the-wire")
def test_the_session_tools_keep_their_hyphens_on_the_wire(client):
    """Decision 4."""
    names = {tool["name"] for tool in client.ask("tools/list")["result"]["tools"]}
    assert {"evaluate-lisp", "list-definitions", "reset-session", "load-system"} <= names
    assert not {"evaluate_lisp", "list_definitions", "reset_session", "load_system"} & names


@pytest.mark.contract("decision.15.elsewhere")
def test_a_tool_of_another_toolset_is_unknown_and_the_message_says_where_it_is(client):
    """Decision 15: only what is listed can be called."""
    answer = client.ask("tools/call", name="eval_form", arguments={"form": "1"})
    assert answer["error"]["code"] == INVALID_PARAMS
    first, second = answer["error"]["message"].splitlines()
    assert first == "Unknown tool: eval_form"
    assert second.endswith("toolset core: start the server with --toolset default --toolset core")


@pytest.mark.contract("decision.16.arguments")
def test_a_call_without_arguments_is_one_with_empty_arguments(client):
    """Decision 16; a tool that needs some answers with its faults."""
    assert client.ask("tools/call", name="list-definitions")["result"]["isError"] is False
    faults = client.ask("tools/call", name="evaluate-lisp")["result"]
    assert faults["isError"] is True
    assert "code" in faults["content"][0]["text"]


@pytest.mark.contract("decision.18.capture-time", "decision.18.system-name", "decision.18.singular")
def test_what_clients_of_other_servers_send_is_taken_and_told(client):
    """Decision 18."""

    def text(name, **arguments):
        return client.call(name, **arguments)["content"][0]["text"]

    value, _, time = text("evaluate-lisp", **{"code": "(+ 1 2)", "capture-time": True}).partition("\n\n")
    assert value == "=> 3"
    assert re.fullmatch(r"\[time\] [0-9.]+ ms, as capture-time asks", time)
    assert text("evaluate-lisp", **{"code": "(+ 1 2)", "capture-time": False}) == "=> 3"
    loaded = text("load-system", **{"system-name": "asdf"})
    assert loaded.startswith("Loading system: asdf\nLoaded: asdf")
    assert loaded.endswith("\n\nsystem-name was taken as system.")
    assert text("list-definitions", type="macro") == "No macros.\n\ntype macro was taken as macros."
    assert "system" in text("load-system", system_nam="asdf")


@pytest.mark.contract("003.letter.exact-texts")
def test_what_is_told_besides_stands_in_a_text_of_its_own(client):
    """Seed 003, evaluate-lisp: also with the default tools the first text is the contract's."""
    value = evaluate(client, "(list 1 2)")
    assert [block["type"] for block in value["content"]] == ["text", "text"]
    assert value["content"][0]["text"] == "=> (1 2)"
    assert re.fullmatch(r"\[object \d+\]", value["content"][1]["text"])
    error = evaluate(client, "(nonexistent-function)")
    first, second = (block["text"] for block in error["content"])
    assert first.startswith("[ERROR] UNDEFINED-FUNCTION\nThe function ")
    assert "keeps this moment" not in first
    assert re.match(r"m\d+ keeps this moment: error_frames", second)
