"""Arrays, tables and rows of real libraries are shown by shape, types and first values, without their code."""

# ruff: noqa: E501, RUF001 - what is shown is data, with the sign of multiplication

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from tests.support import install

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
SHOWN = {
    "array": "<numpy.ndarray 3×4 float64: 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, … 6 more>",
    "float32": "<numpy.ndarray 2 float32: 0.1, 0.2>",
    "empty": "<numpy.ndarray 0×3 float64>",
    "scalar array": "<numpy.ndarray () int64: 3>",
    "objects": "<numpy.ndarray 3 object: 1, 'a', Part(number=1)>",
    "records": "<numpy.ndarray 1 (a, b): (1, 2.0)>",
    "times": "<numpy.ndarray 1 datetime64[ns]: 2026-11-17T12:30:00>",
    "number": "numpy.float64(1.5)",
    "masked": "<numpy.ma.MaskedArray 2 int64>",
    "sub": "<Sub 2 int64>",
    "table": "<pandas.DataFrame 1000×10: a int64 [0, 1…], b str ['x', 'x'…], c category ['u', <NA>…], d datetime64[us] [2026-11-17, 2026-11-17…], e float64 [1.5, 1.5…], f Int64 [1, <NA>…], g boolean [True, <NA>…], h object [['x'], ['x']…], i IntervalArray, j datetime64[us] with a time zone>",
    "turned": "<pandas.DataFrame 2×2: 0 int64 [1, 2], 1 int64 [4, 5]>",
    "levels": "<pandas.DataFrame 1×2: a.x int64 [1], b.y int64 [2]>",
    "framed": "<Framed 1×1: a int64 [1]>",
    "no rows": "<pandas.DataFrame 0×0>",
    "series": "<pandas.Series 'n' 3 int64: 1, 2, 3>",
    "texts": "<pandas.Series 2 str: 'a', 'b'>",
    "index": "<pandas.MultiIndex 2: (1, 'a'), (2, 'b')>",
    "span": "<pandas.RangeIndex 5 int64: 0, 1, 2, 3, 4>",
    "stamp": "Timestamp('2026-11-17T00:00:00')",
    "arrow": "<pyarrow.Table 3×3: a int64 [1, 2…], b string ['x', None…], c list<item: int64>>",
    "arrow array": "<pyarrow.lib.Int64Array 2 int64: 1, None>",
    "chunked": "<pyarrow.ChunkedArray 2 double: 1.5, 2.5>",
    "polars": "<polars.DataFrame 3×2: a i64 [1, 2…], b str ['x', None…]>",
    "polars days": "<polars.DataFrame 1×1: a date>",
    "polars series": "<polars.Series 'n' 2>",
    "attrs": "Part(number=1)",
    "pydantic": "Model(number=1, key=SecretStr('**********'))",
    "instance": "User(name='Ada', number=1)",
    "expired": "User(number=2)",
    "row": "Row(number=1, name='Ada')",
    "mapping": "RowMapping(number=1, name='Ada')",
    # Only where torch is installed by hand.
    "tensor": "<torch.Tensor 2×3 float32 on cpu>",
    "parameter": "<torch.nn.parameter.Parameter 2 float32 on cpu>",
}


@pytest.fixture(scope="module")
def interpreter():
    """Install the libraries, which costs nothing when they are there, and return the interpreter that has them."""
    install("libraries")
    return ROOT / ".venv-libraries/bin/python"


@pytest.mark.contract("day.eyes.arrays")
def test_values_of_libraries_are_shown_by_shape_types_and_first_values(interpreter):
    """A day's work: a DataFrame, an array or a row said nothing but its type. No Python code runs for it."""
    done = subprocess.run(
        [interpreter, ROOT / "tests/images/library_shapes.py"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found = json.loads(done.stdout)
    assert {name: each["shown"] for name, each in found.items()} == {name: SHOWN[name] for name in found}
    assert {name: each["ran"] for name, each in found.items() if each["ran"]} == {}


@pytest.mark.contract("day.eyes.arrays")
@pytest.mark.usefixtures("interpreter")
def test_the_frames_of_an_error_show_tables_and_arrays(tmp_path):
    """A day's work: the locals of a frame of a data program."""
    where = Environment(python=str(ROOT / ".venv-libraries"))
    with closing(open_image("python", project=tmp_path, environment=where)) as image:
        image.evaluate("import numpy as np, pandas as pd\ndef mean(table, weights): return table['b'] / 0")
        reply = image.evaluate("mean(pd.DataFrame({'a': [1, 2]}), np.ones((2, 2)))")
        assert reply.error is not None
        answer = image.ask_moment("locals", reply.error.moment, frame=len(reply.error.backtrace) - 2)
        values = {row["name"]: row["value"] for row in answer.data["locals"]}
        assert values["table"] == "<pandas.DataFrame 2×1: a int64 [1, 2]>"
        assert values["weights"] == "<numpy.ndarray 2×2 float64: 1.0, 1.0, 1.0, 1.0>"
        assert "weights=<numpy.ndarray 2×2" in "\n".join(reply.error.backtrace)
        looked = image.evaluate("pd.Series([1, 2], name='n')")
        told = image.ask("inspect", object=looked.objects[0])
        assert told.data["preview"] == "<pandas.Series 'n' 2 int64: 1, 2>"
        assert [row["label"] for row in told.data["children"]] == ["[0]", "[1]"]
