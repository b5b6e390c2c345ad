"""The display of values beyond their type: records, dates, paths, and arrays of libraries.

A view is made from slots, dictionaries and declared fields. No user code runs, so the class's own printed
form is not known here. Fields that are declared not to be printed are left out.
"""

import enum
import types
from collections.abc import Callable
from typing import Any

from .anatomy import (
    MISSING,
    class_attribute,
    class_name,
    class_space,
    instance_space,
    is_class,
    is_kind,
    mro_of,
    plain,
    qualified_name,
    short_name,
)
from .arrays import View, call, is_real, read, view_of_array

_SECRETS = ("pydantic.types.SecretStr", "pydantic.types.SecretBytes")
_ROWS = ("sqlalchemy.engine.row.Row", "sqlalchemy.engine.row.RowMapping")
_names = vars(types.SimpleNamespace)["__dict__"].__get__
_arguments = vars(BaseException)["args"].__get__


def view_of(value: object) -> View | None:
    """Return the view of a value, or None where only its type can be shown."""
    if is_class(value) or is_kind(type(value), enum.EnumMeta):
        return None
    return _plain_record(value) or _standard(value) or _record(value) or view_of_array(value)


def _plain_record(value: Any) -> View | None:
    kind = type(value)
    if kind is types.SimpleNamespace:
        return View("namespace(", _labelled(plain(_names(value))), 0, ")")
    if is_kind(value, BaseException):
        given = tuple(("", each) for each in _arguments(value))
        return View(f"{class_name(kind)}(", given, 0, ")", is_data=False)
    return None


def _standard(value: object) -> View | None:
    """Return the view of a date, a number, a path. The classes are looked up, since none need be loaded."""
    kind = type(value)
    reader = _READERS.get(short_name(kind))
    if reader is None or class_name(kind) not in _STANDARD or not is_real(kind):
        return None
    try:
        return reader(value)
    except Exception:  # noqa: BLE001 - an object that is half made, or another version of Python
        return None


def _printed(value: object) -> View:
    return View(str(call(value, "__repr__")))


def _time(value: object) -> View | None:
    """Return the view of a time. User code may compute the name of its zone."""
    zone = type(read(value, "tzinfo"))
    is_known = zone is type(None) or (class_name(zone) == "datetime.timezone" and is_real(zone))
    if not is_known or short_name(type(value)) == "Timestamp":
        written = call(value, "isoformat") if zone is type(None) else None
        return View(f"{qualified_name(type(value))}({written!r})") if written else None
    return _printed(value)


def _identifier(value: object) -> View | None:
    number = instance_space(value).get("int")
    if type(number) is not int:
        return None
    digits = f"{number:032x}"
    return View(f"UUID('{'-'.join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))}')")


def _path(value: object) -> View | None:
    held = instance_space(value)
    raw: Any = held.get("_raw_paths")
    if type(raw) is list:
        text = "/".join(part for part in raw if type(part) is str)
    else:
        # Until 3.11 the parts of a path begin with its root.
        parts: Any = held.get("_parts")
        if type(parts) is not list or any(type(part) is not str for part in parts):
            return None
        text = parts[0] + "/".join(parts[1:]) if parts and parts[0] == "/" else "/".join(parts)
    return View(f"{short_name(type(value))}({text or '.'!r})")


def _record(value: object) -> View | None:
    """Return the view of an instance whose class declares its fields, or that a mapper has made."""
    kind = type(value)
    if class_name(kind) in _SECRETS:
        return View(f"{qualified_name(kind)}('**********')")
    if any(base is tuple for base in mro_of(kind)):
        return _named_tuple(value)
    names = _declared(kind)
    held = instance_space(value)
    if names is None and "_sa_instance_state" in held:
        names = [name for name in held if not name.startswith("_sa_")]
    if names is None:
        return _row(value)
    return View(
        f"{qualified_name(kind)}(",
        _labelled({name: held[name] for name in names if name in held}),
        0,
        ")",
        is_data=False,
    )


def _labelled(fields: dict[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple((f"{name}=", value) for name, value in fields.items())


def _declared(kind: type) -> list[str] | None:
    """Return the fields that a dataclass, a class of attrs or a model of pydantic prints."""
    for base in mro_of(kind):
        space = class_space(base)
        for name in ("__dataclass_fields__", "__pydantic_fields__"):
            if type(space.get(name)) is dict:
                return [key for key, field in plain(space[name]).items() if _is_printed(field)]
        found: Any = space.get("__attrs_attrs__")
        if found is not None and is_kind(found, tuple):
            fields = [instance_space(each) for each in tuple.__iter__(found)]
            return [str(each["name"]) for each in fields if each.get("repr") is not False]
    return None


def _is_printed(field: object) -> bool:
    return instance_space(field).get("repr") is not False


def _named_tuple(value: Any) -> View | None:
    names: Any = class_attribute(type(value), "_fields")
    if type(names) is not tuple or len(names) != tuple.__len__(value):
        return None
    if any(type(name) is not str for name in names):
        return None
    pairs = zip(names, tuple.__iter__(value), strict=True)
    return View(f"{qualified_name(type(value))}(", _labelled(dict(pairs)), 0, ")", is_data=False)


def _row(value: object) -> View | None:
    """Return the view of a row of SQLAlchemy, whose columns are in an index that all rows share."""
    if class_name(type(value)) not in _ROWS:
        return None
    found = [_attribute(value, name) for name in ("_data", "_key_to_index")]
    if type(found[0]) is not tuple or type(found[1]) is not dict:
        return None
    names = {place: key for key, place in reversed(plain(found[1]).items()) if type(place) is int}
    parts = ((f"{names[place]}=" if place in names else "", each) for place, each in enumerate(found[0]))
    return View(f"{qualified_name(type(value))}(", tuple(parts), 0, ")")


def _attribute(value: object, name: str) -> object:
    try:
        return read(value, name)
    except TypeError:
        return instance_space(value).get(name, MISSING)


_READERS: dict[str, Callable[[object], View | None]] = {
    **dict.fromkeys(("Decimal", "date", "timedelta", "timezone", "range", "slice"), _printed),
    **dict.fromkeys(("datetime", "time", "Timestamp"), _time),
    **dict.fromkeys(("PosixPath", "PurePosixPath"), _path),
    "UUID": _identifier,
}
_STANDARD = frozenset(
    (
        *("decimal.Decimal", "uuid.UUID", "range", "slice"),
        *(f"datetime.{name}" for name in ("date", "datetime", "time", "timedelta", "timezone")),
        *(
            f"{home}.{name}"
            for home in ("pathlib", "pathlib._local")
            for name in ("PosixPath", "PurePosixPath")
        ),
        *("pandas.Timestamp", "pandas._libs.tslibs.timestamps.Timestamp"),
    )
)
