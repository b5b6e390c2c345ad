"""The official clients of Python and TypeScript name the folder that a server works in, in both eras."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SERVER = (sys.executable, "-m", "gramercy", "serve", "--image", "python")


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("client", ["python", "typescript"])
def test_the_folder_of_an_official_client_is_the_project(judge, tmp_path, client, era):
    """Starting anywhere: the server uses the client's roots when there are any."""
    words = (era, tmp_path.as_uri(), "/", *SERVER)
    if client == "python":
        done = judge("bin/python", HERE / "folders.py", *words)
    else:
        source = (HERE / "folders.mjs").read_text("utf-8")
        done = judge("bin/node", "--input-type=module", "-", *words, stdin=source)
    assert done.returncode == 0, done.stderr[-3000:]
    (value, note), again = json.loads(done.stdout)
    assert again == [value] == [f"=> '{tmp_path}'"]
    assert note.startswith("The server was not started in a project: / cannot be the project")
    assert f"The project is {tmp_path}, the folder that the client names (roots)." in note
