"""Values of real libraries, and what the image's program shows of them.

An interpreter that has the libraries runs it. It prints one line of JSON: for each value what is shown, and
the Python functions outside of the program that ran meanwhile.
"""

# The libraries are in an environment of their own, where nothing is checked.
# mypy: ignore-errors

import datetime as dt
import json
import sys
from pathlib import Path

import attrs
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pydantic
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
from gramercy.images.python.printing import preview

ROWS = 1000


@attrs.define
class Part:
    """A record of attrs."""

    number: int
    secret: str = attrs.field(repr=False, default="hidden")


class Model(pydantic.BaseModel):
    """A record of pydantic."""

    number: int
    key: pydantic.SecretStr
    note: str = pydantic.Field(repr=False, default="hidden")


class Base(DeclarativeBase):
    """The mapper's base."""


class User(Base):
    """A mapped class, whose attributes load what is missing."""

    __tablename__ = "users"
    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


def rows() -> dict[str, object]:
    """Return rows and instances of SQLAlchemy, one of them expired."""
    engine = sa.create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([User(number=1, name="Ada"), User(number=2, name="Grace")])
        session.commit()
        kept, expired = session.get(User, 1), session.get(User, 2)
        session.expire(expired, ["name"])
        row = session.execute(sa.select(User.number, User.name)).first()
        return {"instance": kept, "expired": expired, "row": row, "mapping": row._mapping}


def table() -> pd.DataFrame:
    """Return a table with columns of many kinds."""
    return pd.DataFrame(
        {
            "a": range(ROWS),
            "b": ["x"] * ROWS,
            "c": pd.Categorical(["u", None] * (ROWS // 2)),
            "d": pd.to_datetime(["2026-11-17"] * ROWS),
            "e": [1.5] * ROWS,
            "f": pd.array([1, None] * (ROWS // 2), dtype="Int64"),
            "g": pd.array([True, None] * (ROWS // 2), dtype="boolean"),
            "h": [["x"]] * ROWS,
            "i": pd.arrays.IntervalArray.from_breaks(range(ROWS + 1)),
            "j": pd.to_datetime(["2026-11-17"] * ROWS).tz_localize("Europe/Paris"),
        }
    )


class Sub(np.ndarray):
    """A subclass whose attributes are the user's own."""

    shape = dtype = property(lambda _self: 1 / 0)


class Framed(pd.DataFrame):
    """A subclass that prints in its own way."""

    def __repr__(self) -> str:
        """Fail."""
        raise ValueError


def values() -> dict[str, object]:
    """Return the values by name."""
    return {
        "array": np.arange(12.0).reshape(3, 4),
        "float32": np.array([0.1, 0.2], dtype="f4"),
        "empty": np.zeros((0, 3)),
        "scalar array": np.array(3),
        "objects": np.array([1, "a", Part(1)], dtype=object),
        "records": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        "times": np.array(["2026-11-17T12:30"], dtype="M8[ns]"),
        "number": np.float64(1.5),
        "masked": np.ma.array([1, 2], mask=[0, 1]),
        "sub": np.arange(2).view(Sub),
        "table": table(),
        "turned": pd.DataFrame(np.arange(6).reshape(2, 3)).T.iloc[1:],
        "levels": pd.DataFrame({("a", "x"): [1], ("b", "y"): [2]}),
        "framed": Framed({"a": [1]}),
        "no rows": pd.DataFrame(),
        "series": pd.Series([1, 2, 3], name="n"),
        "texts": pd.Series(["a", "b"]),
        "index": pd.MultiIndex.from_tuples([(1, "a"), (2, "b")]),
        "span": pd.RangeIndex(5),
        "stamp": pd.Timestamp("2026-11-17"),
        "arrow": pa.table({"a": [1, 2, 3], "b": ["x", None, "y"], "c": [[1], [2], [3]]}),
        "arrow array": pa.array([1, None]),
        "chunked": pa.chunked_array([[1.5], [2.5]]),
        "polars": pl.DataFrame({"a": [1, 2, 3], "b": ["x", None, "y"]}),
        "polars days": pl.DataFrame({"a": [dt.date(2026, 11, 17)]}),
        "polars series": pl.Series("n", [1, 2]),
        "attrs": Part(1),
        "pydantic": Model(number=1, key="hidden"),
        **rows(),
        **tensors(),
    }


def tensors() -> dict[str, object]:
    """Return a tensor where torch is installed: the scripts do not install it, for its size."""
    try:
        import torch
    except ImportError:
        return {}
    return {"tensor": torch.zeros(2, 3), "parameter": torch.nn.Parameter(torch.ones(2))}


def watched(value: object) -> dict[str, object]:
    """Show a value, and note each Python function that is called outside of the image's program."""
    calls: list[str] = []

    def note(frame: object, event: str, _argument: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and "/gramercy/images/python/" not in code.co_filename
            and code.co_name != "<lambda>"
        ):
            calls.append(f"{code.co_filename}:{code.co_name}")

    sys.setprofile(note)
    try:
        shown = preview(value, 1000)
    finally:
        sys.setprofile(None)
    return {"shown": shown, "ran": [call for call in calls if not call.startswith(__file__)]}


if __name__ == "__main__":
    print(json.dumps({name: watched(value) for name, value in values().items()}))  # noqa: T201 - its answer
