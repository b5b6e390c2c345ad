"""Control files are asked about in every mode and under every rule that does not name them."""

from __future__ import annotations

import pytest

from gramercy.execution.approval import Approved, Denied
from gramercy.execution.policy import Action, Policy
from gramercy.images.guarded import GIT, KINDS, reader_of
from gramercy.toolsets.paths import WRITERS
from gramercy.workbench.always import offered_rules
from gramercy.workbench.modes import Mode, approver_in, policy_in

NAMES = (
    ".envrc",
    ".mcp.json",
    ".vscode/tasks.json",
    ".venv/bin/python",
    "backend/.mcp.json",
    "gramercy.toml",
    "AGENTS.md",
    "lib/CLAUDE.md",
    ".github/workflows/ci.yml",
)
EDITS = {
    "write_file": {"content": "new\n"},
    "edit_file": {"old": "old", "new": "new"},
    "propose_file_edit": {"original": "old\n", "modified": "new\n", "description": "d"},
}
# One of each class; git's own files are refused altogether.
ONE_OF_EACH = (
    *("gramercy.toml", ".vscode/tasks.json", ".mcp.json", ".envrc", ".venv/bin/python", "sitecustomize.py"),
    *(".husky/pre-commit", ".cargo/config.toml", ".npmrc", "CLAUDE.md", ".github/workflows/ci.yml"),
)


@pytest.fixture(params=NAMES)
def control(request, project):
    """Return the name of a control file that is there."""
    (project / request.param).parent.mkdir(parents=True, exist_ok=True)
    (project / request.param).write_text("old\n")
    return request.param


def asked_by(desk, *rules, mode=Mode.ASK):
    """Put a desk under rules and a mode; return the list of what a person is asked, who says no."""
    asked = []

    def person(tool, arguments, request):
        del tool, arguments
        asked.append(request)
        return Denied("no")

    desk.executor = desk.executor.with_approver(approver_in(mode, person))
    desk.executor.policy = policy_in(mode, Policy(rules))
    return asked


@pytest.mark.contract("trust.roads.tools")
def test_every_class_is_tried_in_every_mode():
    """A class without an example would be believed."""
    of_git = reader_of(GIT)
    assert {reader_of(name) for name in ONE_OF_EACH} | {of_git} == {kind.reader for kind in KINDS}


@pytest.mark.contract("trust.roads.tools")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_each_mode_asks_about_each_class(paper_desk, project, mode, name):
    """The mode that makes edits unasked wrote CLAUDE.md and workflows: others obey and run what is there."""
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text("old\n")
    for tool, arguments in EDITS.items():
        for rules in ((), ({"action": "allow"},)):
            asked = asked_by(paper_desk, *rules, mode=mode)
            told = paper_desk.failure(tool, path=name, **arguments)
            assert (project / name).read_text() == "old\n"
            if mode is Mode.PLAN:
                assert "above the ceiling" in told
            else:
                assert f"control file, which {reader_of(name)}" in asked[0].verdict.explanation
    assert paper_desk.text("read_file", path=name) == "old\n"


@pytest.mark.contract("trust.roads.tools")
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_each_tool_that_writes_asks_about_each_class(paper_desk, name):
    """Tools that reach the same files are held together; one more tool is found here."""
    registry = paper_desk.executor.settings.registry
    writers = [tool for tool in registry.library().values() if tool.paths and tool.paths.writes]
    assert {tool.name for tool in writers} == set(WRITERS)
    for tool in writers:
        arguments = {"path": name}
        verdict = Policy([{"action": "allow"}]).why(tool, arguments, tool.places(arguments))
        assert (verdict.action, verdict.must_ask) == (Action.ASK, True), tool.name


@pytest.mark.contract("trust.paths.guarded")
@pytest.mark.parametrize("tool", EDITS)
@pytest.mark.parametrize(
    "rule",
    [
        {"action": "allow"},
        {"action": "allow", "tools": ["write_file", "edit_file", "propose_file_edit"]},
        {"action": "allow", "arguments": {"path": "**"}},
        {"action": "allow", "safety": "dangerous"},
    ],
)
def test_a_rule_that_does_not_name_a_control_file_does_not_allow_it(paper_desk, project, control, tool, rule):
    """«Always: this directory» was given for notes, not for what a shell runs."""
    asked = asked_by(paper_desk, rule)
    told = paper_desk.failure(tool, path=control, **EDITS[tool])
    assert "User denied" in told
    assert f"{control} is a control file, which" in asked[0].text().replace("\n↪", "")
    assert (project / control).read_text() == "old\n"


@pytest.mark.contract("trust.later.own-question")
@pytest.mark.parametrize("tool", EDITS)
def test_an_environment_of_any_name_is_asked_about(paper_desk, project, tool):
    """What makes it one is not its name but what is in it."""
    (project / "envs" / "main" / "bin").mkdir(parents=True)
    (project / "envs" / "main" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    program = project / "envs" / "main" / "bin" / "serve"
    program.write_text("old\n")
    asked = asked_by(paper_desk, {"action": "allow"})
    told = paper_desk.failure(tool, path="envs/main/bin/serve", **EDITS[tool])
    assert "User denied" in told
    assert "envs/main/bin/serve is a control file, which" in asked[0].text().replace("\n↪", "")
    assert program.read_text() == "old\n"


@pytest.mark.contract("trust.paths.guarded")
@pytest.mark.parametrize("tool", EDITS)
def test_a_rule_that_names_a_control_file_allows_it(paper_desk, project, control, tool):
    """A person may want it so, and says it in so many words."""
    asked = asked_by(paper_desk, {"action": "allow", "tools": tool, "arguments": {"path": control}})
    paper_desk.text(tool, path=str(project / control), **EDITS[tool])
    assert not asked
    assert (project / control).read_text() == "new\n"


@pytest.mark.contract("trust.paths.guarded")
@pytest.mark.parametrize("tool", ["edit_file", "propose_file_edit"])
def test_the_mode_that_makes_edits_unasked_asks_about_control_files(paper_desk, project, control, tool):
    """An undo comes too late for a file that a program runs when it changes."""
    asked = asked_by(paper_desk, mode=Mode.EDITS)
    paper_desk.failure(tool, path=control, **EDITS[tool])
    assert len(asked) == 1
    assert (project / control).read_text() == "old\n"
    (project / "plain.md").write_text("old\n")
    paper_desk.text(tool, path="plain.md", **EDITS[tool])
    assert len(asked) == 1


@pytest.mark.contract("trust.paths.guarded")
def test_a_link_whose_own_name_is_that_of_a_control_file_is_asked_about(paper_desk, project):
    """What the shell reads is the file behind it."""
    (project / "shared").write_text("old\n")
    (project / ".envrc").symlink_to("shared")
    asked = asked_by(paper_desk, {"action": "allow", "arguments": {"path": "**"}})
    paper_desk.failure("edit_file", path=".envrc", old="old", new="new")
    assert asked[0].verdict.must_ask
    assert (project / "shared").read_text() == "old\n"


@pytest.mark.contract("trust.paths.guarded")
def test_a_control_file_can_be_read_without_a_question(paper_desk, control):
    """Reading one runs nothing."""
    asked = asked_by(paper_desk)
    assert paper_desk.text("read_file", path=control) == "old\n"
    assert not asked


@pytest.mark.contract("trust.paths.offers")
def test_what_is_always_allowed_is_offered_under_the_real_name(paper_desk, project):
    """A rule for the name of a link would allow whatever the link leads to later."""
    (project / "docs").mkdir()
    (project / "docs/real.md").write_text("x")
    (project / "link.md").symlink_to("docs/real.md")
    tool = paper_desk.executor.settings.registry.resolve("write_file")
    arguments = {"path": "link.md", "content": "y"}
    offers = offered_rules(tool.name, arguments, tool.places(arguments))
    assert [offer.rule.arguments.get("path") for offer in offers] == ["docs/real.md", "docs/**", None]


@pytest.mark.contract("trust.paths.offers")
def test_of_a_control_file_nothing_wider_than_itself_is_offered(paper_desk, control):
    """A directory or a tool would not cover it."""
    tool = paper_desk.executor.settings.registry.resolve("write_file")
    arguments = {"path": f"./{control}", "content": "y"}
    offers = offered_rules(tool.name, arguments, tool.places(arguments))
    assert [dict(offer.rule.arguments) for offer in offers] == [{"path": control}]


@pytest.mark.contract("trust.paths.guarded")
def test_a_control_file_that_came_under_the_question_is_asked_about_as_one(paper_desk, project):
    """A directory that becomes a link between the question and the yes leads elsewhere."""
    (project / "notes").mkdir()
    (project / ".vscode").mkdir()
    asked = []

    def person(tool, arguments, request):
        del tool, arguments
        asked.append(request)
        (project / "notes").rmdir()
        (project / "notes").symlink_to(".vscode")
        return Approved(shown=request.text())

    paper_desk.executor = paper_desk.executor.with_approver(person)
    told = paper_desk.failure("write_file", path="notes/tasks.json", content="{}")
    assert "link to .vscode/tasks.json" in told
    assert len(asked) == 1
    assert not list((project / ".vscode").iterdir())
