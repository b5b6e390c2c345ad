"""The tour runs for real and shows what it promises."""

import os
import shutil
import subprocess
import sys
from time import monotonic

import pytest
from click.testing import CliRunner

from gramercy.images import sandbox
from gramercy.ui.cli.tour import tour

BOUND = 60
LONGEST_SECONDS = 15
PURE = (
    "implementation A   bound: True",
    'specified "string", implemented "integer"',
    "Unknown tool: count_wrods",
    "Did you mean count_words?",
    "nobody can be asked",
    "'milk\\nbread\\n'",
    'person sees   write_notes {"content": "bread\\n"}, asked again: what the call acts on has changed',
    "rule 1 says deny (read-only today)",
)
LIVE = (
    "[preview] nothing was changed",
    "=> 100",
    "The image is back at",
    "[ERROR] IMAGE-DIED",
    "The state before is back",
    "person types  a   Progress: 1/2 accepted, 1 rejected, 0 pending",
    "A person accepted hunk 2 of 2 and rejected hunk 1 (we sell in euros)",
    "eval_form              7   5       2       0      71%",
    "propose_file_edit      1   1       0       0     100%",
)


@pytest.mark.usefixtures("no_orphans")
def test_the_tour_plays_every_scene_in_time_and_leaves_nothing_behind(tmp_path, language):
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    # Making the core of a first start is not what is measured.
    subprocess.run(
        [sys.executable, "-m", "gramercy", "eval", "1", "--language", language],
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    started = monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "gramercy", "tour", "--language", language],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
        env={"PATH": os.defpath + ":/usr/local/bin", "TMPDIR": str(tmp_path), **kept},
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
    assert monotonic() - started < LONGEST_SECONDS
    assert [promised for promised in (*PURE, *LIVE) if promised not in done.stdout] == []
    assert done.stdout.count("=> 120") == 4


def test_without_a_sandbox_the_tour_says_so_and_plays_the_rest(monkeypatch):
    """People: no image runs unconfined unless the user says so."""
    monkeypatch.setattr(sandbox, "why_not", lambda confinement: f"there is no {confinement}")
    done = CliRunner().invoke(tour, [])
    assert done.exit_code == 0
    assert [promised for promised in PURE if promised not in done.stdout] == []
    assert "no sandbox works here" in done.stdout
    assert "count_words      3   3       0       0     100%" in done.stdout
    assert "=> 120" not in done.stdout


@pytest.mark.skipif(
    shutil.which("sbcl") is None, reason="the default without sbcl is tried by --language python"
)
def test_the_language_of_the_tour_is_lisp_where_there_is_one(gramercy):
    assert "(defun price" in gramercy("tour").stdout
