"""Keys behind an escape, and values of options in a list of words, are masked too."""

from __future__ import annotations

import json

import pytest

from gramercy.journal.masking import Masking
from gramercy.journal.texts import masked

KEYS = ("sk-ant-api03-" + "a1B2" * 20, "ghp_" + "a1B2c3" * 6, "AKIAIOSFODNN7EXAMPL3")


@pytest.mark.contract("trust.beyond.escapes")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("before", ["\n", "\t", "\r\n", "\x1b[32m", "\x1b[m", "é"])
def test_a_key_behind_an_escape_is_masked_however_deep_in_json(key, before):
    """Traces and lists of sessions show arguments as the JSON that a model wrote."""
    text = f"x{before}{key}"
    for _ in range(3):
        assert key not in masked(text)
        text = json.dumps({"content": text}, ensure_ascii=False)


@pytest.mark.contract("trust.beyond.escapes")
@pytest.mark.parametrize("text", ["task-force-of-the-year-2026", "disk-usage-of-the-machine", "farm-key-0"])
def test_words_that_end_like_the_start_of_a_key_are_kept(text):
    """A mask that hides what happened is no help."""
    assert masked(text) == text


@pytest.mark.contract("trust.beyond.options")
def test_the_value_of_an_option_in_a_list_of_words_is_masked():
    """Tools that run commands take them as lists."""
    words = ["mysql", "--password", "zebra-9x", "--token-file", "tokens.txt", "-v", "zebra"]
    kept = json.dumps({"arguments": {"command": words}})
    (text,) = Masking()("run", [kept])
    assert json.loads(text)["arguments"]["command"] == [*words[:2], "…", *words[3:]]
