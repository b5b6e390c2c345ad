"""`gramercy run` as people meet it: real processes, a scripted model, exit codes, data on standard output."""

from __future__ import annotations

import json

import pytest

from tests.hello import GREETING, HELLO, TOOLS


@pytest.fixture
def agent(tmp_path):
    """Write helloAgent with its tools and the answers of its model; return a function for other answers."""

    def write(*answers, level="safe", text=HELLO):
        (tmp_path / "hello.gram").write_text(text)
        (tmp_path / "hello.py").write_text(TOOLS.replace("LEVEL", level))
        (tmp_path / "script.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in answers))
        return ("run", "hello.gram", "--journal", "memory")

    return write


def test_the_answer_is_on_stdout_and_the_calls_are_not(gramercy, agent):
    """Seed 004, invocation flow; the output is pattern-agent's: content, and the tools that were used."""
    done = gramercy(*agent(GREETING, "Hello, Ada!"), "Hello, I am Ada")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada!\n")
    assert '→ sayHello {"name":"Ada"}' in done.stderr
    assert "← Hello, Ada! Nice to meet you." in done.stderr
    assert "tools of hello.py" in done.stderr


def test_several_messages_are_turns_of_one_conversation(gramercy, agent):
    done = gramercy(*agent("one", "two"), "first", "second", "--json")
    told = json.loads(done.stdout)
    assert (told["content"], len(told["responses"])) == ("two", 2)
    said = [message["text"] for message in told["responses"][1]["conversation"]]
    assert said == ["first", "one", "second", "two"]


def test_a_message_is_read_from_standard_input(gramercy, agent):
    done = gramercy(*agent("done"), "-", "--json", stdin="what is\nthis?")
    conversation = json.loads(done.stdout)["responses"][0]["conversation"]
    assert conversation[0]["text"] == "what is\nthis?"


def test_a_call_that_nobody_can_approve_is_answered_and_told_by_the_exit_code(gramercy, agent):
    done = gramercy(*agent(GREETING, "I could not.", level="dangerous"), "Hello, I am Ada")
    assert (done.returncode, done.stdout) == (4, "I could not.\n")
    assert "nobody can be asked" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["  "], 2, "the message is empty"),
        (["hi", "--model", "gpt"], 2, "'gpt' is not of the form Provider/id"),
        (["hi", "--model", "Nonsense/x"], 3, "'Nonsense'"),
        (["hi", "--model", "Scripted/none.jsonl"], 3, "none.jsonl"),
        (["hi", "--agent", "helloAgnet"], 3, "did you mean 'helloAgent'"),
        (["hi", "--tools", "none.py"], 3, "none.py does not exist"),
    ],
)
def test_wrong_words_are_answered_with_one_clear_line(gramercy, agent, words, code, says):
    done = gramercy(*agent("never"), *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


def test_json_tells_an_error_and_what_was_done_before_it(gramercy, agent):
    done = gramercy(*agent("one"), "first", "second", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["error"]["type"], told["responses"][0]["content"]) == (
        1,
        "ProviderError",
        "one",
    )
