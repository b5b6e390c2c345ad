"""The tour runs for real and shows what it promises."""

import subprocess
import sys

BOUND = 60


def test_the_tour_runs_every_scene_and_leaves_nothing_behind(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "gramercy", "tour"],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
    for promised in (
        "implementation A   bound: True",
        'specified "string", implemented "integer"',
        "Did you mean count_words?",
        "nobody can be asked",
        "'milk\\nbread\\n'",
        "asked again: what the call acts on has changed",
        "rule 1 says deny (read-only today)",
        "count_words      3   3       0       0     100%",
    ):
        assert promised in done.stdout
