"""What a misspelt name is answered with."""

from gramercy.gram.suggestion import did_you_mean


def test_the_name_that_was_probably_meant_is_asked_about():
    assert did_you_mean("evalute", ["evaluate", "reset"], "there are two") == "did you mean 'evaluate'?"
    assert did_you_mean("evalute", iter(["evaluate"]), before="; ") == "; did you mean 'evaluate'?"


def test_a_word_that_resembles_nothing_gets_the_other_answer():
    assert did_you_mean("zzz", ["evaluate"], "there is evaluate", before="; ") == "there is evaluate"
    assert did_you_mean(7, ["evaluate"]) == ""
