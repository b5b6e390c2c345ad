"""Errors inside of real frameworks: shorter than Python's own traceback, with the frames of the project."""

# ruff: noqa: E501 - the programs are data, and read best on one line

from contextlib import closing
from pathlib import Path

import pytest

from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from gramercy.toolsets.rendering import fault_text
from tests.support import install

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
DJANGO = "from django.conf import settings\nsettings.configure(ALLOWED_HOSTS=['*'], ROOT_URLCONF=__name__, SECRET_KEY='x', DATABASES={'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}})\nimport django; django.setup()\n"
OWN = """
import traceback
try:
    {}
except Exception:
    print(traceback.format_exc())
"""
# The module of the project, the call that fails, and the frames of the project that must be there.
PROGRAMS = {
    "networkx": (
        "import networkx as nx\ng = nx.path_graph(4)\ndef way(g): return nx.shortest_path(g, 1, 9)",
        "way(g)",
        ["way("],
    ),
    "pandas": (
        "import pandas as pd\nt = pd.DataFrame({'a': [1]})\ndef bad(part): return part['missing']\ndef col(t): return t.groupby('a').apply(bad)",
        "col(t)",
        ["bad(", "col("],
    ),
    "click": (
        "import click\n@click.group()\ndef cli(): pass\n@cli.command()\n@click.option('--n', default=1)\ndef go(n): return 1 / 0",
        "cli(['go'], standalone_mode=False)",
        ["go("],
    ),
    "fastapi": (
        "from fastapi import FastAPI\nfrom fastapi.testclient import TestClient\napp = FastAPI()\n@app.get('/')\nasync def home(q: int = 1): return {'x': 1 / 0}\nclient = TestClient(app)",
        "client.get('/')",
        ["home("],
    ),
    "starlette": (
        "from starlette.applications import Starlette\nfrom starlette.routing import Route\nfrom starlette.testclient import TestClient\nasync def home(request): return 1 / 0\nclient = TestClient(Starlette(routes=[Route('/', home)]))",
        "client.get('/')",
        ["home("],
    ),
    "django": (
        f"{DJANGO}from django.urls import path\nfrom django.test import Client\ndef home(request): return 1 / 0\nurlpatterns = [path('', home)]",
        "Client().get('/')",
        ["home("],
    ),
    "django's models": (
        f"{DJANGO}from django.db import models\nclass Thing(models.Model):\n    class Meta: app_label = 'x'\ndef things(): return list(Thing.objects.all())",
        "things()",
        ["things("],
    ),
    "sqlalchemy": (
        "import sqlalchemy as sa\ne = sa.create_engine('sqlite://')\ndef ask():\n    with e.connect() as c: return c.execute(sa.text('select * from nope'))",
        "ask()",
        ["ask("],
    ),
}


@pytest.mark.contract("day.eyes.backtrace.length")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_error_of_a_framework_is_shorter_than_pythons_own_traceback(name, tmp_path):
    """A day's work: 5,556 characters against 4,235 of Python's own."""
    install("libraries")
    module, call, frames = PROGRAMS[name]
    (tmp_path / "app.py").write_text(module)
    where = Environment(python=str(ROOT / ".venv-libraries"))
    with closing(open_image("python", project=tmp_path, environment=where)) as image:
        begun = image.evaluate("from app import *")
        assert begun.ok, begun.error
        fault = image.evaluate(call).error
        assert fault is not None
        ours = fault_text(fault)
        own = image.evaluate(OWN.format(call)).stdout
    assert "Traceback (most recent call last)" in own
    assert len(ours) <= len(own), ours
    for frame in frames:
        assert any(f": {frame}" in line and " at app.py:" in line for line in ours.splitlines()), ours
