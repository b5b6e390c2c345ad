"""What is offered beside tools, with real images in this process and no protocol in between."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gramercy import Approved, tool
from gramercy.errors import GramercyError
from gramercy.execution.executor import Executor
from gramercy.gram.specification import specifications_in
from gramercy.gram.syntax.reader import read
from gramercy.images.base import Gallery
from gramercy.images.opening import open_image
from gramercy.journal.base import Facts, NewCall, State
from gramercy.journal.memory import MemoryJournal
from gramercy.mcp.catalogue import Catalog
from gramercy.tools.context import Call, enter_call, leave_call
from gramercy.tools.registry import Registry
from gramercy.toolsets.core import register_core_tools, register_session_tools
from gramercy.workbench.audit import LONGEST_DETAIL, MOST_CALLS, Audit
from gramercy.workbench.deferred import DeferredImage, offers_of

DEFINE = {"sbcl": "(defun cube-of (x) (* x x x))", "python": "def cube_of(x): return x ** 3"}
CUBE = {"sbcl": "cube-of", "python": "cube_of"}


@pytest.fixture(params=["sbcl", "python"])
def language(request):
    """Return the language of an image."""
    if request.param == "sbcl" and shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    return request.param


@pytest.fixture
def served(tmp_path):
    """Return a function that makes a catalogue for images, their executor, and the images."""
    opened = []

    def make(*languages, max_safety=None, categories=()):
        def opener(name, spoken):
            return open_image(spoken, name=name, project=tmp_path)

        images = [DeferredImage(f"image{number}", spoken, opener) for number, spoken in enumerate(languages)]
        opened.extend(images)
        registry = Registry()
        register_core_tools(registry, Gallery(images), project=tmp_path)
        register_session_tools(registry, Gallery(images), language=languages[0])
        executor = Executor(registry, max_safety_level=max_safety)
        return offers_of(images, executor, categories), executor, images

    yield make
    for image in opened:
        image.close()


def run(executor, name, **arguments):
    return executor.execute({"id": f"{name}-1", "name": name, "arguments": arguments})


def look(catalog, uri):
    source, variables = catalog.find(uri)
    return source.read(variables) if variables else source.read()


def complete(catalog, of, argument, typed, **known):
    found = catalog.completions[of, argument](typed, known)
    return found if isinstance(found, list) else asyncio.run(found)


def test_every_image_has_its_resources_and_the_server_has_two(served):
    """MCP checklist 12: definitions, transcript, audit, specifications as gram."""
    catalog, _, _ = served("python", "python")
    assert list(catalog.resources) == [
        "gramercy://audit",
        "gramercy://tools.gram",
        "image://image0/definitions",
        "image://image0/transcript",
        "image://image1/definitions",
        "image://image1/transcript",
    ]
    assert list(catalog.templates) == ["image://{name}/symbol/{symbol}"]
    assert all(each.description and each.mime_type for each in catalog.resources.values())


def test_reading_and_completing_starts_no_image_that_nobody_has_used(served):
    """MCP checklist 12, and performance: an image starts when a tool first uses it."""
    catalog, _, (image,) = served("python")
    for uri in ("image://image0/definitions", "image://image0/transcript", "image://image0/symbol/len"):
        assert "not started yet" in look(catalog, uri)
    assert complete(catalog, "image://{name}/symbol/{symbol}", "symbol", "le", name="image0") == []
    assert not image.was_used


def test_the_resources_are_the_texts_of_the_tools(served, language):
    """MCP checklist 12: the same words wherever one looks."""
    catalog, executor, _ = served(language)
    run(executor, "eval_form", form=DEFINE[language])
    definitions, transcript = look(catalog, "image://image0/definitions"), "image://image0/transcript"
    assert definitions == run(executor, "list-definitions").content
    assert CUBE[language] in definitions.lower()
    assert look(catalog, transcript) == run(executor, "get_repl_history").content
    symbol = look(catalog, f"image://image0/symbol/{CUBE[language]}")
    assert symbol == run(executor, "describe_symbol", symbol=CUBE[language]).content


def test_a_symbol_with_a_slash_is_read_under_its_encoded_address(served):
    """RFC 6570: a variable of an address is encoded."""
    if shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    catalog, executor, _ = served("sbcl")
    run(executor, "eval_form", form="(defvar *a/b* 42)")
    assert "42" in look(catalog, "image://image0/symbol/*a%2Fb*")


def test_what_is_not_there_is_refused_with_a_hint(served, language):
    """Errors say what to try next."""
    catalog, executor, _ = served(language)
    run(executor, "eval_form", form=DEFINE[language])
    with pytest.raises(GramercyError, match="did you mean 'image0'"):
        look(catalog, "image://imge0/symbol/x")
    with pytest.raises(GramercyError, match=r"not (found|defined)"):
        look(catalog, "image://image0/symbol/there_is_no_such")


def test_what_could_steer_a_terminal_is_left_out(served):
    """MCP checklist 11: control characters stripped from output."""
    catalog, executor, _ = served("python")
    run(executor, "eval_form", form="print(chr(27) + '[31mred')")
    transcript = look(catalog, "image://image0/transcript")
    assert "red" in transcript
    assert "\x1b" not in transcript


def test_names_of_images_and_of_their_definitions_are_completed(served, language):
    """MCP checklist 12: completion of the template's arguments."""
    catalog, executor, _ = served(language, language)
    template = "image://{name}/symbol/{symbol}"
    run(executor, "eval_form", form=DEFINE[language], image="image1")
    assert complete(catalog, template, "name", "image") == ["image0", "image1"]
    assert complete(catalog, template, "name", "x") == []
    for typed in ("", CUBE[language][:4]):
        names = complete(catalog, template, "symbol", typed, name="image1")
        assert CUBE[language] in names[0].lower()
        assert CUBE[language] in look(catalog, f"image://image1/symbol/{names[0]}").lower()
    assert complete(catalog, template, "symbol", "x" * 1_000, name="image1") == []
    assert complete(catalog, template, "symbol", "x", name="nobody") == []


def test_names_of_a_package_are_completed_the_closest_first(served, language):
    """MCP checklist 12: symbols by apropos."""
    catalog, executor, _ = served(language)
    run(executor, "eval_form", form=DEFINE[language])
    typed, first = {"sbcl": ("cl:mapca", "MAPCAN"), "python": ("builtins.le", "builtins.len")}[language]
    assert complete(catalog, "explain-symbol", "symbol", typed, image="image0")[0] == first


def test_a_busy_image_has_no_names_and_nobody_waits_for_it(served):
    """Nothing hangs: completion waits a moment, and then the next one not at all."""
    catalog, executor, (image,) = served("python")
    run(executor, "eval_form", form="1")
    values = catalog.completions["explain-symbol", "symbol"]

    async def typing():
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        watch = lambda _: loop.call_soon_threadsafe(begun.set)  # noqa: E731 - as short as it is
        busy = asyncio.create_task(image.aevaluate("while True: pass", watch=watch))
        await begun.wait()
        found = [await values("le", {}) for _ in range(3)]
        image.interrupt()
        await busy
        return found

    assert asyncio.run(asyncio.wait_for(typing(), 20)) == [[], [], []]


def test_the_tools_are_written_as_specifications_that_can_be_read_back(served):
    """MCP checklist 12: specs as gram."""
    catalog, executor, _ = served("python", "python")
    specifications = specifications_in(read(look(catalog, "gramercy://tools.gram"), strict=True))
    assert [each.name for each in specifications] == [each.name for each in executor.tools()]
    for specification in specifications:
        served_tool = executor.settings.registry.resolve(specification.name)
        assert specification.description == served_tool.description
        assert set(specification.schema["properties"]) == set(served_tool.schema["properties"])
        assert (specification.safety or "safe") == served_tool.level_word


def test_only_tools_that_are_served_are_written(served):
    """Guard: a ceiling and categories hide tools, here too."""
    catalog, _, _ = served("python", max_safety="safe", categories=["time-travel"])
    names = {each.name for each in specifications_in(read(look(catalog, "gramercy://tools.gram")))}
    assert names == {"checkpoint_image", "list_checkpoints"}


def test_a_call_that_changes_an_image_is_told_to_those_who_watch_it(served):
    """MCP: notifications/resources/updated, for the image that was changed alone."""
    catalog, executor, _ = served("python", "python")
    told = []
    catalog.watch(lambda change, uri: told.append((change, uri)))
    catalog.subscribed()
    run(executor, "eval_form", form="x = 1", image="image1")
    run(executor, "undo_last", image="image1")
    changed = [("resource", f"image://image1/{kind}") for kind in ("definitions", "transcript")]
    assert [each for each in told if "image" in each[1]] == changed * 2
    told.clear()
    run(executor, "list-definitions", image="image1")
    assert told == [("resource", "gramercy://audit")]


def test_the_catalogue_is_filled_when_it_is_first_looked_into_and_that_is_no_change():
    """Performance: registering costs nothing before somebody asks."""
    filled = []

    def fill(catalog):
        filled.append(catalog.resource("a://b", "b", lambda: "text"))

    catalog = Catalog(fill)
    told = []
    catalog.watch(lambda *change: told.append(change))
    catalog.updated("a://b")
    assert filled == []
    assert list(catalog.resources) == ["a://b"]
    assert told == [("resource", "a://b")]
    assert catalog.remove("a://b")
    assert (told[-1], len(filled)) == (("resources", ""), 1)


def test_a_catalogue_is_seen_whole_by_a_thread_that_looks_while_it_is_filled():
    """Performance: filling it late must not show a client half of it."""
    begun, may_end = threading.Event(), threading.Event()

    def fill(catalog):
        catalog.resource("a://a", "a", lambda: "text")
        begun.set()
        assert may_end.wait(30)
        catalog.resource("a://b", "b", lambda: "text")

    catalog = Catalog(fill)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: list(catalog.resources))
        assert begun.wait(30)
        second = pool.submit(lambda: list(catalog.resources))
        may_end.set()
        assert first.result(30) == second.result(30) == ["a://a", "a://b"]


def test_a_catalogue_that_cannot_be_filled_says_so_each_time():
    """House: the second client is not shown an empty list instead of the fault."""

    def fill(_catalog):
        raise ValueError("no offers")

    catalog = Catalog(fill)
    for _ in range(2):
        with pytest.raises(ValueError, match="no offers"):
            list(catalog.prompts)


def prompt(catalog, prompt_name, **arguments):
    return catalog.prompts[prompt_name].get(arguments)


def test_the_prompt_for_work_teaches_the_order_of_steps(served):
    """MCP checklist 12: look, preview, evaluate, undo."""
    catalog, _, _ = served("python")
    text = prompt(catalog, "work-in-the-image", goal="Sort the {invoices}.")
    places = [text.index(word) for word in ("list-definitions", "preview_form", "eval_form", "undo_last")]
    assert places == sorted(places)
    assert "The goal: Sort the {invoices}." in text
    assert "evaluate-lisp" not in text
    assert text == prompt(catalog, "work-in-the-image", goal="Sort the {invoices}.", image=" ")
    assert "Ask me first" in prompt(catalog, "work-in-the-image")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("explain-symbol", {"symbol": "len"}, ["Explain len", "describe_symbol", "who_calls"]),
        ("repair-last-error", {}, ["get_last_error", "preview_form", "undo_last"]),
        ("review-changes", {}, ["list-definitions", "since its session began", "Change nothing"]),
    ],
)
def test_the_other_prompts_name_what_they_need(served, name, arguments, words):
    """MCP checklist 12: prompts as extras."""
    catalog, _, (image, _) = served("python", "python")
    text = prompt(catalog, name, image="image1", **arguments)
    assert all(word in text for word in [*words, "image1 (Python)", "argument image: image1"])
    assert len(text) < 2_000
    assert not image.was_used


def test_prompts_name_only_tools_that_are_there(served):
    """A model must not be sent to tools it does not have."""
    catalog, _, _ = served("python", max_safety="safe")
    for name in ("work-in-the-image", "repair-last-error"):
        text = prompt(catalog, name)
        assert "describe_symbol" in text
        assert "preview_form" not in text
        assert "eval_form" not in text
        assert "undo_last" not in text


def test_a_prompt_refuses_what_it_cannot_use(served):
    """Errors say what to try next."""
    catalog, _, _ = served("python")
    with pytest.raises(GramercyError, match="needs a symbol"):
        prompt(catalog, "explain-symbol", symbol=" ")
    with pytest.raises(GramercyError, match="there is no image 'ruby'"):
        prompt(catalog, "review-changes", image="ruby")


@pytest.mark.contract("clients.prompts.template")
def test_a_prompt_can_be_asked_for_as_a_template(served):
    """Opencode asks with $1, $2, … for the arguments, and later puts there what the person types."""
    catalog, _, _ = served("python")
    text = prompt(catalog, "explain-symbol", symbol="$1", image="$2")
    assert "Explain $1 in the live image image0 (Python)" in text
    # With one image there is nothing to choose, and what is left empty leaves no hole.
    assert "$2" not in text
    text = prompt(catalog, "work-in-the-image", goal="$1", image="$2")
    assert "The goal: $1" in text
    assert "If none is given, ask me first what the goal is." in text


@pytest.mark.contract("clients.prompts.template")
def test_a_template_names_the_images_to_choose_from(served):
    """Which one is meant is known when the person has typed it."""
    catalog, _, _ = served("python", "python")
    text = prompt(catalog, "review-changes", image="$1")
    assert (
        'in the live image that I name here: "$1" (image0 or image1; image0 if none is named) since' in text
    )
    assert "The tools take its name as the argument image." in text


class Caller(Call):
    """A call of somebody in particular."""

    __slots__ = ("who",)

    def __init__(self, who):
        self.who = who

    @property
    def principal(self):
        """Who calls."""
        return self.who


def called_by(who, executor, call_id, name, **arguments):
    token = enter_call(Caller(who))
    try:
        return executor.execute({"id": call_id, "name": name, "arguments": arguments})
    finally:
        leave_call(token)


@tool(safety_level="dangerous")
def launch(target: str, api_token: str = "") -> str:
    """Do what cannot be undone."""
    return f"launched at {target}{api_token[:0]}"


@tool(safety_level="cautious")
def press(text: str) -> str:
    """Do something small."""
    if text == "wrong":
        raise ValueError("it\nbroke")
    return text


@pytest.fixture
def audited():
    """Return an executor whose calls can be read, and its journal."""
    journal = MemoryJournal()
    approve = {"moon": "approved", "earth": "denied"}
    handler = lambda _tool, arguments: approve[arguments["target"]]  # noqa: E731 - as short as it is
    return Executor(Registry([launch, press]), handler, journal=journal), journal


def test_the_audit_tells_calls_states_and_approvals_on_a_line_each(audited):
    """MCP checklist 12: audit; guard: the life of a call."""
    executor, journal = audited
    assert Audit(journal).text("ada") == "No tool has been called yet."
    for number, target in enumerate(["moon", "earth"]):
        called_by("ada", executor, f"c{number}", "launch", target=target)
    called_by("ada", executor, "c2", "press", text="wrong")
    moon, earth, wrong = Audit(journal).text("ada").splitlines()
    assert "launch: requested → awaiting approval → approved → executing → done" in moon
    assert '"moon"' in moon
    assert "launch: requested → awaiting approval → denied" in earth
    assert "User denied" in earth
    assert "press: executing → failed" in wrong
    assert "it broke" in wrong


@pytest.mark.contract("trust.approval.audited")
def test_the_audit_names_the_sandbox_of_each_call():
    """Trust, 9: the sandbox in force is in each audit record."""
    journal = MemoryJournal()
    executor = Executor(Registry([launch, press]), lambda *_: "approved", journal=journal)
    called_by("ada", executor, "c0", "launch", target="moon")
    called_by("bob", executor, "c1", "press", text="x")
    lines = Audit(journal, sandbox=lambda: "sandbox landlock").text("ada").splitlines()
    assert ["; sandbox landlock" in line for line in lines] == [True, True]


@pytest.mark.contract("trust.approval.reason")
def test_the_audit_has_what_the_person_said_who_approved(audited):
    """Trust, 7: the reason is kept, for the one whose call it was."""
    executor, journal = audited
    executor = executor.with_approver(lambda *_: Approved("Ada", "once, for the demo"))
    called_by("ada", executor, "c0", "launch", target="moon")
    assert "; approved with the words: once, for the demo" in Audit(journal).text("ada")
    assert "demo" not in Audit(journal).text("bob")


def test_the_audit_hides_secrets_and_cuts_long_arguments(audited):
    """MCP checklist 12: nothing secret is shown, arguments are bounded."""
    executor, journal = audited
    called_by("ada", executor, "c0", "launch", target="moon", api_token='se"cret')
    called_by("ada", executor, "c1", "press", text="x" * 5_000)
    first, second = Audit(journal).text("ada").splitlines()
    assert "cret" not in first
    assert '"api_token":"…"' in first.replace(" ", "")
    assert '"moon"' in first
    assert len(second) < LONGEST_DETAIL + 100


def test_the_audit_shows_what_a_call_was_about_to_its_own_caller_only(audited):
    """MCP checklist 7: what belongs to one principal is no other's business."""
    executor, journal = audited
    called_by("ada", executor, "c0", "press", text="diary")
    called_by("bob", executor, "c1", "press", text="ledger")
    assert "diary" in Audit(journal).text("ada")
    assert "ledger" not in Audit(journal).text("ada")
    assert Audit(journal).text("ada").count("press: executing → done") == 2


def test_the_audit_is_bounded():
    """Never unbounded memory: the oldest calls are forgotten."""
    journal = MemoryJournal(limit=300)
    for number in range(2_000):
        call = NewCall(f"c{number}", "press", "safe", {})
        journal.note(call, State.FAILED, Facts(detail=f"failure {number}"))
    lines = Audit(journal).text("local").splitlines()
    assert len(lines) == MOST_CALLS
    assert "failure 1999" in lines[-1]
    assert len(journal.entries()) == 300


def test_hiding_secrets_takes_no_time_whatever_the_text():
    """Hostile arguments: a pattern must not be slow on any text."""
    journal = MemoryJournal()
    for number in range(MOST_CALLS):
        call = NewCall(f"c{number}", "press", "safe", {})
        journal.note(call, State.FAILED, Facts(detail='"' + "token" * 400))

    def read_it():
        return Audit(journal).text("local")

    # A pattern that goes back over the text takes hours for it; a busy machine takes seconds.
    assert asyncio.run(asyncio.wait_for(asyncio.to_thread(read_it), 60)).count("\n") == MOST_CALLS - 1


def test_the_modules_of_the_offers_are_not_needed_to_register_them():
    """Performance: everything else is imported lazily."""
    code = (
        "import sys; from gramercy.workbench.serving import Service, open_server; "
        "open_server(Service(images=('python',), sandbox=False)); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "gramercy.workbench.deferred" in loaded
    late = {f"gramercy.workbench.{name}" for name in ("offers", "prompts")}
    assert not loaded & {*late, "gramercy.images.live"}
