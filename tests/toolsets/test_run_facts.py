"""What the journal learns of each call (image, states, sandbox, files), and what approvals are sealed to."""

from __future__ import annotations

import pytest

from gramercy.execution.approval import ApprovalRequest, Approved, Denied
from gramercy.execution.executor import Executor
from gramercy.execution.policy import Policy
from gramercy.images.opening import open_image
from gramercy.journal.memory import MemoryJournal
from gramercy.tools.content import RunFacts, TextWithFacts, ToolOutput, facts_of, with_facts
from gramercy.tools.registry import Registry
from gramercy.toolsets.core import register_core_tools, register_session_tools
from gramercy.toolsets.project import register_project_tools
from gramercy.toolsets.workspace import Workspace

ASK_ALL = Policy([{"action": "ask", "tools": ["*"]}])


class Bench:
    """Tools on a real image of Python, with a journal and a person."""

    def __init__(self, image, project, person=None, policy=None):
        self.image, self.project, self.journal = image, project, MemoryJournal()
        registry, workspace = Registry(), Workspace(project)
        register_core_tools(registry, image, project=workspace)
        register_project_tools(registry, image, workspace)
        register_session_tools(registry, image, language="python", workspace=workspace)
        self.requests: list[ApprovalRequest] = []

        def decide(_tool, _arguments, request):
            self.requests.append(request)
            return person(self, request) if person is not None else Approved()

        more = {} if policy is None else {"policy": policy}
        self.executor = Executor(registry, decide, journal=self.journal, **more)

    def call(self, name, /, **arguments):
        return self.executor.execute({"id": "1", "name": name, "arguments": arguments})

    def facts(self, name, /, **arguments):
        """Run a call and return the facts of its end."""
        self.call(name, **arguments)
        return self.journal.records()[0].facts


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    project = tmp_path_factory.mktemp("project")
    image = open_image("python", project=project)
    yield image, project
    image.close()


@pytest.fixture
def bench(shared):
    image, project = shared
    image.reset()
    for file in project.glob("*.txt"):
        file.unlink()
    return Bench(image, project)


@pytest.mark.contract("journal.images.facts.evaluation")
def test_an_evaluation_tells_where_it_ran(bench):
    first = bench.facts("eval_form", form="x = 1")
    second = bench.facts("eval_form", form="x = 2")
    assert first.image == bench.image.name
    assert (second.before, first.after) == (first.after, first.after)
    assert second.after != second.before
    assert second.epoch == bench.image.epoch() != first.epoch
    assert second.sandbox in {"bubblewrap", "landlock"}


def test_a_failed_evaluation_tells_it_too(bench):
    facts = bench.facts("eval_form", form="1 / 0")
    assert (facts.image, facts.epoch) == (bench.image.name, bench.image.epoch())
    assert facts.detail


@pytest.mark.contract("journal.images.facts.safe")
def test_a_safe_call_tells_in_which_state_it_looked(bench):
    after = bench.facts("eval_form", form="def area(a): return a")
    facts = bench.facts("describe_symbol", symbol="area")
    assert (facts.image, facts.epoch) == (after.image, after.epoch)
    assert (facts.before, facts.after) == (after.after, after.after)


@pytest.mark.contract("journal.images.facts.evaluated-files")
def test_files_that_evaluated_code_changed_are_told(bench):
    facts = bench.facts("eval_form", form="open('note.txt', 'w').write('x')")
    assert facts.files == ("created note.txt",)


@pytest.mark.contract("journal.images.facts.files")
def test_files_that_tools_wrote_are_told(bench):
    assert bench.facts("write_file", path="a.txt", content="one\n").files == ("created a.txt",)
    assert bench.facts("write_file", path="a.txt", content="two\n").files == ("changed a.txt",)
    assert bench.facts("edit_file", path="a.txt", old="two", new="six").files == ("changed a.txt",)
    edit = {"original": "six\n", "modified": "ten\n", "description": "more"}
    assert bench.facts("propose_file_edit", path="a.txt", **edit).files == ("changed a.txt",)


def test_an_undo_tells_from_where_to_where_and_which_files_went_back(bench):
    there = bench.facts("eval_form", form="open('note.txt', 'w').write('x')")
    facts = bench.facts("undo_last")
    assert (facts.before, facts.after) == (there.after, there.before)
    assert facts.files == ("gone note.txt",)
    facts = bench.facts("rollback_image", checkpoint=there.after)
    assert (facts.before, facts.after, facts.epoch) == (there.before, there.after, there.epoch)


def test_a_definition_that_is_edited_and_loaded_tells_file_and_state(bench):
    (bench.project / "shapes.py").write_text("def area(a):\n    return a\n")
    code = "def area(a):\n    return a * a"
    facts = bench.facts("edit_definition", path="shapes.py", name="area", code=code, load=True)
    assert facts.files[0] == "changed shapes.py"
    assert facts.after == bench.image.span().after != ""
    assert bench.image.evaluate("__import__('shapes').area(3)").values == ["9"]


def test_the_text_of_a_result_is_only_the_text(bench):
    result = bench.call("eval_form", form="1 + 1")
    assert type(result.content) is str
    assert result.content == "=> 2"


@pytest.mark.contract("journal.images.states.key")
def test_a_kept_state_names_the_call_that_led_to_it(bench):
    bench.call("eval_form", form="x = 1")
    key = bench.journal.records()[0].key
    bench.call("eval_form", form="x")
    bench.image.evaluate("x = 2")
    assert [info.key for info in bench.image.checkpoints()] == [0, key, 0]
    assert [info.key for info in bench.image.look().checkpoints] == [0, key, 0]


# What approvals are sealed to


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("eval_form", {"form": "y = 1"}),
        ("compile_form", {"form": "def g(): pass"}),
        ("evaluate-python", {"code": "y = 1"}),
        ("load-system", {"system": "json"}),
        ("undo_last", {}),
        ("rollback_image", {"checkpoint": "c1"}),
        ("reset-session", {}),
    ],
)
@pytest.mark.contract("journal.images.seal.image")
def test_a_call_that_acts_on_the_image_is_asked_about_again_when_its_state_changed(shared, tool, arguments):
    """Seals include the state of the target: the image's epoch."""
    image, project = shared
    image.reset()

    def person(bench, _request):
        if len(bench.requests) == 1:
            image.evaluate("z = 1")
            return Approved()
        return Denied("seen")

    bench = Bench(image, project, person, ASK_ALL)
    result = bench.call(tool, **arguments)
    assert [bool(request.changes) for request in bench.requests] == [False, True]
    assert "what the call acts on has changed" in bench.requests[1].changes[0]
    assert not result.success


@pytest.mark.contract("journal.images.seal.look")
def test_a_look_meanwhile_voids_no_approval(shared):
    image, project = shared
    image.reset()

    def person(_bench, _request):
        image.evaluate("1 + 1")
        image.ask("definitions")
        image.look()
        return Approved()

    bench = Bench(image, project, person, ASK_ALL)
    assert bench.call("eval_form", form="y = 1").success
    assert len(bench.requests) == 1


def test_an_approval_holds_when_the_change_meanwhile_was_undone(shared):
    image, project = shared
    image.reset()

    def person(_bench, _request):
        image.evaluate("z = 1")
        image.undo()
        return Approved()

    bench = Bench(image, project, person, ASK_ALL)
    assert bench.call("eval_form", form="y = 1").success
    assert len(bench.requests) == 1


def test_the_first_call_starts_the_image_and_is_asked_about_once(tmp_path):
    """The dry run starts the image: that is no change of its state."""
    image = open_image("python", project=tmp_path)
    try:
        bench = Bench(image, tmp_path, policy=ASK_ALL)
        assert bench.call("eval_form", form="y = 1").success
        assert len(bench.requests) == 1
    finally:
        image.close()


@pytest.mark.contract("journal.images.seal.file")
def test_a_file_that_is_loaded_is_sealed_with_the_state(shared):
    image, project = shared
    image.reset()
    (project / "loaded.py").write_text("a = 1\n")

    def person(bench, _request):
        if len(bench.requests) == 1:
            (project / "loaded.py").write_text("a = 2\n")
            return Approved()
        return Denied("seen")

    bench = Bench(image, project, person, ASK_ALL)
    bench.call("load_file", path="loaded.py")
    assert len(bench.requests) == 2


# The dry run


@pytest.mark.contract("journal.images.effect.dry-run")
def test_a_dry_run_tells_in_parts_what_an_evaluation_would_do(shared):
    image, project = shared
    image.reset()
    bench = Bench(image, project, lambda _bench, _request: Denied("seen"), ASK_ALL)
    bench.call("eval_form", form="def h(): pass\nprint('hello')\nopen('made.txt', 'w')")
    effect = bench.requests[0].effect_data
    assert effect["would_change"] == ["function __main__.h defined"]
    assert any("made.txt" in each for each in effect["would_touch"])
    assert "hello" in effect["output"]
    assert "PermissionError" in effect["error"]
    assert effect["state"] == f"{image.name} at {image.epoch()}"
    assert not (project / "made.txt").exists()
    summary, caution = effect["note"].split("\n")
    assert summary.endswith(": it would change 1 definition, touch things outside, end with PermissionError.")
    # The error is the copy's: a person must not take it for what would happen.
    assert "the call itself would go on" in caution


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("1 + 1", "it would change no definition, touch nothing outside."),
        ("1 / 0", "it would end with ZeroDivisionError."),
        ("a, b = 1, 2", "it would change 2 definitions."),
    ],
)
def test_a_dry_run_says_in_a_line_what_came_of_it(shared, form, told):
    image, project = shared
    image.reset()
    bench = Bench(image, project, lambda _bench, _request: Denied("seen"), ASK_ALL)
    bench.call("eval_form", form=form)
    assert bench.requests[0].effect_data["note"] == f"Tried in a copy: {told}"


@pytest.mark.contract("journal.images.effect.plain")
def test_a_plain_evaluation_makes_no_dry_run(bench, monkeypatch):
    def refuse(*_arguments, **_options):
        raise AssertionError("a dry run was made")

    monkeypatch.setattr(bench.image, "preview", refuse)
    assert bench.call("eval_form", form="1").success
    assert bench.call("evaluate-python", code="w = 1").success


# The carriers


def test_facts_come_with_text_and_with_output_and_only_once():
    facts, other = RunFacts("a"), RunFacts("b")
    text = with_facts("=> 1", facts)
    assert (text, type(text), facts_of(text)) == ("=> 1", TextWithFacts, facts)
    output = with_facts(ToolOutput(None, error="no"), facts)
    assert facts_of(output) == facts
    assert facts_of(with_facts(output, other)) == facts
    assert facts_of(with_facts(text, other)) == facts
    assert with_facts([1], facts) == [1]
    assert facts_of("=> 1") is None
