"""Every tool with a path against every way to write one: a rule that denies a file denies all of them."""

from __future__ import annotations

import re
import unicodedata

import pytest

from gramercy.execution.approval import Denied
from gramercy.execution.policy import Policy
from gramercy.toolsets.paths import ALSO_READ, READERS, WRITERS
from gramercy.workbench.sources import known_tools

SECRET = "KEY = 'hidden-4711'\n"
REAL = "secret/key.py"
# What sounds like a path and is none, each with its reason.
EXEMPT = {
    ("list_files", "glob"): "chooses among files below path, which are judged one by one",
    ("search_files", "glob"): "chooses among files below path, which are judged one by one",
    ("run_tests", "what"): "is handed to the runner in the image, as evaluated code is",
    ("edit_file", "old"): "is text of the file",
    ("edit_file", "new"): "is text of the file",
    ("write_file", "content"): "is text of the file",
    ("propose_file_edit", "original"): "is text of the file",
    ("propose_file_edit", "modified"): "is text of the file",
}
ARGUMENTS = {
    "write_file": {"content": "x = 1\n"},
    "edit_file": {"old": "KEY", "new": "NO"},
    "edit_definition": {"name": "KEY", "code": "KEY = 2"},
    "propose_file_edit": {"original": SECRET, "modified": "x = 1\n", "description": "d"},
    "search_files": {"pattern": "hidden"},
    "search_in_buffer": {"pattern": "hidden"},
}


def declaring():
    """Return the tools with declared paths, each with its argument."""
    found = {}
    for tool in known_tools(".").library().values():
        for name in {*tool.paths.reads, *tool.paths.writes} if tool.paths else ():
            found[tool.name] = name
    return found


DECLARED = declaring()
SPELLINGS = (
    "secret/key.py",
    "{root}/secret/key.py",
    "//{root}//secret//key.py",
    "secret//key.py",
    "./secret/./key.py",
    "secret/key.py/",
    "other/../secret/key.py",
    "gone/../secret/key.py",
    "../project/secret/key.py",
    "link.py",
    "chain.py",
    "absolute.py",
    "door/key.py",
    "{root}/door/./key.py",
    "hop/../key.py",
    "{outside}/secret/key.py",
)
# These name no such file here; a tool must not take them for it either.
OTHERS = (
    "~/secret/key.py",
    "secret%2Fkey.py",
    "secret/%6bey.py",
    "SECRET/key.py",
    "secret/key.py ",
    "$PWD/secret/key.py",
)


@pytest.fixture
def planted(project):
    """Return a project with one file and many ways to it."""
    (project / "secret/inner").mkdir(parents=True)
    (project / "other").mkdir()
    (project / REAL).write_text(SECRET)
    (project / "link.py").symlink_to(REAL)
    (project / "chain.py").symlink_to("other/../link.py")
    (project / "absolute.py").symlink_to(project / REAL)
    (project / "door").symlink_to("secret")
    (project / "hop").symlink_to("secret/inner")
    (project.parent / "outside").symlink_to(project)
    return project


def spelled(spelling, project):
    """Fill the places of the test into a spelling."""
    return spelling.format(root=project, outside=project.parent / "outside")


def under(desk, *rules, approver=None):
    """Put a desk under rules."""
    desk.executor = desk.executor.with_approver(approver)
    desk.executor.policy = Policy(rules)
    return desk


def approve(*_):
    """Say yes to everything."""
    return "approved"


def given(tool, path):
    """Return the arguments of a call that would use a path."""
    return {DECLARED[tool]: path, **ARGUMENTS.get(tool, {})}


@pytest.mark.contract("trust.paths.declared")
def test_every_argument_that_sounds_like_a_path_is_declared():
    """A new tool with a path must not be judged by its text."""
    undeclared = []
    for tool in known_tools(".").library().values():
        declared = {*tool.paths.reads, *tool.paths.writes} if tool.paths else set()
        for each in tool.parameters:
            sounds = re.search(
                r"\b(path|file|directory|folder)s?\b", f"{each.name} {each.description}", re.IGNORECASE
            )
            is_text = each.type in {"string", "array", "any"}
            if sounds and is_text and each.name not in declared and (tool.name, each.name) not in EXEMPT:
                undeclared.append((tool.name, each.name))
    assert not undeclared
    assert set(DECLARED) == {*READERS, *WRITERS, *ALSO_READ}


@pytest.mark.contract("trust.paths.declared")
@pytest.mark.parametrize("tool", DECLARED)
def test_fellows_are_named_with_their_own_arguments_and_categories(tool):
    """A rule by category or argument must fit the tool that it is about."""
    library = known_tools(".").library()
    paths = library[tool].paths
    assert paths is not None
    for like in paths.like:
        assert set(like.arguments) == {DECLARED[like.name]}
        assert like.categories == library[like.name].categories


@pytest.mark.contract("trust.paths.spellings")
@pytest.mark.parametrize(
    "glob", [REAL, "secret/**", "**/key.py", "./secret/*", "{root}/secret/**", "Secret/KEY.py"]
)
@pytest.mark.parametrize("tool", DECLARED)
def test_a_rule_that_denies_a_file_denies_every_spelling_of_it(paper_desk, planted, tool, glob):
    """Policy: the rule is about the file, not about the text of a call."""
    rule = {"action": "deny", "tools": tool, "arguments": {DECLARED[tool]: spelled(glob, planted)}}
    desk = under(paper_desk, rule)
    for spelling in SPELLINGS:
        result = desk.call(tool, **given(tool, spelled(spelling, planted)))
        assert result.metadata.get("denied_by") == "rule", (spelling, result.content)
        assert "hidden-4711" not in result.content
    assert (planted / REAL).read_text() == SECRET


@pytest.mark.contract("trust.paths.spellings")
@pytest.mark.parametrize("tool", DECLARED)
def test_a_question_names_the_real_file_in_every_spelling(paper_desk, planted, tool):
    """The person must see which file it is."""
    asked = []

    def person(tool, arguments, request):
        del tool, arguments
        asked.append(request)
        return Denied("no")

    desk = under(paper_desk, {"action": "ask", "tools": tool}, approver=person)
    for spelling in SPELLINGS:
        text = spelled(spelling, planted)
        result = desk.call(tool, **given(tool, text))
        assert result.metadata.get("denied_by") == "person", (spelling, result.content)
        place = asked[-1].places[DECLARED[tool]]
        assert place.name == REAL
        assert not place.is_link or f"leads through a link to {REAL}" in asked[-1].text().replace("\n↪", "")
    assert len(asked) == len(SPELLINGS)
    assert (planted / REAL).read_text() == SECRET


@pytest.mark.contract("trust.paths.spellings")
@pytest.mark.parametrize("tool", DECLARED)
def test_what_only_looks_like_the_file_does_not_lead_to_it(paper_desk, planted, tool):
    """Nothing here expands a home, decodes percents or folds case."""
    desk = under(
        paper_desk,
        {"action": "deny", "tools": "*", "arguments": {DECLARED[tool]: REAL}},
        approver=approve,
    )
    for spelling in OTHERS:
        result = desk.call(tool, **given(tool, spelling))
        assert "hidden-4711" not in result.content
    assert (planted / REAL).read_text() == SECRET


@pytest.mark.contract("trust.paths.spellings")
@pytest.mark.parametrize("tool", DECLARED)
def test_the_unicode_forms_of_a_name_are_one_to_a_rule_that_denies(paper_desk, project, tool):
    """A file system may fold them, and a person sees no difference."""
    desk = under(
        paper_desk, {"action": "deny", "tools": tool, "arguments": {DECLARED[tool]: "schlüssel/é.py"}}
    )
    for form in ("NFC", "NFD"):
        name = unicodedata.normalize(form, "schlüssel/é.py")
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(SECRET)
        for text in (name, str(project / name)):
            assert desk.call(tool, **given(tool, text)).metadata.get("denied_by") == "rule"


@pytest.mark.contract("trust.paths.allowed")
@pytest.mark.parametrize("tool", WRITERS)
def test_a_rule_that_allows_a_directory_does_not_allow_what_a_link_in_it_leads_to(paper_desk, planted, tool):
    """«Always: this directory» is about the files that are there."""
    (planted / "other/note.py").symlink_to("../secret/key.py")
    desk = under(paper_desk, {"action": "allow", "tools": tool, "arguments": {"path": "other/**"}})
    for text in ("other/note.py", "other/../secret/key.py", f"{planted}/other/note.py"):
        assert desk.call(tool, **given(tool, text)).metadata.get("denied_by") == "nobody"
    assert (planted / REAL).read_text() == SECRET


@pytest.mark.contract("trust.paths.allowed")
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_rule_that_allows_a_file_allows_it_in_every_spelling(paper_desk, planted, spelling):
    """What is written is the same."""
    desk = under(paper_desk, {"action": "allow", "tools": "write_file", "arguments": {"path": "secret/*"}})
    assert desk.call("write_file", path=spelled(spelling, planted), content="x\n").success
    assert (planted / REAL).read_text() == "x\n"


@pytest.mark.contract("trust.paths.together")
@pytest.mark.parametrize("tool", [*READERS, *ALSO_READ])
@pytest.mark.parametrize("denied", READERS)
@pytest.mark.usefixtures("planted")
def test_a_file_that_one_tool_may_not_read_is_read_by_none(paper_desk, tool, denied):
    """With `deny read_file .env` the other tools must not show it."""
    rule = {"action": "deny", "tools": denied, "arguments": {DECLARED[denied]: "secret/**"}}
    desk = under(paper_desk, rule, approver=approve)
    result = desk.call(tool, **given(tool, "door/key.py"))
    assert result.metadata.get("denied_by") == "rule", result.content
    assert "hidden-4711" not in result.content


@pytest.mark.contract("trust.paths.together")
@pytest.mark.parametrize("tool", WRITERS)
@pytest.mark.parametrize("denied", WRITERS)
def test_a_file_that_one_tool_may_not_write_is_written_by_none(paper_desk, planted, tool, denied):
    """A rule for write_file would be beside the point if edit_file could do it."""
    rule = {"action": "deny", "tools": denied, "arguments": {DECLARED[denied]: "secret/**"}}
    desk = under(paper_desk, rule, approver=approve)
    result = desk.call(tool, **given(tool, REAL))
    assert result.metadata.get("denied_by") == "rule", result.content
    assert under(desk, rule).call("read_file", path=REAL).success
    assert (planted / REAL).read_text() == SECRET


@pytest.mark.contract("trust.paths.withheld")
@pytest.mark.parametrize("action", ["deny", "ask"])
def test_a_walk_leaves_out_what_rules_keep_from_being_read_and_says_so(paper_desk, planted, action):
    """A search of the whole project shows nothing of a file that read_file would not."""
    (planted / "other/plain.py").write_text("hidden nowhere\n")
    desk = under(paper_desk, {"action": action, "tools": "read_file", "arguments": {"path": "secret/**"}})
    for arguments in ({}, {"path": ""}, {"path": "."}, {"path": str(planted)}, {"glob": "secret/**"}):
        found = desk.text("search_files", pattern="hidden", **arguments)
        assert "hidden-4711" not in found
        assert "1 file withheld by rules" in found
        listed = desk.text("list_files", **arguments)
        assert not any(line.startswith("secret/") for line in listed.splitlines())
        assert "1 file withheld by rules" in listed
    assert "other/plain.py:1: hidden nowhere" in desk.text("search_files", pattern="hidden")


@pytest.mark.contract("trust.paths.together")
@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("tool", ["read_buffer", "search_in_buffer"])
def test_the_document_that_was_opened_last_is_judged_by_its_name(paper_desk, tool):
    """A question about an edit opens the file; a call without a name must not show it after a no."""
    rule = {"action": "ask", "tools": "read_file", "arguments": {"path": "secret/**"}}
    desk = under(paper_desk, rule, approver=lambda *_: Denied("no"))
    assert not desk.call("edit_file", path=REAL, old="KEY", new="NO").success
    result = desk.call(tool, **ARGUMENTS.get(tool, {}))
    assert result.metadata.get("denied_by") == "person", result.content
    assert "hidden-4711" not in result.content


@pytest.mark.contract("trust.paths.together")
@pytest.mark.usefixtures("planted")
def test_a_rule_that_allows_a_tool_by_name_and_path_is_what_its_author_meant(paper_desk):
    """Rules about fellows tighten what is not said about the tool itself."""
    deny = {"action": "deny", "tools": "read_file", "arguments": {"path": "secret/**"}}
    allow = {"action": "allow", "tools": "check_syntax", "arguments": {"path": "secret/*.py"}}
    assert under(paper_desk, deny, allow).call("check_syntax", path=REAL).success
    assert (
        not under(paper_desk, deny, {"action": "allow", "tools": "check_*"})
        .call("check_syntax", path=REAL)
        .success
    )


@pytest.mark.contract("trust.paths.together")
@pytest.mark.usefixtures("planted")
def test_a_rule_about_a_tool_as_a_whole_is_not_about_its_fellows(paper_desk):
    """Only paths are held together."""
    desk = under(paper_desk, {"action": "deny", "tools": "read_file"})
    assert not desk.call("read_file", path=REAL).success
    assert desk.call("check_syntax", path=REAL).success
