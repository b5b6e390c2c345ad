"""Safe tools run no code of the user's: traps are laid wherever looking could run something."""

from __future__ import annotations

import re

import pytest

LISP = """
(defvar *sprung* 0)
(defun spring () (incf *sprung*))
(defclass trap () ((slot :initarg :slot :initform (spring) :accessor trap-slot)))
(defmethod print-object ((trap trap) stream) (spring) (write-string "trap" stream))
(defmethod describe-object ((trap trap) stream) (spring) (write-string "trap" stream))
(defmethod documentation ((trap trap) kind) (declare (ignore kind)) (spring) "trap")
(defmethod slot-unbound (class (trap trap) name) (declare (ignore class name)) (spring) nil)
(defmethod slot-missing (class (trap trap) name operation &optional value)
  (declare (ignore class name operation value)) (spring) nil)
(defmethod make-load-form ((trap trap) &optional environment) (declare (ignore environment)) (spring) nil)
(defmethod trap-slot :before ((trap trap)) (spring))
(defstruct (box (:print-function (lambda (box stream depth) (declare (ignore box depth)) (spring)
                                   (write-string "box" stream)))) held)
(defclass meta (sb-mop:standard-class) ())
(defmethod sb-mop:validate-superclass ((class meta) (super sb-mop:standard-class)) t)
(defmethod sb-mop:slot-value-using-class :before ((class meta) object slot)
  (declare (ignore object slot)) (spring))
(defmethod sb-mop:class-prototype :before ((class meta)) (spring))
(defclass strange () ((part :initform (spring))) (:metaclass meta))
(defmethod print-object ((object strange) stream) (spring) (write-string "strange" stream))
(define-condition mishap (error) () (:report (lambda (condition stream) (declare (ignore condition)) (spring)
                                               (write-string "mishap" stream))))
(defmacro snare (form) (spring) form)
(define-symbol-macro lure (spring))
(define-compiler-macro baited (x) (spring) x)
(defun baited (&optional (x (spring))) x)
(defvar *trap* (make-instance 'trap :slot 1))
(defvar *empty* (allocate-instance (find-class 'trap)))
(defvar *box* (make-box :held *trap*))
(defvar *strange* (allocate-instance (find-class 'strange)))
(defvar *nested* (list *trap* (vector *box* *strange*) (make-condition 'mishap)))
(defvar *table* (let ((table (make-hash-table :test 'equal))) (setf (gethash "k" table) *trap*) table))
(defun toucher () (list *trap* *nested* (spring) (baited)))
(setf *sprung* 0)
"""
PYTHON = """
sprung = 0
def spring(*_a, **_k):
    global sprung
    sprung += 1
    return 0
class Meta(type):
    def __getattr__(cls, name): spring(); raise AttributeError(name)
    def __getattribute__(cls, name):
        spring()
        return type.__getattribute__(cls, name)
    def __repr__(cls): spring(); return "Meta"
    def __dir__(cls): spring(); return []
    def __instancecheck__(cls, other): spring(); return True
    def __subclasscheck__(cls, other): spring(); return True
    def __eq__(cls, other): spring(); return True
    def __hash__(cls): return 7
    def mro(cls): spring(); return type.mro(cls)
class Descriptor:
    def __get__(self, instance, owner): spring(); return 1
    def __set__(self, instance, value): spring()
class Trap(metaclass=Meta):
    field = Descriptor()
    plain: int = 3
    def __repr__(self): spring(); return "trap"
    def __str__(self): spring(); return "trap"
    def __getattr__(self, name): spring(); raise AttributeError(name)
    def __getattribute__(self, name): spring(); return object.__getattribute__(self, name)
    def __dir__(self): spring(); return []
    def __len__(self): spring(); return 0
    def __bool__(self): spring(); return True
    def __eq__(self, other): spring(); return True
    def __hash__(self): spring(); return 1
    def __iter__(self): spring(); return iter(())
    def __format__(self, spec): spring(); return ""
    @property
    def __doc__(self): spring(); return "trap"
    @property
    def __class__(self): spring(); return int
    @property
    def __signature__(self): spring(); return None
    @property
    def __wrapped__(self): spring(); return None
    def __call__(self, a): spring()
class Text(str):
    def __repr__(self): spring(); return "text"
    def __str__(self): spring(); return "text"
class Numbers(list):
    def __repr__(self): spring(); return "numbers"
    def __iter__(self): spring(); return iter(())
    def __len__(self): spring(); return 0
    def __getitem__(self, key): spring(); return None
class Table(dict):
    def __repr__(self): spring(); return "table"
    def items(self): spring(); return []
    def keys(self): spring(); return []
    def __iter__(self): spring(); return iter(())
    def __getitem__(self, key): spring(); return None
trap = Trap()
text = Text("x")
numbers = Numbers([1])
table = Table(a=1)
nested = [trap, (trap, {"k": trap}), {1: [trap]}]
def toucher(argument=trap): return trap, nested, spring()
def __getattr__(name): spring(); raise AttributeError(name)
sprung = 0
"""
LISP_NAMES = [
    *("*trap*", "*empty*", "*box*", "*strange*", "*nested*", "*table*"),
    *("trap", "box", "strange", "mishap", "snare", "lure", "baited", "toucher", "trap-slot", "spring"),
]
PYTHON_NAMES = [
    "trap",
    "text",
    "numbers",
    "table",
    "nested",
    "Trap",
    "Meta",
    "Text",
    "toucher",
    "spring",
    "trap.field",
]


@pytest.fixture
def trapped(desk):
    desk.evaluate(LISP, PYTHON)
    assert sprung(desk) == "=> 0"
    return desk


def sprung(desk):
    return desk.evaluate("*sprung*", "sprung")


def names(desk):
    return LISP_NAMES if desk.language == "sbcl" else PYTHON_NAMES


@pytest.mark.parametrize(
    ("tool", "argument"),
    [
        ("describe_symbol", "symbol"),
        ("function_arglist", "function"),
        ("who_calls", "function"),
        ("who_references", "variable"),
        ("class_slots", "class"),
        ("class_hierarchy", "class"),
        ("apropos_search", "pattern"),
        ("find_definition", "symbol"),
        ("find_methods", "name"),
        ("look_up_documentation", "name"),
    ],
)
def test_looking_at_a_trap_does_not_spring_it(trapped, tool, argument):
    """Introspection: safe tools run no user code."""
    results = {name: trapped.call(tool, **{argument: name}) for name in names(trapped)}
    assert any(result.success for result in results.values())
    assert sprung(trapped) == "=> 0"


def test_listings_spring_no_trap(trapped):
    """Introspection: safe tools run no user code."""
    package = trapped.either("cl-user", "__main__")
    trapped.text("list_package_symbols", package=package, include_internal=True)
    listed = trapped.text("list-definitions")
    assert "trap" in listed.lower()
    assert sprung(trapped) == "=> 0"


def test_the_past_is_shown_without_asking_its_objects(trapped):
    """Introspection: get_last_error and get_repl_history show what was already written."""
    trapped.text("get_repl_history", limit=50)
    trapped.text("get_last_error")
    trapped.text("list_checkpoints")
    trapped.text("checkpoint_image")
    assert sprung(trapped) == "=> 0"


@pytest.mark.parametrize("place", range(6))
def test_an_object_is_inspected_without_its_help(trapped, place):
    """Object inspector: look at values without running code."""
    name = names(trapped)[place]
    # Returning the object prints it, which the evaluation may do; only what follows is under test.
    shown = trapped.text("eval_form", form=name)
    trapped.evaluate("(progn (setf *sprung* 0) nil)", "sprung = 0")
    if "[object " not in shown:
        pytest.skip("a plain class of the language, not an object with an id")
    queue = [int(shown.split("[object ")[1].split("]")[0])]
    seen: set[int] = set()
    while queue and len(seen) < 30:
        number = queue.pop()
        seen.add(number)
        text = trapped.text("inspect_object", object=number)
        found = [int(digits) for digits in re.findall(r"(?:is object |  #)(\d+)", text)]
        queue += [other for other in found if other not in seen]
    assert sprung(trapped) == "=> 0"


def test_a_macro_is_not_run_by_safe_tools_but_by_expansion(lisp_desk):
    """Decision 1: macroexpand_form is cautious, since macros are the user's code."""
    lisp_desk.text("eval_form", form=LISP)
    lisp_desk.text("macroexpand_form", form="(snare 1)")
    assert sprung(lisp_desk) == "=> 1"


def test_a_preview_springs_traps_only_in_its_copy(trapped):
    """Preview: the state of the live image is untouched."""
    trapped.text("preview_form", code=trapped.either("(spring) *trap*", "spring()\ntrap"))
    assert sprung(trapped) == "=> 0"
