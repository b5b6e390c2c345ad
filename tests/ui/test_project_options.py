"""A project and its environment through the command line: eval, serve, tools, install and the doctor."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gramercy.testing.clients import StdioClient

BASE = getattr(sys, "_base_executable", sys.executable)
PREFIX = "import sys, spade; sys.prefix"


@pytest.fixture(autouse=True)
def environment(tmp_path):
    """Give the project an environment with a module in it."""
    subprocess.run([BASE, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True, timeout=60)
    packages = next((tmp_path / ".venv").glob("lib/python3*/site-packages"))
    (packages / "spade.py").write_text("made = 'of steel'\n")
    return tmp_path / ".venv"


def test_eval_has_the_environment_of_the_project(gramercy, environment):
    """Own program: from the first minute."""
    done = gramercy("eval", "--language", "python", PREFIX)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{str(environment)!r}\n", "")


def test_an_interpreter_can_be_chosen_and_one_that_is_not_there_is_told(gramercy, tmp_path):
    """`--python` takes a program, a directory or a version, relative to where the command is given."""
    (tmp_path / "inner").mkdir()
    done = gramercy("eval", "--language", "python", "--project", "inner", "--python", ".venv", PREFIX)
    assert str(tmp_path / ".venv") in done.stdout
    done = gramercy("eval", "--language", "python", "--python", "3.99", "1")
    assert done.returncode == 3
    assert "there is no Python 3.99 on PATH" in done.stderr


def test_a_file_of_the_project_is_read_and_what_it_may_not_say_is_a_warning(gramercy, tmp_path):
    """Bad input: one clear line, nothing lost, and the image still starts."""
    (tmp_path / "gramercy.toml").write_text(
        'image = "python"\nnetwork = "open"\npyton = "3.12"\ntimeout = 0.5\nenv = { MODE = "test" }\n'
    )
    done = gramercy("eval", "import os, spade; os.environ['MODE']")
    assert (done.returncode, done.stdout) == (0, "'test'\n")
    refused, unknown = sorted(done.stderr.splitlines())
    assert "network is refused" in refused or "network is refused" in unknown
    assert "did you mean 'python'?" in done.stderr
    assert all(line.startswith("warning: ") for line in (refused, unknown))
    done = gramercy("eval", "while True: pass")
    assert done.returncode == 1
    done = gramercy("eval", "--timeout", "20", "import time; time.sleep(0.7); 'slept'")
    assert done.stdout == "'slept'\n"


def test_tools_of_an_image_have_it_too(gramercy, environment):
    """`tools call --image`."""
    words = ("--image", "python", "--approve", f"code={PREFIX}")
    done = gramercy("tools", "call", "evaluate-python", *words)
    assert str(environment) in done.stdout


def test_the_server_and_the_images_that_callers_open_have_it(tmp_path, environment):
    """The file chooses the language where no option does."""
    (tmp_path / "gramercy.toml").write_text('image = "python"\nnetwork = "open"\n')
    words = [sys.executable, "-m", "gramercy", "serve", "--toolset", "session", "--toolset", "images"]
    client = StdioClient(*words, cwd=tmp_path, env={"NO_COLOR": "1"})
    try:
        client.initialize()
        handle = client.call("open_image", language="python")["content"][0]["text"]
        for image in ("python", handle):
            text = client.call("evaluate-python", code=PREFIX, image=image)["content"][0]["text"]
            assert str(environment) in text
        assert "network is refused" in client.errors()
    finally:
        client.close()


def test_install_writes_the_options_that_were_given_and_no_others(gramercy, tmp_path):
    """What the configuration files say is read whenever the server starts."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "gramercy.toml").write_text("timeout = 5\n")
    plain = gramercy("install", "--client", "claude-code", "--project", ".")
    words = json.loads(plain.stdout)["mcpServers"]["gramercy"]["args"]
    assert words[-2:] == ["--project", str(tmp_path)]
    given = ["--python", ".venv", "--path", "lib", "--timeout", "90", "--env", "TOKEN", "--memory", "900"]
    done = gramercy("install", "--client", "claude-code", "--project", ".", *given, TOKEN="secret")
    words = json.loads(done.stdout)["mcpServers"]["gramercy"]["args"]
    told = " ".join(words[words.index("--project") + 2 :])
    assert told == f"--python {tmp_path}/.venv --path {tmp_path}/lib --memory 900 --timeout 90 --env TOKEN"
    assert "secret" not in done.stdout


def test_the_doctor_shows_what_was_found_and_asks_the_image_itself(gramercy, tmp_path, environment):
    """Own program: doctor --project shows what the image will see."""
    (tmp_path / "src").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.gramercy]\ntimeout = 9\nmemory = 99999999\n")
    done = gramercy("doctor", "--project", ".", "--json")
    report = json.loads(done.stdout)
    lines = {check["name"]: check for check in report["checks"]}
    assert (done.returncode, report["ok"]) == (0, True)
    assert f"of {environment} (.venv)" in lines["python interpreter"]["detail"]
    assert lines["python packages"]["detail"].startswith(str(environment))
    assert lines["python import path"]["detail"] == f"{tmp_path}, {tmp_path / 'src'}"
    assert f"sys.prefix {environment}" in lines["python image"]["detail"]
    assert "timeout 9 s" in lines["limits"]["detail"]
    refused = [check for check in report["checks"] if check["status"] == "warning"]
    assert [check["name"] for check in refused] == ["configuration"]
    assert "memory is refused" in refused[0]["detail"]
    text = gramercy("doctor", "--project", ".").stdout
    assert text.count("\n") == len(report["checks"])


def test_the_doctor_fails_where_an_image_cannot_start(gramercy):
    """An interpreter that was asked for must be usable."""
    done = gramercy("doctor", "--project", ".", "--python", "3.99")
    assert done.returncode == 1
    assert "FAILED   python interpreter" in done.stdout
    done = gramercy("doctor", "--python", "3.12")
    assert (done.returncode, "--project DIR" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--publish", "x"], "'x' is not PORT or OUTER:INNER"),
        (["--env", "NOT_SET_HERE"], "NOT_SET_HERE is not set here"),
        (["--env", "1=2"], "is not NAME or NAME=VALUE"),
        (["--memory", "1"], "64"),
        (["--timeout", "0"], "0"),
        (["--path", "absent"], "does not exist"),
    ],
)
def test_options_that_cannot_be_used_are_told(gramercy, words, said):
    """Bad input gets one clear line."""
    done = gramercy("eval", "--language", "python", *words, "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_callers_choose_a_time_limit_up_to_that_of_the_operator(tmp_path):
    """Own program: a timeout argument up to the operator's limit."""
    from gramercy.workbench.serving import Service, open_server

    def taken(**options: object) -> set[str]:
        server = open_server(Service(images=("python",), project=str(tmp_path), **options))  # type: ignore[arg-type]
        try:
            tool = server.engine._settings.registry.resolve("evaluate-python")
            limits = tool.schema["properties"].get("timeout", {})
            return {f"{limits['maximum']:g}"} if limits else set()
        finally:
            server.close(5)

    assert taken(timeout_limit=None) == set()
    assert taken() == {"600"}
    assert taken(timeout_limit=300.0) == {"300"}
