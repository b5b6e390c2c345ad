"""What the Python image answers about the standard library, held against `inspect` and `ast`.

The expectations come from the same modules in this process, which has the same interpreter. What differs on
purpose is listed beside the comparison with its reason.
"""

import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import re
import sys
import warnings
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from gramercy.images.python.signatures import class_notes_in_source, notes_in_source
from tests.images import children

MODULES = """
abc argparse array ast asyncio asyncio.base_events asyncio.events asyncio.locks asyncio.queues
asyncio.streams asyncio.tasks base64 binascii bisect bz2 calendar cmd code codecs collections
collections.abc colorsys configparser contextlib contextvars copy csv ctypes curses.ascii dataclasses
datetime decimal difflib dis email email.charset email.header email.headerregistry email.message
email.mime.text email.parser email.policy email.utils enum errno fileinput fnmatch fractions ftplib
functools gc getopt getpass gettext glob graphlib gzip hashlib heapq hmac html html.parser http
http.client http.cookies http.server imaplib importlib importlib.abc importlib.machinery
importlib.metadata importlib.resources importlib.util inspect io ipaddress itertools json json.decoder
json.encoder keyword linecache locale logging logging.config logging.handlers lzma mailbox marshal math
mimetypes mmap multiprocessing.connection multiprocessing.context multiprocessing.pool
multiprocessing.queues netrc numbers operator optparse os os.path pathlib pdb pickle pickletools pkgutil
platform plistlib poplib pprint profile pstats pty py_compile pyclbr queue quopri random re reprlib
resource runpy sched secrets selectors shelve shlex shutil signal site smtplib socket socketserver
sqlite3 ssl stat statistics string stringprep struct subprocess symtable sys sysconfig tarfile tempfile
textwrap threading time timeit token tokenize trace traceback tracemalloc types typing unicodedata
unittest unittest.case unittest.loader unittest.mock unittest.runner unittest.suite urllib.error
urllib.parse urllib.request urllib.response urllib.robotparser uuid venv warnings wave weakref webbrowser
wsgiref wsgiref.handlers wsgiref.headers wsgiref.simple_server xml.dom xml.dom.minidom
xml.etree.ElementTree xml.sax xml.sax.handler xml.sax.saxutils xmlrpc.client zipapp zipfile zipimport
zlib zoneinfo concurrent.futures
""".split()  # noqa: SIM905 - a list of so many reads best so


class Subject(NamedTuple):
    """Something to ask about: how it is called, the object as `inspect` sees it, and as it is stored."""

    name: str
    value: object
    stored: object
    owner: type | None


def subjects():
    """Collect the functions and classes of the modules, and the methods of the classes, each once."""
    found: list[Subject] = []
    seen: set[int] = set()
    for name in [*MODULES, "builtins"]:
        module = importlib.import_module(name)
        for key, value in sorted(vars(module).items()):
            if key.isidentifier() and id(value) not in seen and _is_home(value, name):
                seen.add(id(value))
                found.append(Subject(f"{name}:{key}", value, value, None))
                if inspect.isclass(value):
                    found += _methods(f"{name}:{key}", value)
    return found


def _is_home(value, module):
    return (inspect.isroutine(value) or inspect.isclass(value)) and getattr(
        value, "__module__", None
    ) == module


def _methods(name, cls):
    for key, stored in sorted(vars(cls).items()):
        is_method = inspect.isroutine(stored) or isinstance(stored, property | functools.cached_property)
        if key.isidentifier() and is_method:
            value = stored if isinstance(stored, property) else getattr(cls, key, stored)
            yield Subject(f"{name}.{key}", value, stored, cls)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Return a process that has loaded what is asked about."""
    with closing(children.Family(tmp_path_factory.mktemp("python"), "python")) as family:
        process = family.live()
        code = "import importlib, warnings\nwarnings.simplefilter('ignore')\n"
        reply = process.eval(f"{code}for name in {MODULES}: importlib.import_module(name)")
        assert reply["ok"], reply["error"]
        yield process


# --- argument lists


class Parameter(NamedTuple):
    name: str
    kind: str
    note: str
    default: str | None


def pieces(text):
    """Split at the commas that are in no brackets and no quotes."""
    depth, quote, start = 0, "", 0
    for place, mark in enumerate(text):
        if quote:
            quote = "" if mark == quote and text[place - 1] != "\\" else quote
        elif mark in "'\"":
            quote = mark
        elif mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif mark == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def read_signature(text):
    """Read an argument list as it is told."""
    inside, arrow, returned = text.partition(") -> ")
    inside += ")" if arrow else ""
    assert inside[0] == "(", text
    assert inside[-1] == ")", text
    told = [piece for piece in pieces(inside[1:-1]) if piece]
    only = told.index("/") if "/" in told else -1
    found = []
    is_keyword = False
    for place, piece in enumerate(told):
        if piece in ("/", "*"):
            is_keyword = is_keyword or piece == "*"
            continue
        stars = len(piece) - len(piece.lstrip("*"))
        kind = ("", "rest", "more")[stars] or (
            "only" if place < only else "keyword" if is_keyword else "either"
        )
        is_keyword = is_keyword or stars == 1
        head, equals, default = _halves(piece)
        name, _colon, note = head.lstrip("*").partition(": ")
        found.append(Parameter(name, kind, note.strip(), default if equals else None))
    return found, returned


def _halves(piece):
    depth, quote = 0, ""
    for place, mark in enumerate(piece):
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "'\"":
            quote = mark
        elif mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif mark == "=" and not depth:
            return piece[:place].strip(), "=", piece[place + 1 :].strip()
    return piece, "", ""


KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "only",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
    inspect.Parameter.VAR_POSITIONAL: "rest",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_KEYWORD: "more",
}
MISSING = object()
ATOMS = (int, float, complex, bool, str, bytes, type(None))


def signature_faults(told, expected, constants):
    """Compare what is told with what `inspect` knows."""
    found, returned = read_signature(told)
    wanted = list(expected.parameters.values())
    if [(each.name, each.kind) for each in found] != [(each.name, KINDS[each.kind]) for each in wanted]:
        return [f"parameters: {told} instead of {expected}"]
    faults = []
    for each, known in zip(found, wanted, strict=True):
        # `inspect` takes a default of its own for none at all.
        is_marked = each.default == "<class 'inspect._empty'>"
        if (each.default is None) != (known.default is inspect.Parameter.empty) and not is_marked:
            faults.append(f"default of {each.name}: {told} instead of {expected}")
        elif each.default is not None and isinstance(known.default, ATOMS) and type(known.default) in ATOMS:
            shown = repr(known.default)
            # A long default is cut, and the constant that C code names stays as it is written.
            is_cut = len(shown) > 60 and each.default[:-1].endswith("…")
            if each.default != shown and not is_cut and constants.get(each.default, MISSING) != known.default:
                faults.append(f"default of {each.name}: {each.default} instead of {shown}")
        faults += note_faults(each.name, each.note, known.annotation)
    return faults + note_faults("return", returned, expected.return_annotation)


def note_faults(name, told, annotation):
    if annotation is inspect.Signature.empty:
        return [f"annotation of {name}: {told}, there is none"] if told else []
    wanted = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    # Quotes, the module `typing`, and the marks of type variables say nothing that a caller needs.
    plain = [
        re.sub(r"typing\.|[~+\s'\"]|NoneType", "", each.replace("NoneType", "None"))
        for each in (told, wanted)
    ]
    return [] if plain[0] == plain[1] else [f"annotation of {name}: {told} instead of {wanted}"]


def _is_enum_with_members(value):
    """Tell whether `inspect` tells how to make another enum, which this one refuses."""
    return isinstance(value, enum.EnumMeta) and bool(value.__members__)


def arglist_faults(live, subject):
    try:
        expected = inspect.signature(subject.value)
    except (ValueError, TypeError):
        expected = None
    reply = live.ask("arglist", function=subject.name)
    if not reply["ok"]:
        return [f"{reply['error']['message']} instead of {expected}"] if expected is not None else []
    told = reply["data"]["arglist"]
    if _is_enum_with_members(subject.value):
        return [] if told == "(value)" else [f"{told} instead of (value)"]
    if expected is None:
        return []  # to know more than `inspect` is no fault
    if told is None:
        return [f"nothing instead of {expected}"]
    constants = {**vars(importlib.import_module(subject.name.partition(":")[0])), "sys.maxsize": sys.maxsize}
    return signature_faults(told, expected, constants)


# --- descriptions


def kind_faults(subject, text):
    """Compare the word for a function with the questions of `inspect`."""
    head = text.splitlines()[0]
    value = inspect.unwrap(subject.value) if inspect.isfunction(subject.value) else subject.value
    words = []
    if inspect.isclass(value):
        words = ["enum"] if issubclass(value, enum.Enum) else []
        words += ["exception"] if issubclass(value, BaseException) and not words else []
        words += (
            ["dataclass"] if dataclasses.is_dataclass(value) and "__dataclass_fields__" in vars(value) else []
        )
        words = words[:1] or (
            ["metaclass"] if issubclass(value, type) else ["class", "tuple", "protocol", "dict"]
        )
        return [] if any(word in head for word in words) else [f"{head!r} instead of {words}"]
    if inspect.isfunction(value):
        words += ["async generator"] if inspect.isasyncgenfunction(value) else []
        words += ["async "] if inspect.iscoroutinefunction(value) else []
        words += ["generator"] if inspect.isgeneratorfunction(value) else []
    if isinstance(subject.stored, staticmethod | classmethod):
        words.append("static" if isinstance(subject.stored, staticmethod) else "class ")
    if isinstance(subject.stored, property):
        words.append("property")
    if inspect.isbuiltin(value) and subject.owner is None:
        words.append("built-in")
    return [f"{head!r} without {word!r}" for word in words if word not in head]


def class_lines(cls, trees):
    """Return the lines on which a class of this name may begin, decorators included."""
    file = inspect.getsourcefile(cls) or ""
    if file not in trees:
        trees[file] = {}
        _collect(ast.parse(Path(file).read_bytes()), "", trees[file])
    return trees[file].get(cls.__qualname__, [])


def _collect(node, path, found):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
            found.setdefault(path + child.name, []).append(first)
            _collect(child, f"{path}{child.name}.", found)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            _collect(child, f"{path}{child.name}.<locals>.", found)
        else:
            _collect(child, path, found)


def place_faults(subject, place, trees):
    value = inspect.unwrap(subject.value) if callable(subject.value) else subject.value
    value = value.fget if isinstance(value, property) else value
    value = getattr(value, "__func__", value)
    if inspect.isfunction(value) and not value.__code__.co_filename.startswith("<"):
        code = value.__code__
        known = f"{code.co_filename}:{code.co_firstlineno}"
        return [] if place == known else [f"place {place} instead of {known}"]
    # A class of C code may have taken the place of the one in the file.
    if inspect.isclass(value) and value.__flags__ & 1 << 9:
        try:
            lines = class_lines(value, trees)
        except (TypeError, OSError):
            return []
        wanted = [f"{inspect.getsourcefile(value)}:{line}" for line in lines]
        return [] if place in wanted or not wanted else [f"place {place!r} instead of {wanted}"]
    return []


def class_faults(cls, text):
    """Compare bases and members."""
    faults = []
    bases = [base for base in cls.__mro__[1:] if base is not object]
    line = next((each for each in text.splitlines() if each.startswith("Bases: ")), "Bases: ")
    names = [
        base.__qualname__ if base.__module__ == "builtins" else f"{base.__module__}.{base.__qualname__}"
        for base in bases
    ]
    if line != "Bases: " + ", ".join(names):
        faults.append(f"{line!r} instead of {names}")
    if type(cls) is not type and f"Metaclass: {type(cls).__module__}.{type(cls).__qualname__}" not in text:
        faults.append(f"no metaclass {type(cls)}")
    members = [key for key, value in vars(cls).items() if not key.startswith("_") and key.isidentifier()]
    if "more: apropos_search" not in text and "… " not in text.splitlines()[-1]:
        missing = [key for key in members if not re.search(rf"\b{re.escape(key)}\b", text)]
        faults += [f"members {missing} are not told"] if missing else []
    abstract = sorted(getattr(cls, "__abstractmethods__", ()))
    if abstract and "__abstractmethods__" in vars(cls) and f"Abstract: {', '.join(abstract)}" not in text:
        faults.append(f"abstract {abstract} are not told")
    return faults


def doc_faults(subject, text):
    doc = inspect.getdoc(subject.value)
    if not doc or isinstance(subject.stored, property | functools.cached_property):
        return []
    names = {subject.name.rpartition(".")[2], getattr(subject.value, "__name__", "")}
    # What `object` says of every method of a name is no news, and `inspect` asks the metaclass too.
    others = [getattr(kind, name, None) for name in names for kind in (object, type, type(subject.owner))]
    if doc in map(inspect.getdoc, others) and not getattr(subject.value, "__doc__", None):
        return []
    first = doc.strip().splitlines()[0]
    return [] if first in text else [f"documentation {first!r} is not told"]


def described_faults(live, subject, trees):
    reply = live.ask("describe", symbol=subject.name)
    if not reply["ok"]:
        return [reply["error"]["message"]]
    text = reply["text"]
    faults = kind_faults(subject, text) + place_faults(subject, reply["data"]["place"], trees)
    faults += class_faults(subject.value, text) if inspect.isclass(subject.value) else []
    faults += doc_faults(subject, text)
    return faults + (["more than 8,000 characters"] if len(text) > 8000 else [])


# The image runs without the virtual environment of this process.
ELSEWHERE = {"sysconfig:get_path", "sysconfig:get_paths"}
if sys.version_info < (3, 11, 5):
    # There inspect takes __new__ of a base before __init__ of the class itself, which Python calls too.
    ELSEWHERE |= {f"unittest.mock:{name}" for name in ("AsyncMock", "Mock", "PropertyMock")}


def sweep(live, every):
    trees: dict[str, dict[str, list[int]]] = {}
    faults = []
    # Some modules warn when they are imported, and some when they are looked into.
    with warnings.catch_warnings(action="ignore"):
        chosen = [each for each in subjects() if each.name not in ELSEWHERE][::every]
        for subject in chosen:
            found = arglist_faults(live, subject) + described_faults(live, subject, trees)
            faults += [f"{subject.name}: {fault}" for fault in found]
    return len(chosen), faults


@pytest.mark.contract("answers.python.oracle")
def test_a_sample_of_the_standard_library_is_told_as_inspect_tells_it(live):
    count, faults = sweep(live, 23)
    assert faults == []
    assert count > 250


@pytest.mark.contract("answers.python.oracle")
@pytest.mark.slow
def test_the_standard_library_is_told_as_inspect_tells_it(live):
    count, faults = sweep(live, 1)
    assert faults == []
    assert count > 6000


@pytest.mark.contract("answers.python.oracle")
@pytest.mark.parametrize(
    "name", ["importlib.metadata", "importlib.resources._common", "dataclasses", "graphlib"]
)
def test_annotations_are_read_from_the_source_where_to_compute_them_would_run_code(name):
    """From 3.14 on they are functions; older versions show what they should give."""
    module = importlib.import_module(name)
    functions = [value for value in vars(module).values() if inspect.isfunction(value)]
    classes = [
        value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == name
    ]
    functions += [value for cls in classes for value in vars(cls).values() if inspect.isfunction(value)]
    trees: dict[str, dict[str, list[int]]] = {}
    for function in functions:
        code = inspect.unwrap(function).__code__
        if function.__module__ == name and not code.co_filename.startswith("<"):
            notes = inspect.unwrap(function).__annotations__
            assert _spelled(notes_in_source(code)) == _spelled(notes), function
    for cls in classes:
        lines = class_lines(cls, trees) if cls.__flags__ & 1 << 9 else []
        if len(lines) == 1:
            found = class_notes_in_source(inspect.getsourcefile(cls) or "", lines[0])
            assert _spelled(found) == _spelled(vars(cls).get("__annotations__", {})), cls


def _spelled(notes):
    written = {
        key: note if isinstance(note, str) else inspect.formatannotation(note) for key, note in notes.items()
    }
    # As it is written, a name may stand without its modules, and a quoted one is no object.
    return {
        key: re.sub(r"['\"\s]|\b[A-Za-z_]\w*\.|ForwardRef\(|\)", "", note) for key, note in written.items()
    }
