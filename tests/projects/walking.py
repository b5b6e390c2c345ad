"""The doors of the product as a user has them: its commands, and its server with a plain client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request

from gramercy.testing.clients import StdioClient

BOUND = 120
EVALUATE = {"sbcl": "evaluate-lisp", "python": "evaluate-python"}


class Walk:
    """A server of one image, and what its client can do with it."""

    def __init__(self, language, project, *command, **environment):
        words = command or (sys.executable, "-m", "gramercy", "serve", "--image", language)
        self.language = language
        self.client = StdioClient(*words, cwd=project, env={"NO_COLOR": "1", **environment})
        self.instructions = self.client.initialize()["instructions"]

    def ask(self, tool, **arguments):
        """Call a tool; return whether it failed, and its text."""
        result = self.client.call(tool, **arguments)
        return bool(result.get("isError")), "\n\n".join(block["text"] for block in result["content"])

    def do(self, tool, **arguments):
        """Call a tool that must not fail, and return its text."""
        failed, text = self.ask(tool, **arguments)
        assert not failed, text
        return text

    def fail(self, tool, **arguments):
        """Call a tool that must fail, and return its text."""
        failed, text = self.ask(tool, **arguments)
        assert failed, text
        return text

    def eval(self, code):
        """Evaluate code that must not fail."""
        return self.do(EVALUATE[self.language], code=code)

    def value(self, code):
        """Evaluate code that must not fail; return its value without the number by which it is inspected."""
        return self.eval(code).partition("\n\n[object ")[0]

    def error(self, code):
        """Evaluate code that must fail."""
        return self.fail(EVALUATE[self.language], code=code)

    def load(self, system):
        """Load a system, which must not fail."""
        return self.do("load-system", system=system)


def installed_walk(gramercy, language, project):
    """Install the server into a client's settings in the project, and start exactly what is written there."""
    words = ("--client", "claude-code", "--scope", "project", "--image", language, "--write")
    done = gramercy("install", *words, cwd=project)
    assert done.returncode == 0, done.stderr
    entry = json.loads((project / ".mcp.json").read_text())["mcpServers"]["gramercy"]
    return Walk(language, project, entry["command"], *entry["args"], **entry.get("env", {}))


def command(*words, cwd, stdin="", **environment):
    """Run the command line; a traceback is never an answer."""
    done = subprocess.run(
        [sys.executable, "-m", "gramercy", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )
    assert "Traceback (" not in done.stderr
    return done


def write(project, files):
    """Write the files of a project."""
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)


def edit(file, old, new):
    """Change a file as an editor does, outside of the image."""
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def get(port, path):
    """Ask a server of this machine for a page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
        return response.read().decode()


def is_answered(port, path):
    """Tell whether a server answers; that of an image may be gone while its port is still published."""
    try:
        return get(port, path) != ""
    except OSError:
        return False
