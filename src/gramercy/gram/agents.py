"""Agent specifications: an instruction, a model and the tools and agents it may use.

A text may hold several agents and tools, inside each other or side by side, and refer to them by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from gramercy.errors import SpecificationError
from gramercy.gram.patterns import (
    STEP,
    block_text,
    check_name,
    check_text,
    fault_at,
    label_of,
    labelled_brackets,
    misspelt,
    text_of,
)
from gramercy.gram.specification import TOOL_LABELS, ToolSpecification, specification_of
from gramercy.gram.suggestion import did_you_mean
from gramercy.gram.syntax.printer import print_name
from gramercy.gram.syntax.reader import read
from gramercy.gram.syntax.tree import Annotated, Bracket, Document, Reference

if TYPE_CHECKING:
    from gramercy.gram.syntax.tree import Element, Value

AGENT_LABEL: Final = "Agent"
AGENT_PROPERTIES: Final = ("description", "instruction", "model")
# Deeper nests are not written by people, and would cost a model call for every level.
DEEPEST_AGENT: Final = 32


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model and who provides it, written `Provider/id`; the id may hold further slashes."""

    provider: str
    id: str

    @classmethod
    def parse(cls, text: object) -> Self:
        """Split `Provider/id`, or raise SpecificationError."""
        if isinstance(text, cls):
            return text
        if text is None:
            raise SpecificationError('no model is given: write model: "OpenAI/gpt-4o-mini"')
        provider, slash, name = text.partition("/") if isinstance(text, str) else ("", "", "")
        if not slash or not provider.strip() or not name.strip():
            raise SpecificationError(
                f"the model {text!r:.100} is not of the form Provider/id: OpenAI/gpt-4o-mini"
            )
        return cls(provider.strip(), name.strip())

    def __str__(self) -> str:
        return f"{self.provider}/{self.id}"


@dataclass(frozen=True, slots=True)
class AgentSpecification:
    """An agent as it is written down; nested agents are used like tools."""

    name: str
    instruction: str
    model: ModelName
    description: str = ""
    tools: tuple[ToolSpecification, ...] = ()
    agents: tuple[AgentSpecification, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no agent could run with."""
        check_name(self.name, "agent")
        object.__setattr__(self, "model", ModelName.parse(self.model))
        check_text(self.instruction, f"the instruction of agent {self.name!r}", "say what the agent is to do")
        if self.description:
            check_text(
                self.description, f"the description of agent {self.name!r}", "say what the agent is for"
            )
        names: set[str] = set()
        for element in self.elements:
            if element.name in names:
                raise SpecificationError(
                    f"agent {self.name!r} has two tools named {element.name!r}: rename one"
                )
            names.add(element.name)

    @property
    def elements(self) -> tuple[AgentSpecification | ToolSpecification, ...]:
        """Everything the agent may use: its tools, then its agents."""
        return (*self.tools, *self.agents)

    def to_gram(self) -> str:
        """Write the agent with everything it uses; what comes a second time is written as a reference."""
        return _agent_text(self, "", {})


def read_agents(text: str | Document) -> tuple[AgentSpecification, ...]:
    """Return the agents at the top of a text, with every reference resolved."""
    document = text if isinstance(text, Document) else read(text)
    resolver = _Resolver(document)
    patterns = (item.pattern if isinstance(item, Annotated) else item for item in document.patterns)
    brackets = (item for item in patterns if isinstance(item, Bracket))
    return tuple(resolver.agent(item, ()) for item in brackets if label_of(item, {AGENT_LABEL}))


class _Resolver:
    """Reads the agents of one document; each pattern is read once, however often it is referred to."""

    def __init__(self, document: Document) -> None:
        self.source = document.source
        self.definitions: dict[str, Bracket] = {}
        self.read: dict[str, AgentSpecification | ToolSpecification] = {}
        for bracket in labelled_brackets(document, {AGENT_LABEL, *TOOL_LABELS}):
            name = bracket.subject.identity
            if name in self.definitions:
                raise fault_at(
                    bracket, self.source, f"{name!r} is defined a second time: rename one, or refer to it"
                )
            if name:
                self.definitions[name] = bracket

    def agent(self, bracket: Bracket, within: tuple[str, ...]) -> AgentSpecification:
        name = bracket.subject.identity
        if not name:
            raise fault_at(bracket, self.source, "the agent has no name: write [name:Agent {…} | …]")
        self.check_nesting(bracket, (*within, name))
        known = self.read.get(name)
        if not isinstance(known, AgentSpecification):
            elements = [self.element(item, (*within, name)) for item in bracket.elements]
            known = self.read[name] = _agent_of(bracket, self.source, elements)
        return known

    def check_nesting(self, bracket: Bracket, names: tuple[str, ...]) -> None:
        if names[-1] in names[:-1]:
            raise fault_at(bracket, self.source, f"agents use each other in a circle: {' > '.join(names)}")
        if len(names) > DEEPEST_AGENT:
            raise fault_at(bracket, self.source, f"agents are nested deeper than {DEEPEST_AGENT} levels")

    def element(self, element: Element, within: tuple[str, ...]) -> AgentSpecification | ToolSpecification:
        bracket = self.definition(element) if isinstance(element, Reference) else element
        if isinstance(bracket, Bracket) and label_of(bracket, {AGENT_LABEL}):
            return self.agent(bracket, within)
        if isinstance(bracket, Bracket) and label_of(bracket, TOOL_LABELS):
            return self.tool(bracket)
        raise fault_at(
            element, self.source, "expected a tool, an agent or the name of one, without parentheses"
        )

    def tool(self, bracket: Bracket) -> AgentSpecification | ToolSpecification:
        name = bracket.subject.identity or ""
        if name not in self.read:
            self.read[name] = specification_of(bracket, self.source)
        return self.read[name]

    def definition(self, reference: Reference) -> Bracket:
        found = self.definitions.get(reference.identity)
        if found is None:
            hint = did_you_mean(reference.identity, self.definitions, "define it in the same text")
            raise fault_at(reference, self.source, f"nothing is named {reference.identity!r}: {hint}")
        return found


def _agent_of(
    bracket: Bracket, source: str, elements: list[AgentSpecification | ToolSpecification]
) -> AgentSpecification:
    values = bracket.subject.properties
    wrong = misspelt(values, AGENT_PROPERTIES)
    if wrong:
        raise fault_at(bracket, source, f"unknown property {wrong[0]!r}: did you mean {wrong[1]!r}?")
    try:
        return AgentSpecification(
            bracket.subject.identity or "",
            text_of(values, "instruction"),
            text_of(values, "model"),
            text_of(values, "description") or "",
            tuple(item for item in elements if isinstance(item, ToolSpecification)),
            tuple(item for item in elements if isinstance(item, AgentSpecification)),
        )
    except SpecificationError as error:
        raise fault_at(bracket, source, str(error)) from None


def _agent_text(
    agent: AgentSpecification, indent: str, written: dict[str, AgentSpecification | ToolSpecification]
) -> str:
    written[agent.name] = agent
    values: dict[str, Value] = {"description": agent.description} if agent.description else {}
    values |= {"instruction": agent.instruction, "model": str(agent.model)}
    elements = [_element_text(item, indent + STEP, written) for item in agent.elements]
    return block_text(agent.name, AGENT_LABEL, values, elements, indent=indent)


def _element_text(
    item: AgentSpecification | ToolSpecification,
    indent: str,
    written: dict[str, AgentSpecification | ToolSpecification],
) -> str:
    if item.name in written:
        if written[item.name] != item:
            raise SpecificationError(
                f"two different things are named {item.name!r}: one text cannot hold both"
            )
        return print_name(item.name)
    if isinstance(item, AgentSpecification):
        return _agent_text(item, indent, written)
    written[item.name] = item
    return block_text(item.name, item.label, item.properties(), [item.type_signature], indent=indent)
