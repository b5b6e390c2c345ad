"""`gramercy images`: look at the images of every serving process."""

from __future__ import annotations

import inspect
import json
import os
import socket
from time import monotonic

import pytest

from gramercy import Executor, Registry
from gramercy.journal.bells import Address
from gramercy.journal.opening import open_journal
from gramercy.testing.image import MemoryImage
from gramercy.workbench import control
from gramercy.workbench.control import SUFFIX, Control, Desk


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Return the run directory of the user's own journal."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    journal = open_journal()
    journal.close()
    return journal.run_directory


@pytest.fixture
def served(directory):
    """Serve an image in which something was evaluated."""
    image = MemoryImage("python", name="garden")
    image.evaluate("beds = 3\nrows = 4")
    control = Control(
        directory, Desk(Executor(Registry()), lambda: [image], lambda: "/home/ada").operations()
    )
    yield image
    control.close()


@pytest.mark.usefixtures("served")
@pytest.mark.contract("journal.desk.images")
def test_the_images_of_serving_processes_are_listed(inside):
    done = inside("images")
    assert done.returncode == 0
    head, row = done.stdout.splitlines()
    assert head.split() == ["process", "image", "language", "state", "memory", "states", "project", "what"]
    assert row.split()[:4] == [str(os.getpid()), "garden", "python", "idle"]
    assert row.endswith("last: beds = 3…")


@pytest.mark.usefixtures("served")
def test_all_about_one_image_is_told_by_its_name(inside):
    done = inside("images", "garden")
    assert f"garden (python), idle, in process {os.getpid()}" in done.stdout
    assert "| beds = 3\n| rows = 4\n" in done.stdout
    assert "(now)" in done.stdout


def test_programs_get_all_that_is_known(inside, served):
    [process] = json.loads(inside("images", "--json").stdout)
    assert (process["pid"], process["project"]) == (os.getpid(), "/home/ada")
    [view] = process["images"]
    assert view["epoch"] == served.look().epoch
    assert view["latest"]["code"] == "beds = 3\nrows = 4"


@pytest.mark.usefixtures("served")
def test_an_image_that_nobody_serves_is_told(inside):
    done = inside("images", "orchard")
    assert done.returncode == 3
    assert "no process serves an image orchard" in done.stderr
    assert inside("images", "--process", "1").stderr == "no process serves an image with this journal\n"


def test_a_process_that_was_killed_is_told_once(inside, directory):
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as left, Address(directory / f"4711-00000000{SUFFIX}") as address:
        left.bind(address)
    assert "process 4711 serves no longer" in inside("images").stderr
    assert inside("images").stderr == "no process serves an image with this journal\n"


@pytest.mark.contract("trust.answers.mute")
@pytest.mark.usefixtures("served")
def test_processes_that_say_nothing_are_waited_for_together(inside, directory, monkeypatch):
    """Forty of them, one after the other, would take as many times as long."""
    assert inspect.signature(control.asked_at_once).parameters["seconds"].default <= 5.0
    monkeypatch.setattr(control.asked_at_once, "__kwdefaults__", {"seconds": 1.0})
    mute = []
    for number in range(40):
        mute.append(socket.socket(socket.AF_UNIX))
        with Address(directory / f"{90_000 + number}-00000000{SUFFIX}") as address:
            mute[-1].bind(address)
        mute[-1].listen()
    began = monotonic()
    done = inside("images")
    assert monotonic() - began < 20
    assert "garden" in done.stdout
    assert done.stderr.count("does not answer") == 40
    for each in mute:
        each.close()
