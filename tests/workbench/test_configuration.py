"""What files and options say about images, whose word counts, and what a project may not say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gramercy.errors import InvalidSettingError
from gramercy.images.environment import Files, Network, PublishedPort
from gramercy.workbench.configuration import read_configuration, user_file
from gramercy.workbench.settings import Settings, read_port, read_variable


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a project beside an empty directory for the user's own file."""
    place = tmp_path / "garden"
    place.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return place.resolve()


def write_own(project, text, name="gramercy.toml"):
    """Write the file of the project."""
    (project / name).write_text(text)


def write_users(text):
    """Write the file of the user."""
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text(text)


def remarks(project, **told):
    """Return what is said about the files."""
    return read_configuration(project, Settings(**told)).remarks


def test_without_files_everything_has_its_default(project):
    """No file is needed."""
    found = read_configuration(project)
    assert (found.timeout, found.images, found.language, found.files, found.remarks) == (60, (), None, (), ())
    assert found.environment.python is None
    assert found.environment.network is Network.NONE


def test_a_file_of_the_project_chooses_and_lowers(project):
    """Own program: a project file may lower rights, never raise them."""
    for name in ("env", "lib"):
        (project / name).mkdir()
    (project / "start.py").write_text("")
    write_own(
        project,
        'image = "python"\npython = "env"\npaths = ["lib"]\ninit = "start.py"\nmemory = 256\ntimeout = 5\n'
        'env = { MODE = "test" }\npublish = []\nnetwork = "none"\n',
    )
    found = read_configuration(project)
    assert found.remarks == ()
    assert (found.timeout, found.language, found.files) == (5, "python", (project / "gramercy.toml",))
    environment = found.environment
    assert (environment.python, environment.paths) == (str(project / "env"), (project / "lib",))
    assert (environment.init, environment.memory_mb) == (project / "start.py", 256)
    assert environment.variables == {"MODE": "test"}


def test_a_table_in_pyproject_says_the_same(project):
    """One file fewer for those who have that one."""
    write_own(project, '[project]\nname = "x"\n[tool.gramercy]\ntimeout = 7\n', "pyproject.toml")
    assert read_configuration(project).timeout == 7
    write_own(project, "timeout = 8\n")
    found = read_configuration(project)
    assert found.timeout == 8
    assert "[tool.gramercy] is not used, since there is" in found.remarks[0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('python = "{out}/env"', "python is refused, since a file of the project may name only what is in"),
        ('paths = ["{out}"]', "paths is refused, since a file of the project may name only what is in"),
        ('registries = ["{out}"]', "registries is refused"),
        ('init = "{out}/start.py"', "init is refused"),
        ("disk = 2000", "disk is refused, since a file of the project may only lower it, and it is 1024 MB"),
        ("memory = 100000", "memory is refused, since a file of the project may only lower it, and it is"),
        ("timeout = 61", "timeout is refused, since a file of the project may only lower it, and it is 60 s"),
        ('env = ["SECRET"]', "env is refused, since a file of the project may take nothing from your"),
        ('env = ["LD_PRELOAD=/x.so"]', "(LD_PRELOAD)"),
        ('env = { path = "/x" }', "(path)"),
        ('env = { PYTHONHOME = "/x" }', "(PYTHONHOME)"),
        ("publish = [8080]", "publish is refused, since a file of the project may open no ports"),
        ('network = "open"', "network is refused, since a file of the project may not open the network"),
    ],
)
def test_a_file_of_the_project_cannot_raise_rights(project, tmp_path, monkeypatch, line, words):
    """The key is refused, the line says where to put it, and the rest applies."""
    monkeypatch.setenv("SECRET", "mine")
    (tmp_path / "out" / "env").mkdir(parents=True)
    (tmp_path / "out" / "start.py").write_text("")
    write_own(project, f"{line.replace('{out}', str(tmp_path / 'out'))}\nimage = 'sbcl'\n")
    found = read_configuration(project)
    assert len(found.remarks) == 1
    assert words in found.remarks[0]
    assert f'put it into {user_file()} under [projects."{project}"]' in found.remarks[0]
    assert found.environment.notes == (f"{found.remarks[0]}.",)
    assert found.language == "sbcl"
    assert "mine" not in repr(found)
    plain = read_configuration(tmp_path)
    for field in ("python", "paths", "registries", "init", "memory_mb", "variables", "publish", "network"):
        assert getattr(found.environment, field) == getattr(plain.environment, field)
    assert found.timeout == 60


def test_links_in_the_project_do_not_help_it(project, tmp_path):
    """What counts is where a path really leads."""
    (tmp_path / "out").mkdir()
    (project / "in").symlink_to(tmp_path / "out")
    write_own(project, 'paths = ["in", "."]\npython = "in"\n')
    found = read_configuration(project)
    assert found.environment.paths == (project,)
    assert found.environment.python is None
    (project / "gramercy.toml").unlink()
    (tmp_path / "other.toml").write_text("secret_word = 1\n")
    (project / "gramercy.toml").symlink_to(tmp_path / "other.toml")
    assert remarks(project) == (
        f"{project / 'gramercy.toml'} is not read, since it leads out of the project",
    )


def test_the_user_may_grant_all_that_for_one_project_or_for_every_one(project, tmp_path, monkeypatch):
    """The same keys, in the user's own file."""
    monkeypatch.setenv("SECRET", "mine")
    (tmp_path / "lib").mkdir()
    (tmp_path / "both").mkdir()
    write_users(
        f'timeout = 100\npaths = ["{tmp_path}/both"]\n[projects."{project}"]\npaths = ["{tmp_path}/lib"]\n'
        'memory = 9000\ntimeout = 300\nenv = ["SECRET"]\npublish = [8080, "8081:80"]\nnetwork = "open"\n'
        '[projects."/elsewhere"]\ntimeout = 1\n'
    )
    found = read_configuration(project)
    assert (found.remarks, found.timeout) == ((), 300)
    environment = found.environment
    assert environment.paths == (tmp_path / "lib", tmp_path / "both")
    assert (environment.memory_mb, environment.variables) == (9000, {"SECRET": "mine"})
    assert environment.publish == (PublishedPort(8080, 8080), PublishedPort(8081, 80))
    assert environment.network is Network.OPEN
    assert read_configuration(tmp_path).timeout == 100


def test_a_project_may_lower_what_the_user_grants_and_use_it_up_to_there(project):
    """A limit of the user's is the limit of the project's file too."""
    write_users('memory = 8000\ntimeout = 300\nnetwork = "open"\npublish = [8080]\n')
    write_own(project, 'memory = 4000\ntimeout = 200\nnetwork = "none"\npublish = []\n')
    found = read_configuration(project)
    assert (found.remarks, found.timeout, found.environment.memory_mb) == ((), 200, 4000)
    assert (found.environment.network, found.environment.publish) == (Network.NONE, ())
    write_users('memory = 8000\nfiles = "read"\n')
    write_own(project, 'files = "write"\n')
    found = read_configuration(project)
    assert (
        "files is refused, since a file of the project may only lower it, and it is read" in found.remarks[0]
    )
    assert found.environment.files is Files.READ
    write_users("memory = 8000\n")
    write_own(project, 'files = "read"\n')
    assert read_configuration(project).environment.files is Files.READ
    told = read_configuration(project, Settings(files=Files.WRITE))
    assert told.environment.files is Files.WRITE
    write_own(project, "memory = 8001\n")
    found = read_configuration(project)
    assert "and it is 8000 MB" in found.remarks[0]
    assert found.environment.memory_mb == 8000


def test_the_command_line_counts_most(project):
    """Then the user's word on this project, the project's own, and the user's in general."""
    write_users(f'image = "sbcl"\ntimeout = 20\npython = "3.98"\n[projects."{project}"]\ntimeout = 30\n')
    write_own(project, 'image = "python"\npython = "3.97"\ntimeout = 10\n')
    found = read_configuration(project)
    assert (found.language, found.timeout, found.environment.python) == ("python", 10, "3.97")
    told = read_configuration(project, Settings(timeout=500, python="3.99", network=Network.OPEN))
    assert (told.timeout, told.environment.python, told.environment.network) == (500, "3.99", Network.OPEN)
    write_users(f'python = "3.98"\n[projects."{project}"]\npython = "3.96"\nimage = "sbcl"\n')
    found = read_configuration(project)
    assert (found.environment.python, found.language) == ("3.96", "sbcl")


def test_a_general_interpreter_is_for_projects_without_an_environment(project):
    """Else it would hide every .venv."""
    write_users('python = "3.98"\n')
    assert read_configuration(project).environment.python == "3.98"
    (project / ".venv").mkdir()
    (project / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert read_configuration(project).environment.python is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pyton = 'x'", "there is no key 'pyton': did you mean 'python'?"),
        ("colour = 1", "there is no key 'colour': there are image, python"),
        ("projects = 1", "there is no key 'projects'"),
        ("python = 3.12", "python is 3.12, but must be a text"),
        ("python = ''", "must be a text that is not empty"),
        ("paths = 'lib'", "paths is 'lib', but must be a list"),
        ("paths = [1]", "must be a text"),
        ("paths = ['absent']", "there is no directory"),
        ("registries = {}", "must be a list"),
        ("init = 'absent.py'", "there is no file"),
        ("memory = '1G'", "must be a number of MB, 64 or more"),
        ("memory = true", "must be a number of MB"),
        ("memory = 1", "64 or more"),
        ("timeout = 'long'", "timeout is 'long', but must be a number of seconds above 0"),
        ("timeout = 0", "above 0"),
        ("timeout = nan", "above 0"),
        ("timeout = inf", "above 0"),
        ("env = 'A'", "must be a table of texts"),
        ("env = { A = 1 }", "must be a table of texts"),
        ("env = ['NOT_SET_HERE']", "NOT_SET_HERE is not set here: give it as NOT_SET_HERE=VALUE"),
        ("env = ['1A=x']", "is not NAME or NAME=VALUE"),
        ("publish = 8080", "must be a list"),
        ("publish = ['x']", "'x' is not PORT or OUTER:INNER"),
        ("publish = [99999]", "is not PORT or OUTER:INNER"),
        ("network = 'wide'", "must be one of none, open"),
        ("files = 'all'", "must be one of read, write"),
        ("image = 'lisp'", "there is no image language 'lisp'"),
        ("image = ['python', 'python']", "two images are named python"),
        ("timeout = \n", "is not TOML, so nothing of it is used: Invalid value (at line 1, column 11)"),
        ("a = 1\na = 2\n", "at line 2"),
        ("\x00", "is not TOML"),
        ("x = " + "[" * 5000, "is not TOML"),
    ],
)
@pytest.mark.parametrize("place", ["gramercy.toml", "pyproject.toml", "user"])
def test_what_cannot_be_used_is_one_line_that_says_where(project, text, words, place):
    """Bad input: an unknown key in gramercy.toml."""
    if place == "pyproject.toml":
        if "TOML" in words or "line 2" in words:
            return
        write_own(project, f"[tool.gramercy]\n{text}\n", place)
    elif place == "gramercy.toml":
        write_own(project, text)
    elif "projects" not in text:
        write_users(text)
    else:
        write_users(text)
        words = "[projects] must be a table"
    found = read_configuration(project)
    assert len(found.remarks) == 1
    assert "\n" not in found.remarks[0]
    assert words in found.remarks[0]
    assert str(project if place != "user" else user_file()) in found.remarks[0]
    assert found.timeout == 60


def test_a_file_that_is_none_is_told_and_not_waited_for(project):
    """A pipe would wait for ever, a directory and a huge file cannot be read."""
    os.mkfifo(project / "gramercy.toml")
    assert remarks(project)[0].endswith("cannot be read: it is not a file")
    (project / "gramercy.toml").unlink()
    (project / "gramercy.toml").mkdir()
    assert "cannot be read" in remarks(project)[0]
    (project / "gramercy.toml").rmdir()
    write_own(project, "#" * (1 << 21))
    assert "longer than" in remarks(project)[0]
    (project / "gramercy.toml").write_bytes(b"\xff")
    assert "is not TOML" in remarks(project)[0]
    write_users(f'projects = {{ "{project}" = 3 }}')
    assert "must be a table" in remarks(project)[0]


def test_ports_and_variables_are_read_as_on_the_command_line(monkeypatch):
    """One reader for both."""
    monkeypatch.setenv("HERE", "x")
    assert read_port("80:81") == PublishedPort(80, 81)
    assert (read_variable("HERE"), read_variable("A=b=c")) == (("HERE", "x"), ("A", "b=c"))
    for word in ("", ":", "0", "1:2:3", "٣"):
        with pytest.raises(InvalidSettingError):
            read_port(word)


def test_the_users_file_is_found_without_any_variable(monkeypatch):
    """By default in ~/.config."""
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert user_file() == Path.home() / ".config" / "gramercy" / "gramercy.toml"
