"""An agent in a live image has the core tools from its first question on."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from gramercy import Registry, register_core_tools
from gramercy.testing.image import MemoryImage
from gramercy.testing.provider import ScriptedProvider
from gramercy.workbench.agents import Plan, open_workplace
from gramercy.workbench.recording import Recording
from gramercy.workbench.sources import Origin
from tests.agents.scripts import called

AGENT = Path(__file__).parents[2] / "examples" / "lisp_pair.gram"


@pytest.mark.contract("001.core.called-by-agent", "001.invariant.initialization")
@pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
def test_starting_an_agent_in_an_image_registers_the_core_tools(tmp_path):
    """Seed 001, register-agent-q-tools and Invariants: they are there before the agent is used."""
    core = Registry()
    assert register_core_tools(core, MemoryImage(), project=tmp_path) == 18
    model = ScriptedProvider(called("eval_form", form="(* 6 7)"), lambda request: request.messages[-1].text)
    origin = Origin(language="sbcl", project=str(tmp_path))
    plan = Plan(str(AGENT), origin=origin, recording=Recording(place="memory"))

    async def main(place):
        return [event async for event in place.stream("how much is 6 times 7?")][-1].response

    with open_workplace(plan, None, lambda _: None) as place:
        assert set(core.names()) <= set(place.library)
        place.open_provider = lambda _: model
        response = asyncio.run(main(place))
    assert {tool.name for tool in model.requests[0].tools} == set(core.names())
    assert "42" in response.content
