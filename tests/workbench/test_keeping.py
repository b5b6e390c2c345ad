"""Rules about files hold inside the sandbox too, and our own files cannot be written from there."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest

from gramercy import Executor, Policy, tool
from gramercy.execution.calls import ToolCall
from gramercy.images.environment import Environment, Files
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement, why_not
from gramercy.toolsets.paths import WRITERS
from gramercy.workbench.agents import Plan, open_workplace
from gramercy.workbench.keeping import file_writers, kept_by_rules, walled
from gramercy.workbench.policies import read_policies
from gramercy.workbench.recording import Recording
from gramercy.workbench.serving import Service, open_server
from gramercy.workbench.sources import Origin, assembled

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


def fault(reply):
    """Return what a failed evaluation says."""
    assert reply.error is not None
    return reply.error.message


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
        told = [note for note in reply.notes if note.startswith("Rule ") and " writing " in note]
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
        told = [
            note for note in image.evaluate("2").notes if note.startswith("Rule ") and " writing " in note
        ]
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


@needs_bubblewrap
@pytest.mark.contract("trust.paths.inside")
def test_of_a_rule_about_reading_it_is_told_that_evaluated_code_can_read_the_file(project):
    """The file tools are held, and nobody should believe that an image is."""
    policy = project.parent / "policy.toml"
    policy.write_text('[[rules]]\naction = "deny"\ntools = "read_file"\narguments = { path = ".env" }\n')
    server = open_server(Service(images=("python",), project=str(project), policy=str(policy)))
    try:
        notes = server.images[0].evaluate("1").notes
        told = f"Rule 1 of {policy}:1 denies reading .env by the file tools, but evaluated code can read it."
        assert told in notes
    finally:
        server.close(1)


def kept(rules, project):
    found = kept_by_rules(Policy(rules), [write_file], project)
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


@pytest.mark.contract("trust.roads.rules")
def test_a_link_is_not_taken_for_what_it_leads_to(project):
    """It can be replaced, so that a mount at its end would hold nothing; that is told."""
    (project / "link").symlink_to(project / "secret.txt")
    (project / "links").symlink_to("vendor")
    for glob in ("link", "links/**"):
        paths, notes = kept([deny(glob)], project)
        told = f"Rule 1 denies writing {glob}, but evaluated code is not kept from writing it: a link leads"
        assert paths == []
        assert notes[0].startswith(told)


@needs_bubblewrap
@pytest.mark.contract("trust.roads.rules")
@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize("tool", WRITERS)
def test_a_rule_about_any_file_tool_holds_on_both_roads(project, tool, action):
    """Trust: a rule that named edit_file held for write_file, and evaluated code wrote the file."""
    policy = project.parent / "policy.toml"
    glob = "vendor/**"
    policy.write_text(
        f'[[rules]]\naction = "{action}"\ntools = "{tool}"\narguments = {{ path = "{glob}" }}\n'
    )
    server = open_server(Service(images=("python",), project=str(project), policy=str(policy)))
    try:
        reply = server.images[0].evaluate("open('vendor/lib.py', 'w')")
        assert not reply.ok
        said = {"deny": "denies writing vendor/**", "ask": "asks about writing vendor/**, and an evaluation"}
        where = f"since rule 1 of {policy}:1 {said[action]}"
        assert f"vendor/lib.py is read-only to evaluated code, {where}" in fault(reply)
        executor, path = server.engine.executor, {"path": "vendor/lib.py"}
        assert executor.why("write_file", {**path, "content": ""}).action == action
        assert executor.why("edit_file", {**path, "old": "mine", "new": ""}).action == action
    finally:
        server.close(1)
    assert (project / "vendor/lib.py").read_text() == "mine"


@pytest.mark.contract("trust.roads.rules")
def test_a_rule_holds_where_its_tool_is_not_served(project):
    """What a person says about a path is meant for all that writes it."""
    found = kept_by_rules(Policy([deny("vendor/**", tools=["propose_file_edit"])]), file_writers(), project)
    assert found.paths == (project / "vendor",)


@pytest.mark.contract("trust.roads.rules")
@pytest.mark.parametrize("glob", ["VENDOR/**", "Vendor/lib.py"])
def test_a_path_in_other_letters_is_held_as_the_file_tools_hold_it(project, glob):
    """A file system may fold them, so a rule that denies means every spelling."""
    assert kept([deny(glob)], project)[0] == ["vendor/lib.py"]


@pytest.mark.contract("trust.roads.rules")
@pytest.mark.parametrize(
    ("rule", "is_told"),
    [
        ({"action": "deny", "tools": ["write_file"]}, True),
        ({"action": "ask", "tools": ["write_*", "edit_*"]}, True),
        ({"action": "ask", "categories": ["filesystem"]}, True),
        ({"action": "deny", "tools": ["write_file", "eval*"]}, False),
        ({"action": "ask", "safety": ["cautious", "dangerous"]}, False),
        ({"action": "allow", "tools": ["write_file"]}, False),
    ],
)
def test_of_a_rule_without_a_path_it_is_told_that_evaluated_code_can_write(project, rule, is_told):
    """Who denies write_file altogether should not believe that nothing is written."""
    notes = kept_by_rules(Policy([rule]), file_writers(), project).notes
    told = ["names no path, so it does not hold for evaluated code" in note for note in notes]
    assert told == ([True] if is_told else [])


@pytest.mark.contract("trust.roads.rules")
def test_nothing_is_told_of_writing_where_evaluated_code_only_reads(project):
    """All of the project is held then."""
    policy = Policy([deny("absent.txt"), {"action": "deny", "tools": ["write_file"]}])
    for files, count in ((Files.WRITE, 2), (Files.READ, 0)):
        found = walled(Environment(files=files), project, (), policy)
        assert len([note for note in found.notes if "reading" not in note]) == count


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
    assert kept_by_rules(policy, [write_file], project).paths == (project / "vendor",)


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


@needs_bubblewrap
@pytest.mark.contract("trust.roads.rules")
def test_the_rules_hold_inside_for_an_agent_of_ours(project):
    """Trust: an agent has the file tools of its image, which were not known when the image was opened."""
    (project / "gramercy-policy.toml").write_text(RULES)
    origin = Origin(language="python", project=str(project))
    plan = Plan(origin=origin, model="ollama/any", recording=Recording("memory"))
    with open_workplace(plan, None, lambda _: None) as place:
        image = place.tools.image
        assert [name for name in ("secret.txt", "vendor/lib.py", "app/.env") if writes(image, name)] == []
        assert writes(image, "app/main.py")


@needs_bubblewrap
@pytest.mark.contract("trust.roads.rules")
def test_the_rules_hold_inside_for_a_call_from_the_shell(project):
    """As for a server: the same rules decide about the file tools there."""
    policy = project.parent / "policy.toml"
    policy.write_text(RULES)
    origin = Origin(language="python", project=str(project))
    rules = read_policies(project, str(policy)).policy
    with assembled(origin, policy=rules, own=(str(policy),)) as registry:
        executor = Executor(registry, policy=rules)
        for name, is_written in (("vendor/lib.py", False), ("app/main.py", True)):
            call = ToolCall("1", "evaluate-python", {"code": f"open({name!r}, 'a').close()"})
            assert executor.execute(call).success is is_written


CONTROL = "AGENTS.md is a control file, which agents obey as instructions: evaluated code can only read it"
REFUSALS = {
    "python": "open('AGENTS.md', 'w')",
    "sbcl": '(open "AGENTS.md" :direction :output :if-exists :append)',
}


@pytest.mark.parametrize("confinement", [Confinement.BUBBLEWRAP, Confinement.LANDLOCK])
@pytest.mark.parametrize("language", REFUSALS)
@pytest.mark.contract("trust.roads.told")
def test_a_write_that_fails_says_which_tools_can(project, language, confinement):
    """«Read-only file system» sends a model to look for another way to write the same file."""
    if why_not(confinement) is not None or (language == "sbcl" and not shutil.which("sbcl")):
        pytest.skip("it cannot be had here")
    (project / "AGENTS.md").write_text("mine")
    for files, told in (
        (Files.WRITE, f"{CONTROL}, and the file tools ask a person before they write it"),
        (Files.READ, "evaluated code may only read this project, as --files read says"),
    ):
        settings = ImageSettings(language, project, confinement, Environment(files=files))
        with closing(LiveImage("test", settings.program, timeout=60)) as image:
            reply = image.evaluate(REFUSALS[language])
            assert not reply.ok
            assert told in fault(reply)


@needs_bubblewrap
@pytest.mark.contract("trust.roads.told")
def test_nothing_is_said_of_files_that_are_not_held(project):
    """A fault of the system, or of a file outside, has other causes."""
    settings = ImageSettings("python", project, Confinement.BUBBLEWRAP)
    with closing(LiveImage("test", settings.program, timeout=60)) as image:
        for raised in (
            "OSError(30, 'Read-only file system', 'app/main.py')",
            "OSError(30, 'x', 'AGENTS.md')",
        ):
            reply = image.evaluate(f"raise {raised}")
            assert "evaluated code" not in fault(reply)
        reply = image.evaluate("open('/usr/AGENTS.md', 'w')")
        assert "evaluated code" not in fault(reply)
