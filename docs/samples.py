"""What the generated pages show: code that raises each error, and gram that makes the linter speak."""

# ruff: noqa: INP001 - documentation is not a package

from __future__ import annotations

# One line of code for each error that is no mere base of others; it is run, and must raise that error.
ERRORS = {
    "GramSyntaxError": 'read("[hello:Tool | (name::Text)==>(::String")',
    "TypeSignatureError": 'parse_type_signature("(name::Txt)==>(::String)")',
    "SpecificationError": 'ToolSpecification.from_gram("[hello:Tool | (name::Text)==>(::String)]")',
    "InvalidToolError": 'define_tool("readNote", "", [{"name": "title", "type": "sting"}])',
    "InvalidSchemaError": 'validate_tool_args({"type": "strng"}, {})',
    "InvalidArgumentsError": 'validate_tool_args(read_note.schema, {"titel": 3})',
    "UnknownToolError": 'notes.resolve("red_note")',
    "BindingError": "ToolLibrary().bind_all([ToolSpecification.from_gram(HELLO)])",
    "InvalidCallError": 'Executor(Registry()).execute_tool_calls("read_note")',
    "InvalidPolicyError": 'Policy([{"action": "alow", "tools": ["read_*"]}])',
    "MovedError": "MemoryJournal().claim(7)",
    "SourceError": 'load_tools("missing.py")',
    "ForeignError": 'connect_server(name="notes")',
    "ServerGoneError": 'connect_server(["true"], name="notes")',
    "ServingError": 'HttpSettings(path="mcp")',
    "InvalidSettingError": 'read_port("80:http")',
    "ClientSettingsError": 'CLIENTS["cursor"].format.get("{\'mcpServers\': {}}", "gramercy")',
    "UnreadableFileError": 'read_text("missing.gram")',
    "WorkspaceError": 'Workspace("examples").read("note.py")',
    "ProviderError": 'Agent("a", "Help.", "x/y").run("hi", provider=ScriptedProvider())',
    "ModelUnavailableError": 'Agent("a", "Help.", "OpnAI/gpt").run("hi")',
    "CutStreamError": 'Agent("a", "Help.", "x/y").run("hi", provider=ScriptedProvider(["Hel", ...]))',
    "InvalidCaseError": 'read_cases(\'{"mesage": "Hello"}\')',
    "InvalidMessageError": 'Agent("a", "Help.", "x/y").run(" ", provider=ScriptedProvider())',
    "LimitReachedError": 'Agent("a", "Help.", "x/y").run("hi", provider=calls, limits=Limits(turns=1))',
    "BudgetExceededError": 'Agent("a", "Help.", "OpenAI/o1").run("hi", provider=calls, limits=cheap)',
    "ImageError": 'open_image("pyton")',
    "ImageStartError": 'python_program(None, Environment(python="/no"), confinement=Confinement.NONE)',
    "CheckpointError": 'Timeline().get("c7")',
    "SandboxError": 'open_image("python", project="/usr")',
}

ERROR_IMPORTS = """\
import asyncio
import socket
from pathlib import Path

from gramercy import Agent, Executor, Limits, Policy, Registry, ToolLibrary, ToolSpecification
from gramercy import define_tool, errors, parse_type_signature, validate_tool_args
from gramercy.agents.cases import read_cases
from gramercy.gram.syntax.reader import read
from gramercy.images.base import Reply
from gramercy.images.connection import Connection
from gramercy.images.cpython import python_program
from gramercy.images.opening import open_image
from gramercy.images.connection import as_json
from gramercy.images.environment import Environment
from gramercy.images.sandbox import Confinement
from gramercy.images.checkpoints import Timeline
from gramercy.journal.memory import MemoryJournal
from gramercy.mcp.foreign import connect_server
from gramercy.mcp.http import HttpSettings
from gramercy.providers.scripted import ScriptedProvider
from gramercy.toolsets.workspace import Workspace
from gramercy.ui.cli.files import read_text
from gramercy.ui.cli.install import CLIENTS
from gramercy.workbench.settings import read_port
from gramercy.workbench.sources import load_tools


cheap = Limits(cost=0.0001)
calls = ScriptedProvider({"name": "read_note", "arguments": "{}"})
notes = load_tools("examples/notes.py")
read_note = notes.resolve("read_note")
HELLO = '[hello:Tool {description: "Greet."} | (name::Text)==>(::String)]'
"""

# Errors that callers mostly see as the text of a result, or that need more than a line to be raised.
RESULTS = {
    "DeadlineExceededError": """\
nap = define_tool("nap", "Sleep.", [], handler=lambda arguments: asyncio.sleep(60), deadline=0.01)
print(Executor(Registry([nap])).execute({"id": "1", "name": "nap", "arguments": {}}).error)
""",
    "ImageGoneError": """\
ours, theirs = socket.socketpair()
theirs.close()
with ours:
    try:
        Connection(ours, as_json).receive_reply(Reply, 1.0)
    except errors.ImageGoneError as error:
        print(error)
""",
    "ImageProtocolError": """\
ours, theirs = socket.socketpair()
with ours, theirs:
    try:
        Connection(ours, as_json).send("eval", code="\\ud800")
    except errors.ImageProtocolError as error:
        print(error)
""",
}

# Errors without a sample: those that are caught inside of gramercy, and those that need another server.
UNSHOWN = frozenset(
    {
        "ChangedError",
        "ControlError",
        "DeepFrameError",
        "FileStoreError",
        "FileTooLargeError",
        "ForgedRecordError",
        "HandshakeError",
        "HttpError",
        "InvalidFrameError",
        "JsonTextError",
        "KeysUnavailableError",
        "NotAFileError",
        "ProtocolError",
        "RemoteError",
        "SessionLostError",
        "SilentFrameError",
        "UntrustedFileError",
    }
)

# For each lint code a text in which exactly this code is found.
GRAM = {
    "syntax-error": '[hello:Tool {description "Greet."} | (name::Text)==>(::String)]',
    "missing-node": '[hello:Tool {description: "Greet."} | (name::Text)==>(::String)',
    "duplicate-element": '[hello:Tool {description: "Greet."} | (name::Text)==>(::String)]\n'
    '[hello:Tool {description: "Greet again."} | (name::Text)==>(::String)]',
    "duplicate-key": '[hello:Tool {description: "Greet.", description: "Hail."} | (name::Text)==>(::String)]',
    "A101": '[greeter:Agent {instruction: "Greet people."}]',
    "A102": '[hello:Tool {description: "Greet."} | (name::Text)==>(::String)]\n'
    '[greeter:Agent {instruction: "Greet people.", model: "OpenAI/gpt-4o-mini"} | hello, hello]',
    "A103": '[hello:Tool {description: "Greet."} | (name::Txt)==>(::String)]',
    "A104": '[hello:Tool {description: "Greet."} | (times::Int {default:"twice"})==>(::String)]',
    "A105": "[hello:Tool | (name::Text)==>(::String)]",
    "A106": '[hello:Tool {description: "Greet."} | (::Text)==>(::String)]',
    "A107": '[greeter:Agent {instruction: "Greet people.", model: "OpenAI/gpt-4o-mini"} | hello]',
    "A108": '[hello:Tool {description: "Greet."} | (names::`[Text]` {default:[]})==>(::String)]',
    "A110": "[hello:Tool {\n"
    '  description: "Greet.",\n'
    '  schema: json`{"type":"object","properties":{"nom":{"type":"string"}},"required":["nom"]}`\n'
    "} | (name::Text)==>(::String)]",
    "A111": '[sayHello:Tool {description: "Greet."} | (name::Text)==>(::String)]',
    "A113": '[hello:Tool {description: "Greet."} |\n'
    '  (person::Object {fields:[{name:"name", type:"Text"}, {name:"age", type:"Int"}]})==>(::String)]',
}

# For the codes that compare with an implementation: gram that does not fit the tools in examples/notes.py.
GRAM_OF_NOTES = {
    "A109": '[read_note:Tool {description: "Return the text of a note."} | (title::Int)==>(::String)]',
    "A112": "[save_notes:Tool {\n"
    '  description: "Write all notes to a file, replacing it. Needs approval.",\n'
    "  safety: cautious\n"
    '} | (path::Text {description:"The file to write"})==>(::String)]',
}
