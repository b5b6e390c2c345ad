"""Rules about files hold inside the sandbox too, and our own files cannot be written from there."""

from __future__ import annotations

import pytest

from gramercy import Policy, tool
from gramercy.images.sandbox import Confinement, why_not
from gramercy.workbench.keeping import kept_by_rules
from gramercy.workbench.policies import read_policies
from gramercy.workbench.serving import Service, open_server

needs_bubblewrap = pytest.mark.skipif(
    why_not(Confinement.BUBBLEWRAP) is not None, reason=f"{why_not(Confinement.BUBBLEWRAP)}"
)
RULES = """
[[rules]]
action = "deny"
arguments = { path = "secret.txt" }

[[rules]]
action = "deny"
tools = ["write_*"]
arguments = { path = "vendor/**" }

[[rules]]
action = "deny"
arguments = { path = "**/.env" }

[[rules]]
action = "deny"
arguments = { path = "absent.txt" }
"""


@tool(safety_level="dangerous", categories=["files"])
def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"{path}{content}"


@pytest.fixture
def project(tmp_path):
    """Return a project with files that rules are about."""
    path = (tmp_path / "project").resolve()
    for name in ("secret.txt", "vendor/lib.py", "app/.env", "app/main.py"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("mine")
    return path


def writes(image, name):
    """Tell whether evaluated code can write a file; nothing is kept of it."""
    return image.evaluate(f"open({name!r}, 'a').close()").ok


@needs_bubblewrap
@pytest.mark.contract("trust.walls.rules-inside")
def test_what_a_rule_denies_for_writing_is_read_only_inside(project):
    """Trust, approval beside the point: write_file was denied while eval_form wrote the same file."""
    policy = project / "policy.toml"
    policy.write_text(RULES)
    server = open_server(Service(images=("python",), project=str(project), policy=str(policy)))
    try:
        image = server.images[0]
        reply = image.evaluate("1")
        denied = ("secret.txt", "vendor/lib.py", "vendor/new.py", "app/.env", "policy.toml")
        assert [name for name in denied if writes(image, name)] == []
        assert not image.evaluate("import os; os.rename('app/.env', 'x')").ok
        assert writes(image, "app/main.py")
        told = [note for note in reply.notes if note.startswith("Rule ")]
        assert [note.split(" of ")[0] for note in told] == ["Rule 3", "Rule 4"]
        assert f"{policy}:11 denies writing **/.env" in told[0]
        assert "making new files that match" in told[0]
        assert "making it: it is not there" in told[1]
    finally:
        server.close(1)


@needs_bubblewrap
@pytest.mark.contract("trust.approval.asked-inside")
def test_what_a_rule_asks_about_is_not_written_unasked_from_inside(project):
    """Trust, approval beside the point: the person wanted to be asked, and eval_form asked nobody."""
    policy = project.parent / "policy.toml"
    policy.write_text(RULES.replace("deny", "ask"))
    server = open_server(Service(images=("python",), project=str(project), policy=str(policy)))
    try:
        image = server.images[0]
        held = ("secret.txt", "vendor/lib.py", "vendor/new.py", "app/.env")
        assert [name for name in held if writes(image, name)] == []
        assert writes(image, "app/main.py")
        told = [note for note in image.evaluate("2").notes if note.startswith("Rule ")]
        assert [note.split(" of ")[0] for note in told] in ([], ["Rule 3", "Rule 4"])
    finally:
        server.close(1)


@needs_bubblewrap
@pytest.mark.contract("trust.walls.own-files")
def test_our_own_files_in_a_project_cannot_be_written_from_inside(project):
    """Trust, control files: a changed --from file ran on the host at the next start."""
    (project / "gramercy.toml").write_text("timeout = 30\n")
    tools = project / "tools.py"
    tools.write_text(
        "from gramercy import tool\n\n@tool\ndef f(x: int) -> int:\n    '''F.'''\n    return x\n"
    )
    pins = project / "pins.json"
    pins.write_text("{}")
    service = Service(images=("python",), project=str(project), sources=(str(tools),), foreign_pins=str(pins))
    server = open_server(service)
    try:
        image = server.images[0]
        assert [name for name in ("tools.py", "pins.json", "gramercy.toml") if writes(image, name)] == []
    finally:
        server.close(1)


def kept(rules, project):
    found = kept_by_rules(Policy(rules), write_file, project)
    return sorted(str(path.relative_to(project)) for path in found.paths), found.notes


def deny(path, **more):
    return {"action": "deny", "arguments": {"path": path}, **more}


@pytest.mark.parametrize(
    ("rules", "paths"),
    [
        ([deny("secret.txt")], ["secret.txt"]),
        ([deny("./app/../secret.txt")], ["secret.txt"]),
        ([deny("vendor/**")], ["vendor"]),
        ([deny("**")], ["."]),
        ([deny("app/*")], ["app/.env", "app/main.py"]),
        # What has to be asked about cannot be written unasked from inside.
        ([{"action": "ask", "arguments": {"path": "secret.txt"}}], ["secret.txt"]),
        ([{"action": "ask", "tools": ["write_file"], "arguments": {"path": "vendor/**"}}], ["vendor"]),
        # Rules for other tools, for other arguments, and those that say nothing of paths hold nothing.
        ([deny("secret.txt", tools=["read_file"])], []),
        ([deny("secret.txt", categories=["files"])], ["secret.txt"]),
        ([{"action": "ask", "tools": ["write_file"]}], []),
        ([{"action": "deny", "arguments": {"path": "secret.txt", "content": "x"}}], []),
        # The first rule that matches decides, inside as outside.
        ([{"action": "allow", "arguments": {"path": "app/main.py"}}, deny("app/**")], ["app/.env"]),
        ([{"action": "allow"}, deny("secret.txt")], []),
        # What is outside of the project is out of reach anyway.
        ([deny("/etc/**")], []),
        ([deny("../other.txt")], []),
    ],
)
def test_the_paths_that_rules_keep(project, rules, paths):
    """Literals and whole directories are held; of patterns, what is there."""
    assert kept(rules, project)[0] == paths


def test_a_link_is_not_taken_for_what_it_leads_to(project):
    """It can be replaced, so that a mount at its end would hold nothing."""
    (project / "link").symlink_to(project / "secret.txt")
    assert kept([deny("link")], project)[0] == []


def test_a_rule_of_the_project_takes_nothing_from_a_directory_that_another_file_holds(project, tmp_path):
    """Layers: what only tightens makes no exception to the user's own rules."""
    mine = tmp_path / "mine.toml"
    (project / "gramercy-policy.toml").write_text(
        '[[rules]]\naction = "allow"\n\n[[rules]]\naction = "deny"\narguments = { path = "app/**" }\n'
    )
    mine.write_text('[[rules]]\naction = "deny"\narguments = { path = "vendor/**" }\n')
    policy = read_policies(project, str(mine)).policy
    # As if the user's were the farther one, as the rules for every project are.
    policy = Policy([*policy.rules[1:], policy.rules[0]])
    assert kept_by_rules(policy, write_file, project).paths == (project / "vendor",)


@needs_bubblewrap
@pytest.mark.contract("journal.policy.written-by-code")
def test_the_rules_of_a_project_hold_inside_and_cannot_be_written_there(project):
    """They need no option: the file is found, and so it is kept."""
    (project / "gramercy-policy.toml").write_text(RULES)
    server = open_server(Service(images=("python",), project=str(project)))
    try:
        image = server.images[0]
        assert not writes(image, "gramercy-policy.toml")
        assert not image.evaluate("import os; os.remove('gramercy-policy.toml')").ok
        assert not writes(image, "secret.txt")
        assert writes(image, "app/main.py")
    finally:
        server.close(1)
