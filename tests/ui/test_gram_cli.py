"""`gramercy gram`: what goes where, which code it exits with, and that nothing ends in a traceback."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gramercy.ui.cli.gram import group

CLEAN = """\
[say_hello:ToolSpecification {
  description: "Returns a friendly greeting message for the given name"
} |
  (::Text {paramName:"name"})==>(::String)
]
"""
FAULTY = '[t:Tool {description: "d"} | (a::Txt)==>(::String)]\n'
UNTIDY = '[t:Tool   {description:"d"}|(a::Text)==>(::String)] // kept\n'
BROKEN = "[t:Tool {\n"
TOOLS = '''
from gramercy import tool

@tool(safety_level="safe")
def say_hello(name: str) -> str:
    """Returns a friendly greeting message for the given name"""
    return f"Hello, {name}!"
'''


@pytest.fixture(autouse=True)
def inside_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str | bytes) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def run(*arguments: str, given: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(group, list(arguments), input=given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def test_lint_prints_findings_and_exits_with_1():
    """How people meet it: data on stdout, everything else on stderr."""
    write("a.gram", FAULTY)
    result = run("lint", "a.gram")
    assert result.exit_code == 1
    assert result.stdout.startswith("a.gram:1:32: error A103: unknown type 'Txt'")
    assert result.stderr == "1 file: 1 error\n"


def test_lint_exits_with_0_when_nothing_is_found():
    """Exit codes 0, 1, 2."""
    write("a.gram", CLEAN)
    result = run("lint", "a.gram")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "1 file: nothing found\n")


def test_information_does_not_fail_a_lint():
    """The seed's sayHello is right as it is."""
    write("a.gram", CLEAN.replace("say_hello", "sayHello"))
    result = run("lint", "a.gram")
    assert result.exit_code == 0
    assert "information A111" in result.stdout


def test_lint_prints_the_report_of_other_gram_programs():
    """Design of the gram layer, Ecosystem fit."""
    write("a.gram", FAULTY)
    write("b.gram", CLEAN)
    result = run("lint", "--json", "a.gram", "b.gram")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert list(report) == ["schema_version", "tool", "files"]
    assert report["tool"].startswith("gramercy/")
    assert [entry["path"] for entry in report["files"]] == ["a.gram", "b.gram"]
    (found,) = report["files"][0]["diagnostics"]
    assert sorted(found) == ["code", "message", "range", "severity"]
    assert found["range"]["start"] == {"line": 0, "character": 31}


def test_lint_walks_directories_and_reads_markdown():
    """Several files and directories; hidden ones are left alone; each file comes once."""
    write("d/b.gram", CLEAN)
    write("d/deep/c.md", f"# x\n\n```gram\n{FAULTY}```\n")
    write("d/.hidden/x.gram", BROKEN)
    write("d/other.txt", BROKEN)
    result = run("lint", "d", "d/b.gram")
    assert result.exit_code == 1
    assert result.stdout.startswith("d/deep/c.md:4:32: error A103")
    assert result.stderr == "2 files: 1 error\n"


def test_a_directory_without_gram_is_mentioned_and_clean():
    """Nothing to do is no failure."""
    Path("empty").mkdir()
    result = run("lint", "empty")
    assert result.exit_code == 0
    assert "empty: no files that end in .gram" in result.stderr


@pytest.mark.parametrize("command", ["lint", "fmt", "schema"])
@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("missing.gram", None, "missing.gram: no such file or directory"),
        ("bad.gram", b"\xff\xfe", "bad.gram: not UTF-8 text (byte 0): convert it to UTF-8"),
        ("/dev/zero", None, "/dev/zero: not a regular file: give - to read standard input"),
        ("nul\0.gram", None, "embedded null byte"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(command, name, content, line):
    """Never a traceback, never a hang."""
    if content is not None:
        write(name, content)
    result = run(command, name)
    assert result.exit_code == 2
    assert line in result.stderr.splitlines()[0]


def test_a_pipe_that_nobody_writes_to_is_not_waited_for():
    """Only regular files are opened."""
    os.mkfifo("pipe.gram")
    assert run("lint", "pipe.gram").exit_code == 2


def test_one_unreadable_file_does_not_hide_the_others():
    """The findings of the rest are printed, the exit code is 2."""
    write("a.gram", FAULTY)
    result = run("lint", "missing.gram", "a.gram")
    assert result.exit_code == 2
    assert "A103" in result.stdout


def test_a_huge_file_is_refused():
    """Memory is bounded."""
    with Path("huge.gram").open("wb") as stream:
        stream.truncate(5 * 1024 * 1024)
    result = run("lint", "huge.gram")
    assert result.exit_code == 2
    assert "larger than 4 MiB" in result.stderr


def test_standard_input_is_a_dash():
    """`-` everywhere."""
    assert run("lint", "-", given=FAULTY).stdout.startswith("<stdin>:1:32: error A103")
    assert (
        run("fmt", "-", given=UNTIDY).stdout
        == '[t:Tool {description: "d"} | (a::Text)==>(::String)] // kept\n'
    )
    assert json.loads(run("schema", "-", given=CLEAN).stdout)["say_hello"]["required"] == ["name"]
    assert run("lint", "-", given=b"\xff").exit_code == 2


def test_usage_errors_exit_with_2():
    """Exit codes 0, 1, 2."""
    assert run("lint").exit_code == 2
    assert run("lint", "--nope").exit_code == 2
    assert run("check", "a.gram").exit_code == 2
    assert run("fmt", "--json", "-", given=CLEAN).exit_code == 2


def test_fmt_rewrites_only_what_changes_and_keeps_the_mode():
    """Atomic replacement with the mode of the file."""
    untidy, tidy = write("a.gram", UNTIDY), write("b.gram", CLEAN)
    run("fmt", "b.gram")
    untidy.chmod(0o640)
    before = tidy.stat()
    result = run("fmt", "a.gram", "b.gram")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "formatted a.gram\n")
    assert untidy.read_text() == '[t:Tool {description: "d"} | (a::Text)==>(::String)] // kept\n'
    assert stat.S_IMODE(untidy.stat().st_mode) == 0o640
    assert (tidy.stat().st_ino, tidy.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert sorted(path.name for path in Path().iterdir()) == ["a.gram", "b.gram"]


def test_fmt_follows_a_link_instead_of_replacing_it():
    """The file behind the link is the one that changes."""
    target = write("real/a.gram", UNTIDY)
    Path("link.gram").symlink_to(target)
    assert run("fmt", "link.gram").exit_code == 0
    assert Path("link.gram").is_symlink()
    assert target.read_text() != UNTIDY


def test_fmt_check_changes_nothing_and_lists_what_would_change():
    """`fmt --check`."""
    path = write("a.gram", UNTIDY)
    result = run("fmt", "--check", "a.gram")
    assert (result.exit_code, result.stdout) == (1, "a.gram\n")
    assert path.read_text() == UNTIDY
    run("fmt", "a.gram")
    result = run("fmt", "--check", "a.gram")
    assert (result.exit_code, result.stdout) == (0, "")


def test_fmt_reports_as_json():
    """`--json` everywhere."""
    write("a.gram", UNTIDY)
    write("b.gram", BROKEN)
    result = run("fmt", "--check", "--json", "a.gram", "b.gram")
    assert json.loads(result.stdout) == {"changed": ["a.gram"], "unchanged": [], "failed": ["b.gram"]}
    assert result.exit_code == 1


def test_fmt_leaves_what_is_not_gram_alone():
    """The error is shown with its place."""
    path = write("a.gram", BROKEN)
    result = run("fmt", "a.gram")
    assert result.exit_code == 1
    assert result.stderr.startswith("a.gram:2:1: expected")
    assert path.read_text() == BROKEN


def test_fmt_does_not_touch_markdown():
    """Markdown is linted, not formatted."""
    write("a.md", "x")
    result = run("fmt", "a.md")
    assert result.exit_code == 2
    assert "not formatted" in result.stderr


def test_fmt_says_when_a_file_cannot_be_written():
    """A failed write, here for a limit on file sizes, leaves the old file and no temporary one."""
    path = write("a.gram", UNTIDY)
    program = (
        "import resource, sys; from gramercy.ui.cli.gram import group; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8)); group(sys.argv[1:])"
    )
    command = [sys.executable, "-B", "-c", program, "fmt", "a.gram"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert result.stderr == "a.gram: cannot be written: file too large\n"
    assert path.read_text() == UNTIDY
    assert [item.name for item in Path().iterdir()] == ["a.gram"]


def run_without_privileges(directory: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run as nobody where the tests run as root; what nobody could not import is imported before."""
    program = (
        "import locale, os, sys; "
        "import gramercy.gram.syntax.formatter, gramercy.gram.lint.linter; "
        "from gramercy.ui.cli.gram import group; "
        "os.geteuid() or os.setresuid(65534, 65534, 65534); group(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)


def test_permissions_are_respected():
    """A writable directory is no permission to replace a read-only file, and nothing is read in secret."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        for name, mode in (("fixed.gram", 0o444), ("secret.gram", 0)):
            write(f"{directory}/{name}", UNTIDY).chmod(mode)
        fixed = run_without_privileges(directory, "fmt", "fixed.gram")
        secret = run_without_privileges(directory, "lint", "secret.gram")
        assert Path(directory, "fixed.gram").read_text() == UNTIDY
    assert (fixed.returncode, fixed.stderr) == (2, "fixed.gram: cannot be written: permission denied\n")
    assert (secret.returncode, secret.stderr.splitlines()[0]) == (2, "secret.gram: permission denied")


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def test_schema_prints_the_schemas_of_a_file_by_name():
    """Seed 004, typeSignatureToJSONSchema, at the command line."""
    write("a.gram", CLEAN)
    assert json.loads(run("schema", "a.gram").stdout) == {"say_hello": SCHEMA}
    assert json.loads(run("schema", "a.gram", "say_hello").stdout) == SCHEMA
    assert json.loads(run("schema", "--json", "a.gram").stdout) == {"say_hello": SCHEMA}


def test_schema_takes_a_bare_type_signature():
    """The seed's own example needs no file of tools."""
    result = run("schema", "-", given='(::Text {paramName:"name"})==>(::String)')
    assert json.loads(result.stdout) == SCHEMA


def test_schema_reads_markdown():
    """With the lines of the file in errors."""
    write("a.md", f"# x\n```gram\n{CLEAN}```\n")
    assert json.loads(run("schema", "a.md").stdout) == {"say_hello": SCHEMA}
    write("b.md", f"# x\n```gram\n{FAULTY}```\n")
    assert run("schema", "b.md").stderr.startswith("b.md:3:32: unknown type")


@pytest.mark.parametrize(
    ("arguments", "text", "code", "message"),
    [
        (["a.gram", "say_helo"], CLEAN, 2, "did you mean 'say_hello'?"),
        (["a.gram", "type"], "()==>(::String)", 2, "has no tool 'type'"),
        (["a.gram"], FAULTY, 1, "a.gram:1:32: unknown type 'Txt'"),
        (["a.gram"], "(::Txt)==>(::String)", 1, "a.gram:1:2: unknown type 'Txt'"),
        (["a.gram"], BROKEN, 1, "a.gram:2:1: expected"),
        (["a.gram"], "[x:Other]", 2, "no tool specification and no type signature"),
        (["a.gram"], "[x:Tool]", 1, "a.gram: 1:1: a tool has one element"),
        (["."], "", 2, ".: a directory, not a file"),
    ],
)
def test_schema_says_what_is_missing(arguments, text, code, message):
    """One clear message, and nothing on stdout."""
    write("a.gram", text)
    result = run("schema", *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""


def test_schema_warns_of_a_stored_schema():
    """Seed 004: the signature is the source of truth."""
    write("a.gram", CLEAN.replace('name"\n', 'name", schema: json`{}`\n', 1))
    result = run("schema", "a.gram")
    assert json.loads(result.stdout) == {"say_hello": SCHEMA}
    assert "a.gram: warning: the schema stored with tool 'say_hello' differs" in result.stderr


def test_check_binds_tools_to_a_library():
    """Seed 004, bindTool: name, description and schema must match."""
    write("a.gram", CLEAN)
    write("tools.py", TOOLS)
    assert run("check", "a.gram", "--from", "tools.py").exit_code == 0
    write("a.gram", CLEAN.replace("name", "who").replace("say_hello", "say_helo"))
    result = run("check", "--json", "a.gram", "--from", "tools.py")
    found = json.loads(result.stdout)["files"][0]["diagnostics"]
    assert result.exit_code == 1
    assert [item["code"] for item in found] == ["A109"]
    assert "did you mean 'say_hello'" in found[0]["message"]


def test_check_reports_a_tool_that_is_specified_as_safer_than_it_is():
    """Design of the gram layer: a specification may raise a safety level, never lower it."""
    write("tools.py", TOOLS.replace('"safe"', '"dangerous"'))
    write("a.gram", CLEAN.replace("{\n", "{\n  safety: cautious,\n", 1))
    result = run("check", "a.gram", "--from", "tools.py")
    assert result.exit_code == 1
    assert "error A112" in result.stdout


def test_check_says_when_the_tools_cannot_be_loaded():
    """One line and the exit code for configuration, as for every command that loads tools."""
    write("a.gram", CLEAN)
    write("tools.py", "1 / 0\n")
    command = [sys.executable, "-m", "gramercy", "gram", "check", "a.gram", "--from", "tools.py"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (3, "")
    assert "tools.py cannot be loaded" in result.stderr


def test_strange_text_is_shown_without_harm():
    """Escape sequences of a file never reach the terminal."""
    write("a.gram", "[`\x1b[31mred`:Tool {description:d} | (`\x1b[2J`::Txt)==>(::String)]")
    result = run("lint", "a.gram")
    assert "\x1b" not in result.stdout


def test_the_program_works_as_a_process_in_a_poor_environment():
    """An ASCII terminal and a file name that is no text."""
    name = b"\xff\xe9.gram"
    Path(os.fsdecode(name)).write_text('[t:Tool {description:"d"} | (`\u00e9`::Txt)==>(::Strang)]')
    program = "import sys; from gramercy.ui.cli.gram import group; group(sys.argv[1:])"
    for option in ([], ["--json"]):
        result = subprocess.run(
            [sys.executable, "-c", program, "lint", *option, name],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"},
            timeout=60,
            check=False,
        )
        assert b"Traceback" not in result.stderr
        assert b"A103" in result.stdout
        assert result.returncode == 1
