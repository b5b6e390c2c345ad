"""A service that plays every model of a page: it calls the first tool once, and repeats its result."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gramercy.providers.base import ModelCall
from gramercy.providers.services import SERVICES
from tests.providers.backends import Answer, anthropic_reply, openai_reply
from tests.providers.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.providers.service import Asked, Reply

KEY = "sk-of-the-documentation"


def played() -> Service:
    """Return the service."""
    return Service(_reply)


def environment(service: Service) -> dict[str, str]:
    """Return what leads every provider to the service."""
    addresses = {each.address_variable: f"{service.address}/v1" for each in SERVICES}
    return {**addresses, **{each.key_variable: KEY for each in SERVICES}, "DEEPSEEK_API_KEY": KEY}


def _reply(asked: Asked) -> Reply:
    reply = anthropic_reply if asked.path.endswith("/messages") else openai_reply
    last = asked.body["messages"][-1]
    result = next(_results(last), None)
    if result is not None:
        return reply(Answer(tuple(re.findall(r"\S+\s*", result))))
    name = re.search(r"I am (\w+)", json.dumps(last["content"]))
    if name is None or not asked.body.get("tools"):
        return reply(Answer(("I am ", "a model.")))
    tool = asked.body["tools"][0]
    call = ModelCall("call_1", tool.get("function", tool)["name"], json.dumps({"name": name[1]}))
    return reply(Answer((), (call,), "calls"))


def _results(message: dict[str, Any]) -> Iterator[str]:
    if message["role"] == "tool":
        yield message["content"]
    elif isinstance(message["content"], list):
        for block in message["content"]:
            if block["type"] == "tool_result":
                content = block["content"]
                yield content if isinstance(content, str) else content[0]["text"]
