"""Which tools a server lists, what they cost a model, and what clients are told about each."""

from __future__ import annotations

import json
import re
from math import ceil

import pytest

from gramercy.images.environment import Environment, Files, Network, PublishedPort
from gramercy.images.sandbox import Confinement, why_not
from gramercy.mcp.jsonrpc import LATEST_LEGACY
from gramercy.mcp.listing import described
from gramercy.testing.image import MemoryImage
from gramercy.tools.registry import Registry
from gramercy.toolsets.core import register_core_tools
from gramercy.workbench.offers import OUTLINES
from gramercy.workbench.selection import DEFAULT_TOOLSETS, HABITS, TOOLSETS
from gramercy.workbench.serving import Service, open_server

MOST_TOOLS, MOST_TOKENS = 26, 4_500
# Of a server with images of both languages: it has two tools to evaluate, and each takes a handle.
MOST_TOOLS_OF_TWO, MOST_TOKENS_OF_TWO = 27, 4_900
# No tokenizer is needed for a bound: English text and JSON of schemas have 4 to 4.6 characters in a token.
CHARACTERS_IN_A_TOKEN = 4
EVALUATING = {"evaluate-lisp", "evaluate-python", "eval_form", "compile_form", "load-system", "run_tests"}
EVALUATING |= {"eval_in_frame", "invoke_restart"}
EVALUATING |= {"profile_form"}
EVALUATING |= {"load_file"}
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
READS = (True, False, True, False)


def listed(*toolsets, images=("sbcl",), **options):
    """Return the tools of a server as its clients see them, by name."""
    server = open_server(Service(images=images, toolsets=toolsets or DEFAULT_TOOLSETS, **options))
    try:
        settings = server.engine._settings
        tools = settings.registry.library().values()
        return {tool.name: described(tool, settings.policy, LATEST_LEGACY) for tool in tools}
    finally:
        server.close(1)


def tokens(tools):
    """Return about how many tokens the tools cost a model, which sees names, descriptions and schemas."""
    shown = [
        {key: tool[key] for key in ("name", "description", "inputSchema", "outputSchema") if key in tool}
        for tool in tools.values()
    ]
    return ceil(len(json.dumps(shown, separators=(",", ":"), ensure_ascii=False)) / CHARACTERS_IN_A_TOKEN)


def hints(tool):
    return tuple(tool["annotations"][name] for name in HINTS)


@pytest.mark.contract("decision.15.default", "day.looks.default")
@pytest.mark.parametrize("images", [("sbcl",), ("python",), ("sbcl", "python")])
def test_the_default_list_is_small(images):
    """A lean default: for one language at most 26 tools and 4,500 tokens."""
    tools = listed(images=images)
    is_one = len(images) == 1
    assert len(tools) <= (MOST_TOOLS if is_one else MOST_TOOLS_OF_TWO)
    assert tokens(tools) <= (MOST_TOKENS if is_one else MOST_TOKENS_OF_TWO)


@pytest.mark.contract("decision.15.default")
def test_the_default_list_has_one_tool_for_one_job():
    """evaluate-lisp and eval_form do the same."""
    tools = listed()
    assert set(tools) & EVALUATING == {
        *("evaluate-lisp", "load-system", "run_tests"),
        *("eval_in_frame", "invoke_restart"),
    }
    taken = {name for tool in tools.values() for name in tool["inputSchema"]["properties"]}
    assert not taken & {"form", "handle"}


@pytest.mark.contract("day.eyes.restarts")
@pytest.mark.parametrize(
    ("images", "is_there"), [(("python",), False), (("sbcl",), True), (("sbcl", "python"), True)]
)
def test_restarts_are_listed_only_where_there_are_any(images, is_there):
    """A day's work: a Python image listed a tool that can only say that Python has no restarts."""
    assert ("invoke_restart" in listed(images=images)) is is_there
    assert ("invoke_restart" in listed("errors", images=images)) is is_there


@pytest.mark.contract("decision.15.core", "decision.15.session")
def test_the_sets_of_the_contracts_are_exact(tmp_path):
    """Decision 15: --toolset core gives the eighteen and --toolset session the four."""
    eighteen = Registry()
    register_core_tools(eighteen, MemoryImage(), project=tmp_path)
    assert len(listed("core")) == len(eighteen) == 18
    assert set(listed("core")) == set(eighteen.names())
    assert set(listed("session")) == {"evaluate-lisp", "list-definitions", "load-system", "reset-session"}
    assert set(listed("session", images=("python",))) == TOOLSETS["session"] - {"evaluate-lisp"}


def test_every_set_has_the_tools_that_its_table_names():
    """A table that is wrong would send callers to the wrong set."""
    for name, tools in TOOLSETS.items():
        assert set(listed(name, images=("sbcl", "python"))) == tools, name
    assert set(listed(*TOOLSETS, images=("sbcl", "python"))) == frozenset().union(*TOOLSETS.values())


@pytest.mark.parametrize("toolset", TOOLSETS)
def test_no_text_names_a_tool_that_is_not_listed_with_it(toolset):
    """A model must not be sent to tools that it does not have."""
    tools = listed(toolset)
    others = frozenset().union(*TOOLSETS.values()) - set(tools)
    texts = " ".join(f"{tool['description']} {tool['inputSchema']}" for tool in tools.values())
    assert set(re.findall(r"[a-z]+(?:[-_][a-z]+)+", texts)) & others == set()


def test_every_step_of_every_prompt_has_a_tool_by_default():
    """A prompt names only tools that are there, and leaves out the steps without any."""
    names = set(listed(images=("sbcl", "python")))
    for outline in OUTLINES:
        assert all(names & set(tools.split()) for _, tools in outline.steps), outline.name
    assert all(names & set(tools.split()) for tools in HABITS.values())


@pytest.mark.parametrize("toolset", TOOLSETS)
def test_every_tool_has_a_title_of_its_own(toolset):
    """Clients show the title to people."""
    titles = [tool["title"] for tool in listed(toolset, images=("sbcl", "python")).values()]
    assert len(set(titles)) == len(titles)
    assert all(0 < len(title) <= 40 and title[0].isupper() for title in titles)


def test_only_two_lists_are_structured_and_none_of_them_by_default():
    """A schema of the output costs tokens, and Codex shows its model nothing else then."""
    structured = {name for name, tool in listed(*TOOLSETS).items() if "outputSchema" in tool}
    assert structured == {"list_images", "list_checkpoints"}
    assert not structured & set(listed())


# Read-only, destructive, idempotent, open world: in a sandbox without network.
CONFINED = {
    "evaluate-lisp": (False, True, False, False),
    "evaluate-python": (False, True, False, False),
    "eval_form": (False, True, False, False),
    "compile_form": (False, True, False, False),
    "load-system": (False, True, False, False),
    "run_tests": (False, True, False, False),
    "eval_in_frame": (False, True, False, False),
    "invoke_restart": (False, True, False, False),
    "install_packages": (False, True, False, True),
    "save_state": (False, False, False, False),
    "restore_state": (False, True, False, False),
    "macroexpand_form": (False, False, True, False),
    "preview_form": (False, False, True, False),
    "checkpoint_image": (False, False, True, False),
    "stop_job": (False, False, True, False),
    "undo_last": (False, False, False, False),
    "rollback_image": (False, True, True, False),
    "reset-session": (False, True, True, False),
    "write_file": (False, True, True, False),
    "propose_file_edit": (False, True, True, False),
    "edit_file": (False, True, False, False),
    "edit_definition": (False, True, False, False),
    "load_file": (False, True, False, False),
    "profile_form": (False, True, False, False),
    "open_image": (False, False, False, False),
    "close_image": (False, True, True, False),
}


@pytest.mark.skipif(why_not(Confinement.BUBBLEWRAP) is not None, reason="needs bubblewrap")
def test_annotations_say_what_is_true_in_a_sandbox_without_network():
    """True annotations: clients decide by them whom they ask."""
    found = {name: hints(tool) for name, tool in listed(*TOOLSETS).items()}
    assert {name: found[name] for name in CONFINED} == CONFINED
    assert {found[name] for name in found.keys() - CONFINED} == {READS}


@pytest.mark.skipif(why_not(Confinement.BUBBLEWRAP) is not None, reason="needs bubblewrap")
def test_evaluated_code_that_can_write_no_files_loses_nothing():
    """Clients that ask before everything destructive or open, as codex exec, let it run then."""
    tools = listed(*TOOLSETS, environment=Environment(files=Files.READ))
    assert {hints(tools[name]) for name in EVALUATING} == {(False, False, False, False)}
    unconfined = listed(*TOOLSETS, environment=Environment(files=Files.READ), sandbox=False)
    assert {hints(unconfined[name]) for name in EVALUATING} == {(False, True, False, True)}


@pytest.mark.parametrize(
    "options",
    [
        {"sandbox": False},
        {"environment": Environment(network=Network.OPEN)},
        {"environment": Environment(publish=(PublishedPort(8080, 80),))},
    ],
)
def test_evaluated_code_that_can_reach_others_is_an_open_world(options):
    """Derived from the confinement of the image."""
    tools = listed(*TOOLSETS, **options)
    reaching = {name for name, tool in tools.items() if tool["annotations"]["openWorldHint"]}
    more = {"macroexpand_form", "undo_last", "edit_definition", "install_packages", "restore_state"}
    # With `load`, what they write is loaded into the image.
    more |= {"edit_file", "write_file"}
    assert reaching == EVALUATING | more


def test_where_only_landlock_works_the_sockets_of_local_servers_are_in_reach(monkeypatch):
    """Derived from the confinement of the image: Landlock does not hold back unix sockets."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert listed()["evaluate-lisp"]["annotations"]["openWorldHint"] is True
