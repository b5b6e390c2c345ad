"""Jobs at the prompt: begun, listed, read and stopped by commands."""

import pytest

pytestmark = pytest.mark.usefixtures("no_orphans")

LOOPS = {"sbcl": "(loop (sleep 0.01))", "python": "while True: pass"}
ADDS = {"sbcl": "(+ 40 2)", "python": "40 + 2"}


@pytest.mark.contract("day.long.job.prompt")
def test_a_person_begins_lists_and_stops_a_job(gramercy, language):
    """What goes on in the background is to be seen by the person."""
    typed = f":background {LOOPS[language]}\n{ADDS[language]}\n:jobs\n:stop 1\n:jobs 1\n"
    done = gramercy("repl", "--language", language, stdin=typed)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "job 1 has begun: :jobs 1 shows what it prints, :stop 1 stops it"
    assert lines[1] == "=> 42"
    assert lines[2].startswith("job 1 (running, ")
    assert "[job 1 is stopped, " in done.stdout
    assert "While it runs no state is kept" in done.stderr


@pytest.mark.contract("day.long.job.prompt")
@pytest.mark.parametrize("typed", [":stop x", ":stop 7", ":jobs x", ":background", ":stop"])
def test_a_wrong_number_is_refused_in_one_line(gramercy, typed):
    """What, which, and what to try."""
    done = gramercy("repl", "--language", "python", stdin=f"{typed}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
