"""What a person at the client sees of a change, and what becomes of a choice of hunks."""

import pytest

from gramercy.execution.calls import ToolCall
from gramercy.execution.executor import Executor
from gramercy.execution.policy import Policy
from gramercy.images.opening import open_image
from gramercy.mcp.questions import ApprovalQuestion, Manner, parted
from gramercy.tools.registry import Registry
from gramercy.toolsets.core import register_core_tools

BEFORE = "".join(f"line {number}\n" for number in range(1, 31))
AFTER = BEFORE.replace("line 3\n", "line three\n").replace("line 20\n", "line twenty\n")


class Person:
    """Somebody who answers the form with what a test wants, and keeps what was shown."""

    def __init__(self, manner=Manner.FULL, **content):
        self.manner = manner
        self.content = content
        self.questions = []

    @property
    def question(self):
        """What was asked last."""
        return self.questions[-1]

    def __call__(self, tool, arguments, request):
        del tool, arguments
        self.questions.append(ApprovalQuestion(request, self.manner))
        return self.question.decide(self.content, "somebody")


@pytest.fixture
def project(tmp_path):
    (tmp_path / "poem.txt").write_text(BEFORE)
    return tmp_path


@pytest.fixture
def image(project):
    made = open_image("python", project=project)
    yield made
    made.close()


def call(project, image, person, name, policy=None, **arguments):
    registry = Registry()
    register_core_tools(registry, image, project=project)
    return Executor(registry, person, policy=policy).execute(ToolCall("1", name, arguments))


def propose(project, image, person):
    return call(
        project,
        image,
        person,
        "propose_file_edit",
        path="poem.txt",
        original=BEFORE,
        modified=AFTER,
        description="spell numbers",
    )


def test_the_form_of_an_edit_has_a_switch_for_each_hunk_and_shows_them(project, image):
    """MCP, Approval: per-hunk decisions through the form."""
    person = Person(decision="approve")
    assert propose(project, image, person).success
    assert list(person.question.schema["properties"]) == ["decision", "hunk_1", "hunk_2", "reason"]
    assert "-line 3\n+line three" in person.question.text
    assert "-line 20\n+line twenty" in person.question.text
    assert (project / "poem.txt").read_text() == AFTER


def test_only_the_hunks_that_were_left_on_are_applied_and_the_model_is_told(project, image):
    """Decision 12: accepted when at least one hunk was applied."""
    person = Person(decision="approve", hunk_1=False, reason="keep digits there")
    result = propose(project, image, person)
    assert result.success
    assert (project / "poem.txt").read_text() == BEFORE.replace("line 20\n", "line twenty\n")
    assert "rejected hunk 1 (keep digits there)" in result.content
    assert "Do not propose again" in result.content


def test_an_approval_of_no_hunk_is_a_refusal(project, image):
    result = propose(project, image, Person(decision="approve", hunk_1=False, hunk_2=False))
    assert not result.success
    assert "rejected hunks 1 and 2" in result.content
    assert (project / "poem.txt").read_text() == BEFORE


@pytest.mark.parametrize("manner", [Manner.BARE, Manner.CHOICE])
def test_a_short_form_approves_all_hunks_that_it_shows(project, image, manner):
    """Approval at the client: to accept a form as it comes is to approve what was shown."""
    assert propose(project, image, Person(manner)).success
    assert (project / "poem.txt").read_text() == AFTER


def test_after_a_no_only_the_hunks_that_are_switched_on_are_applied(project, image):
    """Approval at the client: the second form begins with everything off."""
    nothing, some = Person(Manner.MORE), Person(Manner.MORE, hunk_2=True, reason="keep digits")
    assert not propose(project, image, nothing).success
    assert (project / "poem.txt").read_text() == BEFORE
    assert list(nothing.question.schema["properties"]) == ["hunk_1", "hunk_2", "reason"]
    assert "rejected hunk 1 (keep digits)" in propose(project, image, some).content
    assert (project / "poem.txt").read_text() == BEFORE.replace("line 20\n", "line twenty\n")


@pytest.mark.contract("trust.approval.whole")
@pytest.mark.parametrize("manner", list(Manner))
def test_a_form_has_no_question_for_what_it_cannot_show(project, image, manner):
    """Trust, 7: one long hunk fits no form, alone or among others."""
    asked = []

    def look(tool, arguments, request):
        del tool, arguments
        asked.extend(parted(request, manner))
        return "denied"

    long = BEFORE.replace("line 3\n", "x" * 18_000 + "\n").replace("line 20\n", "line twenty\n")
    edit = {"path": "poem.txt", "original": BEFORE, "modified": long, "description": "fill"}
    call(project, image, look, "propose_file_edit", **edit)
    assert asked == []


def test_a_denial_counts_whatever_the_switches_say(project, image):
    result = propose(project, image, Person(decision="deny", hunk_1=True, reason="not now"))
    assert "not now" in result.content
    assert (project / "poem.txt").read_text() == BEFORE


def test_a_write_is_shown_as_a_difference(project, image):
    """Guard, Approval: the person sees the effect preview, a diff for files."""
    person = Person(decision="deny")
    call(project, image, person, "write_file", path="poem.txt", content=AFTER)
    assert "@@ hunk 1, line 3 @@\n-line 3\n+line three\n@@ hunk 2" in person.question.text
    # Only what changes is shown of a file that is there.
    assert "line 30" not in person.question.text
    assert list(person.question.schema["properties"]) == ["decision", "hunk_1", "hunk_2", "reason"]
    call(project, image, person, "write_file", path="new.txt", content="hello\n")
    assert "new.txt is a new file." in person.question.text
    assert not (project / "new.txt").exists()


def test_an_evaluation_that_is_asked_about_is_shown_as_it_would_go(project, image):
    """Guard, Approval: a dry run in a forked image for evaluations."""
    policy = Policy([{"action": "ask", "tools": ["eval_form"]}])
    person = Person(decision="deny")
    call(project, image, person, "eval_form", policy, form="garden = ['rose']\nprint(len(garden))")
    assert "Tried in a copy: it would change 1 definition." in person.question.text
    assert "garden" in person.question.text.partition("[would change]")[2]
    assert not image.evaluate("garden").ok


def test_a_preview_that_fails_does_not_keep_a_person_from_deciding(project, image):
    policy = Policy([{"action": "ask", "tools": ["eval_form"]}])
    person = Person(decision="approve")
    result = call(project, image, person, "eval_form", policy, form="1 +")
    assert "SyntaxError" in person.question.text
    assert not result.success


def test_what_could_hide_a_part_of_the_question_is_made_visible(project, image):
    person = Person(decision="deny")
    call(project, image, person, "write_file", path="new.txt", content="a\u202eb\x1b[2Jc\n")
    assert "\x1b" not in person.question.text
    assert "\u202e" not in person.question.text
