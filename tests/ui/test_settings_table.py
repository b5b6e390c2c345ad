"""One entry of the table of settings is all that a setting needs: key, variable, option, listing, page."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gramercy.ui.cli.config import show_settings
from gramercy.workbench.settings import KEYS, May, options_of, read_environment, variable

ROOT = Path(__file__).resolve().parents[2]
# The struct and the table get one setting more before anything that is made from them is imported.
MADE_UP = """
import sys
from gramercy.workbench import settings, values

class Wider(settings.Settings, frozen=True):
    brightness: int | None = None

settings.Settings = Wider
settings.KEYS["brightness"] = settings.Setting(
    values.whole(1, 9, "whole number from 1 to 9"),
    "5",
    "How bright a picture is.",
    "brightness = 3",
    "How bright a picture is; by default 5.",
    settings.May[sys.argv[1]],
    lowered=values.lower if "LESS" in sys.argv else None,
    most=5,
)
del sys.argv[1]
"""
COMMAND = "from gramercy.ui.cli.main import main\nmain()\n"
PAGE = f"""
sys.path.insert(0, {str(ROOT / "docs")!r})
from configuration import configuration_page
print(configuration_page())
"""


@pytest.fixture
def wider(tmp_path, monkeypatch):
    """Return what runs a command with one setting more, in a project and with a user's file."""
    for key in KEYS:
        monkeypatch.delenv(variable(key), raising=False)
    (tmp_path / "config" / "gramercy").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*words, may="NOTHING", program=COMMAND, **environment):
        done = subprocess.run(
            [sys.executable, "-c", MADE_UP + program, may, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
            env={**os.environ, **environment},
        )
        assert "Traceback (" not in done.stderr
        return done

    return run


def line_of(done):
    """Return the line of the made-up setting."""
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if "brightness" in line]
    return line


def test_a_new_entry_is_a_key_a_variable_and_an_option(wider, tmp_path):
    """Each counts more than the one before."""
    show = ("config", "show", "--origin")
    assert line_of(wider(*show)) == "# brightness: 5  (default)"
    user = tmp_path / "config" / "gramercy" / "gramercy.toml"
    user.write_text("brightness = 7\n")
    assert line_of(wider(*show)) == f"brightness = 7  # from {user}"
    assert line_of(wider(*show, GRAMERCY_BRIGHTNESS="8")) == "brightness = 8  # from GRAMERCY_BRIGHTNESS"
    told = wider(*show, "--brightness", "9", GRAMERCY_BRIGHTNESS="8")
    assert line_of(told) == "brightness = 9  # from --brightness"


def test_what_a_new_entry_refuses_is_told(wider, tmp_path):
    """The same check in the file and the environment, and one of the option's own."""
    (tmp_path / "config" / "gramercy" / "gramercy.toml").write_text("brightness = 10\n")
    done = wider("config", "show", GRAMERCY_BRIGHTNESS="dim")
    assert "brightness is 10, but must be a whole number from 1 to 9" in done.stderr
    assert "the environment: brightness is 'dim', but must be a whole number from 1 to 9" in done.stderr
    done = wider("config", "show", "--brightness", "10")
    assert (done.returncode, "10 is not in the range 1<=x<=9" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("may", "shown", "reason"),
    [
        ("NOTHING", "# brightness: 5", "a file of the project has no say in it: say --brightness, or put"),
        ("LESS", "# brightness: 5", "a file of the project may only lower it, and it is 5: say --bright"),
        ("ANYTHING", "brightness = 6", ""),
    ],
)
def test_a_new_entry_says_what_a_project_may(wider, tmp_path, may, shown, reason):
    """Without a word about it, a project has no say."""
    (tmp_path / "gramercy.toml").write_text("brightness = 6\n")
    done = wider("config", "show", may=may)
    assert line_of(done) == shown
    assert reason in done.stderr
    assert bool(reason) == ("refused" in done.stderr)


def test_a_new_entry_is_in_the_help_of_commands_and_on_the_page(wider):
    """Without a line of documentation elsewhere."""
    for command in (("eval",), ("serve",), ("config", "show")):
        told = " ".join(wider(*command, "--help").stdout.split())
        assert "--brightness INTEGER RANGE How bright a picture is; by default 5. [1<=x<=9]" in told
    page = wider(program=PAGE).stdout
    row = "| [`brightness`](#brightness) | whole number from 1 to 9 | 5 | `--brightness` | nothing |\n"
    assert row in page
    section = "## brightness\n\nHow bright a picture is. In the environment: `GRAMERCY_BRIGHTNESS`.\n\n"
    assert f"{section}```toml\nbrightness = 3\n```\n" in page


def test_a_new_entry_is_written_into_the_settings_of_a_client(wider):
    """The options that were given are written again."""
    done = wider("install", "--client", "cursor", "--image", "python", "--brightness", "2")
    assert '"--brightness",' in done.stdout


@pytest.mark.parametrize("key", KEYS)
def test_every_entry_is_an_option_and_has_what_its_rule_needs(key, tmp_path, monkeypatch):
    """The table is walked; that its examples can be read in a file is tested beside `config show`."""
    about = KEYS[key]
    options = {option.name: option for option in show_settings.params}
    assert (key in options) == bool(about.help)
    if about.help:
        assert tuple(options[key].opts) == options_of(key)
    if about.project in (May.LESS, May.MORE):
        assert about.lowered is not None
    if about.project is May.LESS:
        assert (about.most, about.otherwise) != (None, None)
    monkeypatch.chdir(tmp_path)
    for name in ("lib", "systems"):
        Path(name).mkdir()
    Path("setup.py").touch()
    value = tomllib.loads(about.example)[key]
    words = [f"{name}={each}" for name, each in value.items()] if isinstance(value, dict) else value
    word = about.kind.separator.join(map(str, words)) if isinstance(words, list) else str(words)
    found, wrong = read_environment({variable(key): word}, tmp_path)
    assert wrong == []
    assert getattr(found, key) == about.kind.read(value, tmp_path)
