"""Real packages and frameworks that are edited while they live, beside a fresh process."""

import json
import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from tests.support import ROOT, install

pytestmark = pytest.mark.slow
PYTHON = ROOT / ".venv-edited" / "bin" / "python"
# Edits of each package; EDITS=100 in the environment makes it the long campaign.
COUNT = os.environ.get("EDITS", "20")


@pytest.fixture(scope="module", autouse=True)
def packages():
    install("libraries", "edited")


@pytest.mark.contract("day.reload.auto.packages")
@pytest.mark.parametrize("package", ["click", "flask", "starlette", "attr", "networkx"])
def test_seeded_edits_of_a_package_are_as_in_a_fresh_process_or_told(package):
    """Each function on the heap is compared, with lines, defaults and text; also after the way back."""
    words = [PYTHON, "-W", "ignore", ROOT / "tests" / "images" / "edit_campaign.py", package, COUNT, "7"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["differ"] == []
    assert found.get("exact", 0) > int(COUNT) // 2
    assert found["back exact"] + found.get("back told", 0) == int(COUNT)


FLASK = """
from flask import Flask
app = Flask(__name__)
@app.route("/")
def index():
    return "one"
"""
FASTAPI = """
from fastapi import FastAPI, Depends
app = FastAPI()
def dependency():
    return 1
@app.get("/")
def index(value: int = Depends(dependency)):
    return value
"""
PYDANTIC = """
from pydantic import BaseModel, field_validator
class Item(BaseModel):
    price: int = 1
    @field_validator("price")
    @classmethod
    def check(cls, value):
        return value
    def total(self):
        return self.price
"""
ALCHEMY = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
class Base(DeclarativeBase):
    pass
class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    def label(self):
        return "one"
"""
ATTRS = """
import attrs
@attrs.define
class Point:
    x: int = 1
    def twice(self):
        return self.x * 2
"""
CLICK = """
import click
@click.command()
@click.option("--name", default="a")
def hello(name):
    "Greet."
    click.echo("one " + name)
"""
GET = "c = m.app.test_client()"
ASK = "from fastapi.testclient import TestClient; c = TestClient(m.app)"
RUN = "from click.testing import CliRunner; r = CliRunner()"
FRAMEWORKS = [
    ("route", FLASK, ('"one"', '"two"'), f"{GET}; c.get('/')", "c.get('/').text", "'two'", ""),
    (
        "new route before the first request",
        FLASK,
        ('    return "one"\n', '    return "one"\n@app.route("/b")\ndef more():\n    return "b"\n'),
        "",
        "m.app.test_client().get('/b').text",
        "'b'",
        "",
    ),
    (
        "new route after the first request",
        FLASK,
        ('    return "one"\n', '    return "one"\n@app.route("/b")\ndef more():\n    return "b"\n'),
        f"{GET}; c.get('/')",
        "c.get('/b').status_code",
        "404",
        "nothing was taken up",
    ),
    ("route of FastAPI", FASTAPI, ("return value", "return value + 1"), ASK, "c.get('/').json()", "2", ""),
    ("dependency", FASTAPI, ("return 1", "return 5"), ASK, "c.get('/').json()", "5", ""),
    (
        "parameter of a route of FastAPI",
        FASTAPI,
        ("index(", "index(more: int = 3, "),
        ASK,
        "c.get('/').status_code",
        "200",
        "they saw the old parameters",
    ),
    (
        "method of a model",
        PYDANTIC,
        ("return self.price", "return -self.price"),
        "i = m.Item()",
        "i.total()",
        "-1",
        "",
    ),
    ("validator", PYDANTIC, ("return value", "return value * 2"), "", "m.Item(price=4).price", "8", ""),
    (
        "new method of a model",
        PYDANTIC,
        ("    def total", "    def more(self):\n        return 9\n    def total"),
        "i = m.Item()",
        "i.more()",
        "9",
        "",
    ),
    (
        "field of a model",
        PYDANTIC,
        ("price: int = 1", "price: int = 1\n    count: int = 2"),
        "i = m.Item()",
        "sorted(m.Item.model_fields)",
        "['price']",
        "Item stays as it was (line 5 is read by ModelMetaclass when the class is made)",
    ),
    ("method of a table", ALCHEMY, ('"one"', '"two"'), "u = m.User()", "u.label()", "'two'", ""),
    (
        "column",
        ALCHEMY,
        ("    def label", "    name: Mapped[str]\n    def label"),
        "u = m.User()",
        "hasattr(m.User, 'name')",
        "False",
        "User stays as it was",
    ),
    ("method of attrs", ATTRS, ("* 2", "* 3"), "p = m.Point()", "p.twice()", "3", ""),
    (
        "field of attrs",
        ATTRS,
        ("x: int = 1", "x: int = 1\n    y: int = 2"),
        "p = m.Point()",
        "p",
        "Point(x=1)",
        "Point stays as it was",
    ),
    ("command", CLICK, ('"one "', '"two "'), RUN, "r.invoke(m.hello, []).output", "'two a\\n'", ""),
    (
        "help of a command",
        CLICK,
        ("Greet.", "Hail."),
        RUN,
        "'Greet' in r.invoke(m.hello, ['--help']).output",
        "True",
        "they saw the old docstring",
    ),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    project = tmp_path_factory.mktemp("frameworks")
    environment = Environment(python=str(PYTHON))
    with closing(open_image("python", name="frameworks", project=project, environment=environment)) as image:
        yield image, project


@pytest.mark.contract("day.reload.auto.packages")
@pytest.mark.parametrize("case", FRAMEWORKS, ids=lambda case: case[0])
def test_an_edit_under_a_framework_holds_or_is_told(image, case):
    """Routes, models, tables and commands keep what their frameworks read when they were made."""
    desk, project = image
    name, before, (old, new), hold, check, value, told = case
    module = f"case_{FRAMEWORKS.index(case)}"
    file = Path(project, f"{module}.py")
    file.write_text(before)
    reply = desk.evaluate(f"import {module} as m\n{hold}")
    assert reply.error is None, reply.error
    assert old in before
    file.write_text(before.replace(old, new))
    reply = desk.evaluate(check)
    notes = " ".join(reply.notes)
    assert reply.values == [value], (name, notes, reply.error)
    assert told in notes
    assert told or "line " not in notes, notes
