"""The shell that ends an image with its host, where no namespace does, has nothing of the user's."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement, why_not
from tests.support import children_of

SECRET = "canary-of-the-watching-shell"


@pytest.mark.contract("answers.python.watched")
@pytest.mark.parametrize("confinement", [Confinement.BUBBLEWRAP, Confinement.LANDLOCK, Confinement.NONE])
def test_no_process_of_an_image_holds_the_variables_of_its_host(tmp_path, monkeypatch, confinement):
    """The environment of a process can be read by other processes of its user."""
    if lacking := why_not(confinement):
        pytest.skip(lacking)
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    before = children_of(os.getpid())
    program = ImageSettings("python", tmp_path, confinement).program
    with closing(LiveImage("test", program, timeout=60)) as image:
        assert image.evaluate("1").ok
        told = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in children_of(os.getpid()) - before}
        assert told
        assert [pid for pid, variables in told.items() if SECRET.encode() in variables] == []
