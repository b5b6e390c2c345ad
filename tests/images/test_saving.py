"""States on disk: written whole or not at all, taken up again in another image. Real processes only."""

import json
import os
from pathlib import Path

import pytest

from gramercy.errors import ImageError
from gramercy.images.opening import open_image
from gramercy.images.sandbox import Confinement


@pytest.fixture
def other(words, tmp_path):
    """Another image of the same language, in a project of its own."""
    image = open_image(words.language, project=tmp_path)
    yield image
    image.close()


def test_a_saved_state_is_taken_up_by_another_image(image, other, words, tmp_path):
    """Images: save, and a saved state starts with all it had."""
    image.evaluate(words.define)
    image.evaluate(words.change.format(7))
    saved = tmp_path / "state"
    assert str(saved) in image.save(str(saved))
    image.evaluate(words.change.format(8))
    other.evaluate(words.six)
    assert str(saved) in other.restore(str(saved))
    assert other.evaluate(words.look).values == ["7"]
    assert image.evaluate(words.look).values == ["8"]


def test_a_restored_image_goes_back_and_survives_like_any_other(image, other, words, tmp_path):
    image.evaluate(words.define)
    saved = tmp_path / "state"
    image.save(str(saved))
    other.restore(str(saved))
    other.evaluate(words.change.format(9))
    assert other.evaluate(words.kill_self).error.type == "IMAGE-DIED"
    other.undo()
    assert other.evaluate(words.look).values == ["41"]
    assert other.preview(words.change.format(1)).ok
    assert other.evaluate(words.look).values == ["41"]


@pytest.mark.slow
def test_a_reset_leaves_the_restored_state_too(image, other, words, tmp_path):
    image.evaluate(words.define)
    saved = tmp_path / "state"
    image.save(str(saved))
    other.restore(str(saved))
    other.reset()
    assert not other.evaluate(words.look).ok


@pytest.mark.slow
def test_a_restored_state_can_be_saved_again(image, other, words, tmp_path):
    image.evaluate(words.define)
    image.save(str(tmp_path / "one"))
    other.restore(str(tmp_path / "one"))
    other.evaluate(words.change.format(5))
    other.save(str(tmp_path / "two"))
    other.restore(str(tmp_path / "two"))
    assert other.evaluate(words.look).values == ["5"]


@pytest.mark.slow
def test_what_was_undone_is_not_saved(image, other, words, tmp_path):
    image.evaluate(words.define)
    image.evaluate(words.change.format(7))
    image.undo()
    image.save(str(tmp_path / "state"))
    other.restore(str(tmp_path / "state"))
    assert other.evaluate(words.look).values == ["41"]


@pytest.mark.parametrize("content", [b"", b"{}", b"not a state", b'{"gramercy_journal":99', None])
def test_what_is_no_saved_state_is_refused_and_the_image_keeps_its_own(image, words, tmp_path, content):
    image.evaluate(words.define)
    path = tmp_path / "state"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError, match="state"):
        image.restore(str(path))
    assert image.evaluate(words.look).values == ["41"]


def test_a_core_that_does_not_start_leaves_the_image_as_it_was(image, words, tmp_path):
    if words.language != "sbcl":
        pytest.skip("only SBCL writes cores")
    image.evaluate(words.define)
    path = tmp_path / "state"
    path.write_bytes(b"LCBS" + bytes(4096))
    with pytest.raises(ImageError, match="does not start"):
        image.restore(str(path))
    assert image.evaluate(words.look).values == ["41"]


@pytest.mark.parametrize("place", ["missing/state", "."])
def test_a_place_that_cannot_be_written_is_told(image, tmp_path, place):
    with pytest.raises(ImageError, match="cannot be written"):
        image.save(str(tmp_path / place))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_state_does_not_take_the_place_of_a_device_or_a_pipe(image, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImageError, match="pipe cannot be written: it is no regular file"):
        image.save(str(tmp_path / "pipe"))
    assert [(each.name, each.is_fifo()) for each in tmp_path.iterdir()] == [("pipe", True)]


@pytest.mark.slow
def test_a_core_is_written_outside_the_project_and_nothing_beside_it(image, words, tmp_path):
    """The image itself may write nowhere but into its project. Nothing was evaluated before."""
    if words.language != "sbcl":
        pytest.skip("only SBCL writes cores")
    saved = tmp_path / "state"
    image.save(str(saved))
    assert saved.read_bytes()[:4] == b"LCBS"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_steps_that_go_otherwise_the_second_time_are_told(tmp_path):
    """A journal is run again: what it depends on may have changed."""
    note = tmp_path / "note.txt"
    note.write_text("here")
    image = open_image("python", project=tmp_path)
    try:
        image.evaluate(f"text = open({str(note)!r}).read()")
        image.evaluate("number = 1")
        image.save(str(tmp_path / "state"))
        note.unlink()
        told = image.restore(str(tmp_path / "state"))
        assert "2 steps" in told
        assert "step 1" in told
        assert "FileNotFoundError" in told
        assert image.evaluate("number").values == ["1"]
    finally:
        image.close()


def test_an_interrupted_step_is_left_out_when_the_others_are_run_again(tmp_path):
    image = open_image("python", project=tmp_path)
    try:
        image.evaluate("number = 1\nwhile True: number += 1", timeout=0.2)
        image.evaluate("other = 2")
        image.save(str(tmp_path / "state"))
        assert "had been interrupted" in image.restore(str(tmp_path / "state"))
        assert image.evaluate("other").values == ["2"]
    finally:
        image.close()


def test_the_states_before_a_replay_stay_within_reach(tmp_path):
    image = open_image("python", project=tmp_path)
    try:
        image.evaluate("x = 1")
        image.save(str(tmp_path / "state"))
        image.evaluate("x = 2")
        before = image.checkpoint("mine")
        image.restore(str(tmp_path / "state"))
        image.rollback(before.id)
        assert image.evaluate("x").values == ["2"]
    finally:
        image.close()


def test_a_journal_of_another_language_is_refused(tmp_path):
    path = tmp_path / "state"
    path.write_text(json.dumps({"gramercy_journal": 1, "language": "ruby", "steps": []}))
    image = open_image("python", project=tmp_path)
    try:
        with pytest.raises(ImageError, match="ruby"):
            image.restore(str(path))
    finally:
        image.close()


def test_a_failed_save_leaves_the_earlier_file(image, tmp_path):
    saved = Path(tmp_path / "state")
    saved.mkdir()
    (saved / "kept").write_text("yes")
    with pytest.raises(ImageError):
        image.save(str(saved))
    assert (saved / "kept").read_text() == "yes"


def test_a_journal_that_grows_too_long_is_not_kept_and_saving_says_why(tmp_path):
    """Memory is bounded: the forms of an image are not kept without end."""
    image = open_image("python", project=tmp_path)
    try:
        image.evaluate("x = 1")
        for _ in range(5):
            image.evaluate("y = '" + "a" * (4 * 1024 * 1024) + "'")
        past = image._lifecycle.past
        assert past is not None
        assert (past.previous, past.step.code) == (None, "")
        assert max(len(entry.code) for entry in image.history()) <= 100_000
        with pytest.raises(ImageError, match="more than the"):
            image.save(str(tmp_path / "state"))
    finally:
        image.close()


def test_a_state_of_another_kind_is_told_apart(image, words, tmp_path):
    path = tmp_path / "state"
    path.write_bytes(b'{"gramercy_journal": 1}' if words.language == "sbcl" else b"LCBS" + bytes(100))
    with pytest.raises(ImageError, match="python" if words.language == "sbcl" else "sbcl"):
        image.restore(str(path))


@pytest.mark.slow
def test_an_image_is_saved_right_after_an_error_with_restarts(image, words, tmp_path):
    """What the error offered lay on the stack, which is not saved."""
    assert image.evaluate(words.fail).error is not None
    image.evaluate(words.define)
    assert image.evaluate(words.fail).error is not None
    image.save(str(tmp_path / "state"))
    image.restore(str(tmp_path / "state"))
    assert image.evaluate(words.look).values == ["41"]


@pytest.mark.contract("trust.walls.saving")
@pytest.mark.slow
def test_a_link_at_a_name_that_can_be_guessed_is_not_followed(image, words):
    """Trust, control files: evaluated code plants links where the keeper is about to write."""
    image.evaluate(words.define)
    project = image.program().grants.project
    victim = project.parent / f"{project.name}-victim"
    victim.write_text("mine")
    for name in ("state", "state.partial"):
        (project / name).symlink_to(victim)
    image.save(str(project / "state"))
    assert victim.read_text() == "mine"
    assert not (project / "state").is_symlink()
    assert (project / "state.partial").is_symlink()
    assert not list(project.glob(".gramercy-*"))


@pytest.mark.contract("trust.walls.saving")
@pytest.mark.slow
def test_a_directory_that_leads_out_of_the_project_is_refused(image, words):
    """Trust, control files: the directory itself may be the link."""
    image.evaluate(words.define)
    project = image.program().grants.project
    outside = project.parent / f"{project.name}-outside"
    outside.mkdir()
    (project / "states").symlink_to(outside)
    with pytest.raises(ImageError, match="leads out of the project by a link"):
        image.save(str(project / "states" / "one"))
    assert not list(outside.iterdir())


def test_nothing_of_the_hosts_disk_but_the_project_can_be_written(image):
    """There was a directory for saved cores once, which evaluated code could fill."""
    if image.program().confinement is not Confinement.BUBBLEWRAP:
        pytest.skip("without namespaces temporary files are on the disk of the machine")
    mounts = Path(f"/proc/{image.processes()['zygote']}/mountinfo").read_text(encoding="utf-8").splitlines()
    writable = {line.split()[4] for line in mounts if line.split()[5].split(",")[0] == "rw"}
    grants = image.program().grants
    assert str(grants.project) in writable
    # In memory, with a size of their own.
    writable -= {"/tmp", "/dev/shm", *(place for place in writable if place.startswith("/dev/"))}
    assert writable <= {str(path) for path in (grants.project, *grants.writable)}
