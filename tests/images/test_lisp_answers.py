"""The answers about Lisp names and classes, held against DESCRIBE, SB-INTROSPECT and the MOP of SBCL itself.

Every difference that may be is listed here with its reason; any other is a failure.
"""

import contextlib
import re
from pathlib import Path

import pytest

from tests.images import children
from tests.images import lisp_oracle as oracle

pytestmark = pytest.mark.skipif(not children.SBCL, reason="sbcl is not installed")

LIMIT = 8_000
SYSTEMS = ("alexandria", "cl-ppcre", "usocket", "bordeaux-threads")
PACKAGES = {
    "standard": ["common-lisp"],
    "libraries": ["alexandria", "cl-ppcre", "usocket", "bordeaux-threads"],
}
# Loading them for the first time compiles them.
LOAD_SECONDS = 200.0
# The answer gives the syntax of the standard, where SBCL has one word for all of it.
OWN_SYNTAX = {
    *(
        "EVAL-WHEN",
        "FLET",
        "FUNCTION",
        "LABELS",
        "LET",
        "LET*",
        "MACROLET",
        "SETQ",
        "SYMBOL-MACROLET",
        "TAGBODY",
    )
}
# Variables that differ from one evaluation to the next, or whose values only a method of theirs can print.
VOLATILE = {
    *("*", "**", "***", "+", "++", "+++", "/", "//", "///", "-", "*GENSYM-COUNTER*", "*PRINT-RIGHT-MARGIN*"),
    *("*DEBUG-IO*", "*ERROR-OUTPUT*", "*QUERY-IO*", "*STANDARD-INPUT*", "*STANDARD-OUTPUT*", "*TERMINAL-IO*"),
    *(
        "*TRACE-OUTPUT*",
        "*PRINT-PPRINT-DISPATCH*",
        "*RANDOM-STATE*",
        "*READTABLE*",
        "*FEATURES*",
        "*PACKAGE*",
    ),
}
# Facts of DESCRIBE that an answer does not tell, by label, with the names they are about.
NOT_TOLD = {
    # SBCL keeps instructions of its assembler in the property lists of symbols.
    "Symbol-plist": {"AND", "BREAK", "LOOP", "NOT", "OR", "POP", "PUSH", "SET"},
    "Value": VOLATILE,
    # DESCRIBE prints a default of "" as nothing, and variables behind keys that a caller never names.
    "Lambda-list": {*OWN_SYNTAX, "COMPILE-FILE"},
    # Our own streams have methods of these, which are never told.
    "Methods": {"CLOSE", "OPEN-STREAM-P"},
    # What a type of a library stands for is computed by its code, which is not run; the answer says so.
    "Expansion": {"ALEXANDRIA:ARRAY-INDEX", "ALEXANDRIA:ARRAY-LENGTH"},
}


class Library:
    """A process with the systems loaded, and the oracle beside them."""

    def __init__(self, process, place):
        self.process = process
        self.place = place
        self.answers = {}
        reply = process.eval(oracle.WRITER)
        assert reply["ok"], reply["error"]

    def ask(self, question, **details):
        reply = self.process.ask(question, **details)
        assert reply["ok"], (details, reply["error"])
        assert len(reply["text"]) <= LIMIT, details
        # The feature by which user code knows that it runs in an image is no secret.
        assert "GRAMERCY" not in reply["text"].replace("(:GRAMERCY ", "("), details
        return reply

    def records(self, function, names):
        file = self.place / function
        reply = self.process.eval(f'(oracle::{function} (list {names}) "{file}")')
        assert reply["ok"], reply["error"]
        return oracle.records(file)

    def names(self, packages):
        return self.records("write-names", " ".join(f":{package}" for package in packages))

    def description(self, name):
        if name not in self.answers:
            self.answers[name] = self.ask("describe", symbol=name)["text"]
        return self.answers[name]


@pytest.fixture(scope="module")
def standard(tmp_path_factory):
    """Return a process with nothing loaded."""
    place = tmp_path_factory.mktemp("standard")
    with contextlib.closing(children.Family(place, "sbcl")) as family:
        yield Library(family.live(), place)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """Return a process with Debian's libraries loaded."""
    if not all((Path("/usr/share/common-lisp/source") / system).exists() for system in SYSTEMS):
        pytest.skip("Debian's packages of the libraries are not installed")
    place = tmp_path_factory.mktemp("libraries")
    with contextlib.closing(children.Family(place, "sbcl")) as family:
        process = family.live()
        for system in SYSTEMS:
            assert process.ask("load_system", LOAD_SECONDS, system=system)["ok"]
        yield Library(process, place)


@pytest.fixture(params=["standard", pytest.param("libraries", marks=pytest.mark.slow)])
def library(request):
    """Return each process in turn."""
    return request.getfixturevalue(request.param), PACKAGES[request.param]


@pytest.mark.contract("answers.lisp.arglist")
def test_every_lambda_list_is_that_of_sb_introspect(library):
    """Answers: function_arglist for all external symbols of COMMON-LISP and of the libraries."""
    process, packages = library
    different, compared = {}, 0
    for name, parameters, kind, _described in process.names(packages):
        if kind is None or name in OWN_SYNTAX:
            continue
        compared += 1
        given = [] if parameters == "NIL" else oracle.caller_view(oracle.read(parameters)[0])
        expected = [oracle.bare(name), *given]
        told = oracle.read(process.ask("arglist", function=name)["text"])[0]
        if told != expected:
            different[name] = (expected, told)
    assert different == {}
    assert compared > 200


@pytest.mark.contract("answers.lisp.special-operators")
def test_all_special_operators_are_told_with_their_syntax(standard):
    """Answers: the 25 special operators."""
    told = {
        name: standard.ask("arglist", function=name)["text"]
        for name, _parameters, kind, _described in standard.names(["common-lisp"])
        if kind == "special operator"
    }
    assert len(told) == 25
    assert set(told) >= OWN_SYNTAX
    assert told["IF"] == "(IF TEST THEN &OPTIONAL ELSE)"
    assert told["SETQ"] == "(SETQ {VARIABLE VALUE}*)"
    assert told["LET"] == "(LET ({VARIABLE | (VARIABLE [VALUE])}*) &BODY BODY)"
    assert told["FLET"] == "(FLET ({(NAME LAMBDA-LIST &BODY BODY)}*) &BODY BODY)"
    assert all(
        text.startswith(f"({name}") and text.count("(") == text.count(")") for name, text in told.items()
    )


@pytest.mark.contract("answers.lisp.describe")
def test_every_fact_of_describe_is_told(library):
    """Answers: describe_symbol for all external symbols of COMMON-LISP and of the libraries."""
    process, packages = library
    missing, compared = {}, 0
    for name, _parameters, _kind, described in process.names(packages):
        answer = process.description(name)
        for label, value in oracle.facts(described):
            compared += 1
            untold = oracle.untold(label, value, answer)
            if untold and name not in NOT_TOLD.get(label, ()):
                missing[name, label] = untold
    assert missing == {}
    assert compared > 900


# What DESCRIBE does not tell: where something is defined, but for the files of functions, and the generic
# functions that take a class.
MORE = re.compile(
    r"^ *(/\S*|defined in the session)$|  /\S*|^ *Source file: .*$|^  methods: .*$", re.MULTILINE
)

# Their values are those of the last forms: other ones when DESCRIBE was asked, and with each order of tests.
LATEST = {sign * times for sign in "+*/" for times in (1, 2, 3)} | {"-"}


@pytest.mark.contract("answers.lisp.shorter")
def test_descriptions_have_fewer_characters_than_describe(library):
    """Answers: in fewer characters. What DESCRIBE does not tell at all is not counted."""
    process, packages = library
    longer, ours, theirs = {}, 0, 0
    for name, _parameters, _kind, described in process.names(packages):
        answer = MORE.sub("", process.description(name))
        length = len(MORE.sub("", described))
        ours, theirs = ours + len(answer), theirs + length
        # Of what means nothing DESCRIBE prints the name; the answer says that there is nothing more.
        if len(answer) > length and "It has no definition." not in answer:
            longer[name] = (len(answer), length)
    assert set(longer) - {"NOTINLINE"} - LATEST == set()
    assert ours < 0.8 * theirs


CALLED = (
    *(
        "error",
        "car",
        "mapcar",
        "gethash",
        "print-object",
        "format",
        "make-instance",
        "sort",
        "dolist",
        "with-open-file",
    ),
    *(
        "apply",
        "open",
        "intern",
        "coerce",
        "assoc",
        "loop",
        "handler-case",
        "princ",
        "rplaca",
        "shared-initialize",
    ),
)
CALLED_IN_LIBRARIES = (
    *("alexandria:ensure-function", "alexandria:curry", "alexandria:with-gensyms", "alexandria:once-only"),
    *("alexandria:proper-list-length", "cl-ppcre:scan", "cl-ppcre:create-scanner", "cl-ppcre:do-scans"),
    *(
        "cl-ppcre:parse-string",
        "usocket:socket-connect",
        "usocket:get-host-by-name",
        "bordeaux-threads:make-thread",
    ),
)
USED = (
    "*package*",
    "*print-base*",
    "*features*",
    "*standard-output*",
    "pi",
    "*gensym-counter*",
    "most-positive-fixnum",
)


def referrers(names):
    """Bring names of definitions to a form in which they can be compared; ours are never told."""
    kept = (oracle.bare(name).replace("'", "") for name in names if "GRAMERCY.IMAGE" not in name)
    # SB-INTROSPECT adds to the name of a transformation the types it is for.
    return {re.sub(r"^\((DEF[A-Z-]+ )?([^ ()]+)( [(*T].*)?\)$", r"\1\2", name) for name in kept}


@pytest.mark.contract("answers.lisp.callers")
def test_callers_are_those_of_sb_introspect(standard):
    """Answers: who_calls against SB-INTROSPECT, expansions of macros with it."""
    for name, expected in standard.records("write-callers", " ".join(f"'{name}" for name in CALLED)):
        told = standard.ask("who_calls", function=name)["data"]["references"]
        assert referrers(told) == referrers(expected), name


@pytest.mark.slow
def test_callers_in_libraries_are_those_of_sb_introspect(libraries):
    """Answers: who_calls against SB-INTROSPECT."""
    found = 0
    for name, expected in libraries.records("write-callers", " ".join(f"'{n}" for n in CALLED_IN_LIBRARIES)):
        reply = libraries.ask("who_calls", function=name)
        assert referrers(reply["data"]["references"]) == referrers(expected), name
        found += len(expected)
        lines = [line for line in reply["text"].splitlines() if line.startswith("  ") and "…" not in line]
        assert all(re.search(r"\.lisp:\d+", line) for line in lines), lines
    assert found > 50


@pytest.mark.slow
def test_the_lines_of_callers_hold_the_calls(libraries):
    """Answers: every place has file:line.

    Calls that were compiled inline stand on other lines, and so do those that a macro makes.
    """
    names = libraries.process.eval(
        "(dolist (p '(:cl-ppcre :alexandria)) (do-symbols (s p)"
        ' (when (and (eq (symbol-package s) (find-package p)) (fboundp s)) (format t "~a::|~a|~%" p s))))'
    )["stdout"].split()
    held, places = 0, 0
    for name in names:
        called = name.split("|")[1].lower()
        for file, lines in re.findall(
            r"  (/\S+\.lisp):([\d,]+)", libraries.ask("who_calls", function=name)["text"]
        ):
            source = Path(file).read_text("utf-8").splitlines()
            numbers = [int(number) for number in lines.split(",") if number]
            places += len(numbers)
            held += sum(called in source[number - 1].lower() for number in numbers)
    assert places > 500
    assert held > 0.85 * places, (held, places)


def test_references_to_variables_are_those_of_sb_introspect(standard):
    """Answers: who_references against SB-INTROSPECT: readers, writers and binders."""
    for name, expected in standard.records("write-users", " ".join(f"'{name}" for name in USED)):
        told = standard.ask("who_references", variable=name)["data"]["references"]
        assert referrers(told) == referrers(expected), name


def class_records(process, packages):
    listed = " ".join(f":{package}" for package in packages)
    names = f"""'#.(let ((names '()))
      (dolist (package '({listed}) names)
        (do-symbols (symbol package)
          (let ((class (and (eq (symbol-package symbol) (find-package package)) (find-class symbol nil))))
            (when (and class (not (typep class 'sb-mop:forward-referenced-class))) (push symbol names))))))"""
    file = process.place / "classes"
    reply = process.process.eval(f'(oracle::write-classes {names} "{file}")')
    assert reply["ok"], reply["error"]
    return oracle.records(file)


def bare_all(names):
    return [oracle.bare(name) for name in names]


@pytest.mark.contract("answers.lisp.class-hierarchy")
def test_every_class_has_the_neighbours_that_the_mop_tells(library):
    """Answers: class_hierarchy against the MOP."""
    process, packages = library
    classes = class_records(process, packages)
    for name, _kind, above, below, precedence, _slots in classes:
        reply = process.ask("class_hierarchy", **{"class": name})
        data = reply["data"]
        assert bare_all(data["superclasses"]) == bare_all(above)
        assert bare_all(data["precedence"]) == bare_all(precedence)
        others = [other for other in below if "GRAMERCY.IMAGE" not in other]
        assert sorted(bare_all(data["subclasses"])) == sorted(bare_all(others))
        assert "Precedence: " + " > ".join(bare_all(precedence)) in oracle.bare(reply["text"])
    assert len(classes) > 15


@pytest.mark.contract("answers.lisp.class-slots")
def test_every_class_has_the_slots_that_the_mop_tells(library):
    """Answers: class_slots against the MOP."""
    process, packages = library
    slots_compared = 0
    for name, kind, _above, _below, _precedence, slots in class_records(process, packages):
        reply = process.ask("class_slots", **{"class": name})
        told = {oracle.bare(slot["name"]): slot for slot in reply["data"]["slots"]}
        assert sorted(told) == sorted(oracle.bare(slot[0]) for slot in slots), name
        for slot_name, type_, initform, initargs, allocation, readers, writers, documentation in slots:
            slots_compared += 1
            slot = told[oracle.bare(slot_name)]
            assert slot["allocation"] == allocation.removeprefix(":")
            assert slot["documentation"] == (documentation or None)
            # Of structures the MOP does not know what was written, nor who reads a slot. DESCRIBE does.
            if kind != "STRUCTURE-CLASS":
                assert oracle.read(slot["type"]) == oracle.read(type_), (name, slot_name)
                assert bare_all(slot["initargs"]) == bare_all(initargs)
                assert oracle.read(slot["initform"] or "") == oracle.read(initform or "")
                assert bare_all(slot["accessors"]) == bare_all([*readers, *writers])
            assert f"  {oracle.bare(slot_name)}" in oracle.bare(reply["text"])
    assert slots_compared > 60
