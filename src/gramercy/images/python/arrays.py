"""Arrays and tables of numpy, pandas, pyarrow, polars and torch: their shape, types and first values.

They are read through attributes of C code and the dictionaries of instances, so neither user code nor Python
code of the library runs. A class is trusted only if its own module holds it under its name.
"""

import sys
import types
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from .anatomy import (
    ATOMS,
    MISSING,
    class_name,
    fixed_attribute,
    is_heap,
    kinds,
    module_of,
    module_space,
    mro_of,
    plain,
    short_name,
)

_modules = sys.modules
# Values of an array, columns of a table, and values of each column.
_VALUES, _COLUMNS, _CELLS = 6, 12, 2
_COMPUTED = kinds(types.GetSetDescriptorType, types.MemberDescriptorType)
_CALLED = kinds(types.MethodDescriptorType, types.WrapperDescriptorType)
_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
_NAMED = {"O": "object", "b": "bool", "U": "str", "S": "bytes", "T": "str"}
# Significant digits of a float of this many bytes.
_DIGITS = {2: 4, 4: 7}
# Values of these Arrow types become Python values without Python code.
_ARROW = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)) | frozenset(
    ("float", "double", "bool", "string", "large_string", "string_view")
)
# Arrays of pandas whose values can be read, and those with gaps.
_GAPPED = ("IntegerArray", "FloatingArray", "BooleanArray")
_KNOWN = frozenset(
    (
        *("ndarray", "DatetimeArray", "TimedeltaArray", "NumpyExtensionArray", "StringArray", "Categorical"),
        *("ArrowStringArray", "ArrowExtensionArray", *_GAPPED),
    )
)
_PACKAGES = ("numpy", "pandas", "pyarrow", "polars")
_natures: dict[int, "_Nature"] = {}


class View(NamedTuple):
    """The display of a value: a beginning, labelled parts (values or views), the omitted number, an end."""

    head: str
    parts: tuple[tuple[str, object], ...] = ()
    left: int = 0
    tail: str = ""
    # Whether its own attributes are meaningless to a reader.
    is_data: bool = True


class Column(NamedTuple):
    """The type of the values of an array, and the first of them."""

    kind: str
    values: tuple[object, ...] = ()


Places = Sequence[int]
Reader = Callable[[Any, str], View | None]


def view_of_array(value: object) -> View | None:
    """Return how to show an array or table of a library, None for anything else."""
    kind = type(value)
    for base in mro_of(kind):
        if short_name(base) not in _NAMES:
            continue
        package = module_of(base).partition(".")[0]
        reader = _READERS.get((package, short_name(base)))
        if reader is None or not is_real(base):
            continue
        try:
            return reader(value, f"{package}.{short_name(kind)}" if base is kind else class_name(kind))
        except Exception:  # noqa: BLE001 - another version of the library, or an object that is half made
            return None
    return None


def is_real(cls: type) -> bool:
    """Return whether a class is the one that its module holds under its name."""
    module = _modules.get(module_of(cls))
    return module is not None and module_space(module).get(short_name(cls)) is cls


def _found(thing: object, name: str, wanted: frozenset[int]) -> Any:
    """Return the first member of this name that is C code: a subclass may have hidden it."""
    for base in mro_of(type(thing)):
        member = fixed_attribute(base, name)
        if id(type(member)) in wanted:
            return member
        if member is not MISSING and not is_heap(base) and type(member) is not types.FunctionType:
            # Functions of Cython: Python code cannot change their class.
            return member
    raise TypeError(name)


def read(thing: object, name: str) -> Any:
    """Read an attribute that C code computes."""
    return _found(thing, name, _COMPUTED).__get__(thing)


def call(thing: object, name: str, *arguments: object) -> Any:
    """Call a method of C code."""
    return _found(thing, name, _CALLED)(thing, *arguments)


class _Nature(NamedTuple):
    """The constant facts of a class: its module, and how the dictionary of an instance is read."""

    # A reference, so that no other class can get its address.
    kind: type
    home: str
    space: Any


def _nature(kind: type) -> _Nature:
    known = _natures.get(id(kind))
    if known is not None:
        return known
    slots = (fixed_attribute(base, "__dict__") for base in mro_of(kind))
    space = next((slot for slot in slots if type(slot) is types.GetSetDescriptorType), None)
    found = _Nature(kind, module_of(kind), space)
    if found.home.partition(".")[0] in _PACKAGES:
        _natures[id(kind)] = found
    return found


def _own(thing: object) -> dict[str, Any]:
    """Return the dictionary of an instance. An array of C code has none."""
    slot = _nature(type(thing)).space
    return {} if slot is None else plain(slot.__get__(thing))


def _held(thing: object, name: str) -> Any:
    """Return what an instance holds under a name."""
    return _own(thing)[name]


def _listed(head: str, values: tuple[object, ...], total: int) -> View:
    """Return a view of the first of this many values."""
    if not values:
        return View(f"<{head}>")
    return View(f"<{head}: ", tuple(("", value) for value in values), total - len(values), ">")


def _shape(sizes: Any) -> str:
    return "×".join(map(str, sizes)) if sizes else "()"  # noqa: RUF001 - the sign that is meant


# numpy


def _ndarray(array: Any, name: str) -> View:
    shape, total = read(array, "shape"), read(array, "size")
    # In a subclass, such as a masked array, the values may mean something else.
    column = _cells(array, range(min(total, _VALUES)), plain=name == "numpy.ndarray")
    return _listed(f"{name} {_shape(shape)} {column.kind}", column.values, total)


def _cells(array: Any, places: Places, *, plain: bool = True) -> Column:
    """Return the type of a numpy array and its values at these places, counted through the whole array."""
    dtype = read(array, "dtype")
    kind, size = read(dtype, "kind"), read(dtype, "itemsize")
    if kind in _KINDS:
        name = f"{_KINDS[kind]}{size * 8}"
    elif kind in "Mm":
        name = read(dtype, "str")[1:].replace("M8", "datetime64").replace("m8", "timedelta64")
    else:
        names = read(dtype, "names")
        name = f"({', '.join(names)})" if names else _NAMED.get(kind, short_name(type(dtype)))
    return Column(name, tuple(_cell(array, place, kind, size) for place in places) if plain else ())


def _cell(array: Any, place: int, kind: str, size: int) -> object:
    if kind in "Mm":
        # As a Python value it would be a bare number: Python has no nanoseconds.
        return View(_moment(text_of(call(read(array, "flat"), "__getitem__", place))))
    value = call(array, "item", place)
    return float(f"{value:.{_DIGITS[size]}g}") if kind == "f" and size in _DIGITS else value


def _moment(text: str) -> str:
    """Remove the zero parts of a time."""
    day, _mark, time = text.partition("T")
    return (
        f"{day}T{time.rstrip('0').rstrip('.')}"
        if time.strip("0:.") and "." in time
        else day
        if time
        else text
    )


def text_of(thing: object) -> str:
    """Return the result of `str` where that is C code."""
    return str(call(thing, "__str__"))


def _scalar(value: Any, name: str) -> View | None:
    if is_heap(type(value)):
        return None
    shown = View(text_of(value)) if name.endswith(("datetime64", "timedelta64")) else call(value, "item")
    return View(f"{name}(", (("", shown),), 0, ")")


# pandas


def _frame(table: Any, name: str) -> View:
    manager = _held(table, "_mgr")
    labels, rows = read(manager, "axes")
    width, height = _size(labels), _size(rows)
    arrays: dict[int, tuple[Any, int]] = {}
    for block in read(manager, "blocks"):
        for row, place in enumerate(islice(_each(read(block, "_mgr_locs")), width)):
            if place < _COLUMNS:
                arrays[place] = (read(block, "values"), row)
    count = min(height, _CELLS)
    shown = [
        (_label(labels, place), _column(array, range(row * height, row * height + count)))
        for place, (array, row) in sorted(arrays.items())
    ]
    return _tabular(name, (height, width), shown)


def _tabular(name: str, sizes: tuple[int, int], columns: list[tuple[str, Column]]) -> View:
    parts = tuple((f"{label} {column.kind}", _first(column.values, sizes[0])) for label, column in columns)
    if not parts:
        return View(f"<{name} {_shape(sizes)}>")
    return View(f"<{name} {_shape(sizes)}: ", parts, sizes[1] - len(parts), ">")


def _first(values: tuple[object, ...], total: int) -> View:
    if not values:
        return View("")
    return View(" [", tuple(("", value) for value in values), 0, "…]" if total > len(values) else "]")


def _each(thing: object) -> Iterator[int]:
    found: Iterator[int] = call(thing, "__iter__")
    return found


def _one_series(series: Any, name: str) -> View:
    manager = _held(series, "_mgr")
    total = _size(_held(manager, "axes")[0])
    column = _column(read(_held(manager, "blocks")[0], "values"), range(min(total, _VALUES)))
    title = _own(series).get("_name")
    told = f"{title!r} " if type(title) is str else ""
    return _listed(f"{name} {told}{total} {column.kind}", column.values, total)


def _index(index: Any, name: str) -> View:
    total = _size(index)
    column = _labels(index, range(min(total, _VALUES)))
    return _listed(f"{name} {total} {column.kind}".rstrip(), column.values, total)


def _size(index: Any) -> int:
    held = _own(index)
    if "_range" in held:
        return len(held["_range"])
    if "_codes" in held:
        return int(read(next(list.__iter__(held["_codes"])), "size"))
    return _length(held["_data"])


def _length(array: Any) -> int:
    held = _backing(array)
    return int(call(held, "__len__")) if _is_arrow(held) else int(read(held, "size"))


def _backing(array: Any) -> Any:
    """Return the array of numpy or Arrow in which an array of pandas keeps its values."""
    if _nature(type(array)).home in ("numpy", "pyarrow.lib"):
        return array
    held = _own(array)
    for name in ("_pa_array", "_data"):
        if name in held:
            return held[name]
    return read(array, "_ndarray")


def _capital(kind: str) -> str:
    """Format the name of a type as pandas does where there may be gaps."""
    return kind.replace("u", "U", 1).replace("i", "I", 1).replace("f", "F", 1)


def _is_arrow(array: object) -> bool:
    return _nature(type(array)).home == "pyarrow.lib"


def _labels(index: Any, places: Places) -> Column:
    """Return what stands at these places of an index."""
    held = _own(index)
    if "_range" in held:
        return Column("int64", tuple(held["_range"][place] for place in places))
    if "_codes" in held:
        return Column("", tuple(_pair(held["_levels"], held["_codes"], place) for place in places))
    return _column(held["_data"], places)


def _pair(levels: Any, codes: Any, place: int) -> tuple[object, ...]:
    """Return a label of several levels."""
    found = [_cells(code, (place,)).values[0] for code in list.__iter__(codes)]
    return tuple(_known(level, code) for level, code in zip(list.__iter__(levels), found, strict=True))


def _known(labels: Any, code: Any) -> object:
    return _labels(labels, (code,)).values[0] if code >= 0 else View("<NA>")


def _label(labels: Any, place: int) -> str:
    found = _labels(labels, (place,)).values[0]
    parts = found if type(found) is tuple else (found,)
    return ".".join(str(part) if id(type(part)) in ATOMS else "?" for part in parts)[:40]


def _column(array: Any, places: Places) -> Column:
    """Return the type of an array of pandas, and its values at these places."""
    kind = short_name(type(array))
    if kind not in _KNOWN:
        return Column(kind)
    held = _backing(array)
    if _is_arrow(held):
        column = _arrow(held, places)
        return Column("str", column.values) if kind == "ArrowStringArray" else column
    column = _cells(held, places)
    if kind in _GAPPED:
        gaps = _cells(_held(array, "_mask"), places).values
        values = [View("<NA>") if gap else value for gap, value in zip(gaps, column.values, strict=True)]
        return Column("boolean" if kind == "BooleanArray" else _capital(column.kind), tuple(values))
    if kind == "Categorical":
        known = _held(read(array, "_dtype"), "_categories")
        return Column("category", tuple(_known(known, code) for code in column.values))
    if kind == "DatetimeArray" and short_name(type(read(array, "_dtype"))) == "DatetimeTZDtype":
        # The values are kept in another time zone than they are shown in.
        return Column(f"{column.kind} with a time zone")
    return column


# pyarrow


def _arrow(array: Any, places: Places) -> Column:
    kind = text_of(read(array, "type"))
    if kind not in _ARROW:
        return Column(kind)
    cells = [call(array, "__getitem__", place) for place in places]
    return Column(kind, tuple(call(cell, "as_py") for cell in cells))


def _arrow_array(array: Any, name: str) -> View | None:
    if is_heap(type(array)):
        return None
    total = call(array, "__len__")
    column = _arrow(array, range(min(total, _VALUES)))
    return _listed(f"{name} {total} {column.kind}", column.values, total)


def _arrow_table(table: Any, name: str) -> View | None:
    if is_heap(type(table)):
        return None
    schema, height = read(table, "schema"), read(table, "num_rows")
    names = read(schema, "names")
    columns = [call(table, "column", place) for place in range(min(len(names), _COLUMNS))]
    shown = [
        (names[place][:40], _arrow(each, range(min(height, _CELLS)))) for place, each in enumerate(columns)
    ]
    return _tabular(name, (height, len(names)), shown)


# polars


def _polars_frame(table: Any, name: str) -> View:
    held = _held(table, "_df")
    height, width = call(held, "shape")
    names, kinds = call(held, "columns"), call(held, "dtype_strings")
    rows = [call(held, "row_tuple", row) for row in range(min(height, _CELLS))] if _is_simple(kinds) else []
    columns = [
        (label[:40], Column(kind, tuple(row[place] for row in rows)))
        for place, (label, kind) in enumerate(zip(names[:_COLUMNS], kinds, strict=False))
    ]
    return _tabular(name, (height, width), columns)


def _is_simple(kinds: list[str]) -> bool:
    """Return whether the values of all columns become Python values without Python code."""
    return all(kind in ("str", "bool") or kind[0] in "iuf" for kind in kinds)


def _polars_series(series: Any, name: str) -> View:
    held = _held(series, "_s")
    total = call(held, "len")
    return View(f"<{name} {call(held, 'name')!r} {total}>")


# torch


def _tensor(tensor: Any, name: str) -> View | None:
    if not name.startswith("torch."):
        # Reading an attribute of a subclass may run its `__torch_function__`.
        return None
    sizes = tuple(tuple.__iter__(read(tensor, "shape")))
    kind = str(call(read(tensor, "dtype"), "__repr__")).removeprefix("torch.")
    return View(f"<{name} {_shape(sizes)} {kind} on {text_of(read(tensor, 'device'))}>")


# By the package that a class must be from, and its name.
_READERS: dict[tuple[str, str], Reader] = {
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "generic"): _scalar,
    ("pandas", "DataFrame"): _frame,
    ("pandas", "Series"): _one_series,
    ("pandas", "Index"): _index,
    ("pyarrow", "Table"): _arrow_table,
    ("pyarrow", "RecordBatch"): _arrow_table,
    ("pyarrow", "ChunkedArray"): _arrow_array,
    ("pyarrow", "Array"): _arrow_array,
    ("polars", "DataFrame"): _polars_frame,
    ("polars", "Series"): _polars_series,
    ("torch", "Tensor"): _tensor,
}
_NAMES = frozenset(name for _package, name in _READERS)
