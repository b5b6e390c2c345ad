"""`gramercy config show`: what holds for the images of a project, and where it comes from."""

import json
import tomllib
from pathlib import Path

import pytest

from gramercy.workbench.settings import KEYS, Settings, read_environment, read_settings, variable

OWN = 'image = "python"\ntimeout = 30\nnetwork = "open"\nenv = { MODE = "test", HOME = "/" }\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a project with a file, and a user who has one too."""
    for key in KEYS:
        monkeypatch.delenv(variable(key), raising=False)
    garden = tmp_path / "garden"
    garden.mkdir()
    (garden / "gramercy.toml").write_text(OWN)
    user = tmp_path / "config" / "gramercy" / "gramercy.toml"
    user.parent.mkdir(parents=True)
    user.write_text(f'timeout = 90\n[projects."{garden}"]\nmemory = 700\nenv = ["GARDEN_TOKEN"]\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GARDEN_TOKEN", "very secret")
    return garden


def shown(inside, *words):
    done = inside("config", "show", "--project", "garden", "--json", *words)
    assert done.returncode == 0
    report = json.loads(done.stdout)
    return {each["key"]: (each["value"], each["origin"]) for each in report["settings"]}, report


@pytest.mark.contract("day.prompt.origin")
def test_every_setting_has_its_value_and_its_origin(inside, project, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAMERCY_PUBLISH", "8080,81:82")
    found, report = shown(inside, "--files", "read")
    own, user = str(project / "gramercy.toml"), str(tmp_path / "config" / "gramercy" / "gramercy.toml")
    special = f'{user} [projects."{project}"]'
    assert list(found) == list(KEYS)
    assert found["image"] == (["python"], [own])
    assert found["timeout"] == (30.0, [own])
    assert found["memory"] == (700, [special])
    assert found["publish"] == ([8080, "81:82"], ["GRAMERCY_PUBLISH"])
    assert found["files"] == ("read", ["--files"])
    assert found["network"] == ("none", ["default"])
    assert found["python"] == (None, ["default"])
    assert found["env"] == (
        {"MODE": "test", "GARDEN_TOKEN": "(from your environment)"},
        [own, special],
    )
    assert report["files"] == [user, own]
    assert (report["project"], "very secret" in str(report)) == (str(project), False)


@pytest.mark.contract("day.prompt.origin")
def test_what_the_project_may_not_say_is_told_as_refused(inside, project):
    _, report = shown(inside)
    refused = {each["key"]: each for each in report["refused"]}
    assert set(refused) == {"network", "env"}
    assert refused["network"]["value"] == "open"
    assert refused["network"]["where"] == str(project / "gramercy.toml")
    done = inside("config", "show", "--project", "garden", "--origin")
    assert 'gramercy.toml: network = "open", since a file of the project may not' in done.stdout
    assert done.stderr == ""


@pytest.mark.contract("day.prompt.environment")
def test_the_environment_counts_more_than_files_and_less_than_options(inside, project, monkeypatch):
    del project
    monkeypatch.setenv("GRAMERCY_TIMEOUT", "20.5")
    monkeypatch.setenv("GRAMERCY_IMAGE", "sbcl,helper=python")
    found, _ = shown(inside)
    assert found["timeout"] == (20.5, ["GRAMERCY_TIMEOUT"])
    assert found["image"] == (["sbcl", "helper=python"], ["GRAMERCY_IMAGE"])
    found, _ = shown(inside, "--timeout", "10")
    assert found["timeout"] == (10.0, ["--timeout"])


@pytest.mark.contract("day.prompt.environment")
def test_an_evaluation_takes_its_settings_from_the_environment(gramercy):
    code = "import os; os.environ['MODE']"
    done = gramercy("eval", code, GRAMERCY_IMAGE="python", GRAMERCY_ENV="MODE=wild")
    assert (done.returncode, done.stdout, done.stderr) == (0, "'wild'\n", "")


def test_what_is_wrong_in_the_environment_is_one_line_and_the_rest_holds(inside, project, monkeypatch):
    del project
    monkeypatch.setenv("GRAMERCY_TIMEOUT", "soon")
    monkeypatch.setenv("GRAMERCY_MEMORY", "1")
    monkeypatch.setenv("GRAMERCY_FILES", "read")
    found, report = shown(inside)
    assert (found["timeout"][0], found["files"][0]) == (30.0, "read")
    told = [line for line in report["remarks"] if line.startswith("the environment: ")]
    assert [line.split()[2] for line in told] == ["memory", "timeout"]


def test_what_is_shown_is_toml_that_says_the_same(inside, project):
    for words in ([], ["--origin"]):
        done = inside("config", "show", "--project", "garden", "--publish", "81:82", *words)
        table = tomllib.loads(done.stdout)
        settings, wrong = read_settings(table, project)
        assert wrong == []
        assert (settings.timeout, settings.memory, settings.image) == (30.0, 700, ("python",))


def test_a_project_without_files_has_the_defaults(inside, project, tmp_path, monkeypatch):
    del project
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    done = inside("config", "show", "--project", "empty")
    assert all(line.startswith("# ") for line in done.stdout.splitlines())
    assert tomllib.loads(done.stdout) == {}


def test_every_key_has_an_example_that_can_be_read(tmp_path, monkeypatch):
    """The page on gramercy.toml is written from this table."""
    monkeypatch.chdir(tmp_path)
    for name in ("lib", "systems"):
        Path(name).mkdir()
    Path("setup.py").touch()
    assert set(KEYS) == set(Settings.__struct_fields__)
    for key, about in KEYS.items():
        table = tomllib.loads(about.example)
        assert (list(table), read_settings(table, tmp_path)[1]) == ([key], [])


def test_no_variable_says_nothing():
    assert read_environment({}, Path("/")) == (Settings(), [])
    assert read_environment({variable(key): "" for key in KEYS}, Path("/")) == (Settings(), [])
