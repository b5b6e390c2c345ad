"""What an SBCL image shows beside printed values: pictures and tables that objects give of themselves."""

import shutil

import pytest

from gramercy.images.opening import open_image
from gramercy.images.pictures import Picture, check

pytestmark = pytest.mark.skipif(shutil.which("sbcl") is None, reason="sbcl is not installed")

# A grey PNG of any size, written by hand: zlib has a way to store bytes as they are.
PNG = """
(defun crc32 (octets)
  (let ((crc #xffffffff))
    (loop for octet across octets
          do (setf crc (logxor crc octet))
             (loop repeat 8 do (setf crc (if (logbitp 0 crc) (logxor #xedb88320 (ash crc -1)) (ash crc -1)))))
    (logxor crc #xffffffff)))
(defun big-endian (number) (loop for byte from 24 downto 0 by 8 collect (ldb (byte 8 byte) number)))
(defun chunk (name octets)
  (let ((body (append (map 'list #'char-code name) octets)))
    (append (big-endian (length octets)) body (big-endian (crc32 (coerce body 'vector))))))
(defun adler32 (octets)
  (let ((a 1) (b 0))
    (dolist (octet octets (logior (ash b 16) a)) (setf a (mod (+ a octet) 65521) b (mod (+ b a) 65521)))))
(defun stored (octets)
  (let ((size (length octets)))
    (append '(#x78 #x01 1) (list (ldb (byte 8 0) size) (ldb (byte 8 8) size)
                                 (ldb (byte 8 0) (lognot size)) (ldb (byte 8 8) (lognot size)))
            octets (big-endian (adler32 octets)))))
(defun png (width height)
  (coerce (append '(137 80 78 71 13 10 26 10)
                  (chunk "IHDR" (append (big-endian width) (big-endian height) '(8 0 0 0 0)))
                  (chunk "IDAT" (stored (loop repeat height append (cons 0 (loop repeat width collect 90)))))
                  (chunk "IEND" '()))
          'vector))
(defclass garden () ((beds :initform '("roses" "tulips") :reader beds)))
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Return one image for all tests of this file."""
    opened = open_image("sbcl", project=tmp_path_factory.mktemp("project"))
    reply = opened.evaluate(PNG)
    assert reply.ok, reply.error
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _without_methods(image):
    """Leave no method to the next test."""
    yield
    image.evaluate(
        "(dolist (function (list #'gramercy:picture #'gramercy:table)) (dolist (method "
        "(sb-mop:generic-function-methods function)) (remove-method function method)))"
    )


def shown(image, method, value="(make-instance 'garden)"):
    """Evaluate a method and a value that has it, and return what is shown."""
    reply = image.evaluate(f"#+gramercy {method}\n{value}")
    assert reply.ok, reply.error
    return reply.displays


@pytest.mark.contract("day.pictures.lisp")
def test_an_object_gives_a_picture_by_a_method(image):
    """Pictures and tables: a protocol function by which a user's object gives a picture."""
    method = '(defmethod gramercy:picture ((g garden)) (values (png 30 20) "the garden"))'
    (picture,) = shown(image, method)
    assert picture.text == "the garden"
    assert check(picture.data) == Picture("image/png", 30, 20)


@pytest.mark.parametrize("size", range(1, 8))
def test_the_bytes_come_as_they_are(image, size):
    """Base64 has one, two or no octets left at its end."""
    method = f"(defmethod gramercy:picture ((g garden)) (coerce '{tuple(range(250, 250 + size))} 'vector))"
    (picture,) = shown(image, method.replace(",", ""))
    if size <= 6:
        assert picture.data == bytes(range(250, 250 + size))
    else:
        assert picture.note.endswith("returned a vector that holds more than octets")


@pytest.mark.contract("day.pictures.lisp")
def test_a_picture_may_be_in_a_file_or_svg(image):
    image.evaluate(
        '(with-open-file (s "plot.png" :direction :output :element-type \'(unsigned-byte 8) '
        ":if-exists :supersede) (write-sequence (png 5 4) s))"
    )
    (picture,) = shown(image, '(defmethod gramercy:picture ((g garden)) #p"plot.png")')
    assert check(picture.data) == Picture("image/png", 5, 4)
    (picture,) = shown(image, '(defmethod gramercy:picture ((g garden)) "<svg>ü</svg>")')
    assert picture.data == "<svg>ü</svg>".encode()


@pytest.mark.contract("day.pictures.lisp")
def test_an_object_gives_a_table_by_a_method(image):
    method = (
        "(defmethod gramercy:table ((g garden)) (values (loop for bed in (beds g) for n from 9 "
        'collect (vector bed n (list :x bed))) (list "bed" "count" "more")))'
    )
    (table,) = shown(image, method)
    assert table.kind == "table"
    assert table.text.split("\n") == [
        "bed     count  more",
        'roses       9  (:X "roses")',
        'tulips     10  (:X "tulips")',
    ]


def test_long_and_wide_tables_are_cut_and_counted(image):
    method = (
        "(defmethod gramercy:table ((g garden)) (loop for row below 100000 collect "
        "(loop for column below 40 collect (list row column))))"
    )
    (table,) = shown(image, method)
    lines = table.text.split("\n")
    assert lines[0].startswith("(0 0)      (0 1)")
    assert lines[-3].startswith("(99999 0)")
    assert lines[-2:] == ["… 99,988 rows not shown", "… 28 columns not shown"]
    assert len(table.text) < 3_000


@pytest.mark.contract("day.pictures.broken")
@pytest.mark.parametrize(
    ("function", "body", "told"),
    [
        ("picture", '(error "no ~a" :ink)', "not shown: SIMPLE-ERROR: no INK"),
        ("picture", "5", "GRAMERCY:PICTURE returned FIXNUM, neither octets, a pathname nor a string"),
        ("picture", "(make-array 800000 :element-type '(unsigned-byte 8))", "it has 800,000 octets"),
        ("picture", '#p"/nowhere.png"', "SB-EXT:FILE-DOES-NOT-EXIST"),
        ("table", '(error "no rows")', "(it gives no table: SIMPLE-ERROR: no rows)"),
        ("table", "5", "(it gives no table: TYPE-ERROR"),
        ("table", "(list 1 2)", "(it gives no table: TYPE-ERROR"),
        ("table", '(list (list (make-string 99999 :initial-element #\\x) "a\nb"))', "a b"),
        ("table", "(let ((c (list 1))) (setf (cdr c) c) (list (list c)))", "#1=(1 . #1#)"),
    ],
)
def test_a_broken_method_is_told_and_the_image_lives_on(image, function, body, told):
    """Bad input: methods that signal, or give what is neither picture nor table."""
    (found,) = shown(image, f"(defmethod gramercy:{function} ((g garden)) {body})")
    assert told in found.text + found.note
    assert found.data == b""
    assert image.evaluate("(+ 1 2)").values == ["3"]


def test_a_method_that_never_ends_or_fills_the_stack_ends_with_the_call(image):
    image.evaluate("(defmethod gramercy:picture ((g garden)) (loop))")
    assert image.evaluate("(make-instance 'garden)", timeout=0.5).error.type == "TIMEOUT"
    image.evaluate("(defmethod gramercy:picture ((g garden)) (labels ((f (n) (+ 1 (f n)))) (f 1)))")
    assert not image.evaluate("(make-instance 'garden)").ok
    assert image.evaluate("(+ 1 2)").values == ["3"]


def test_an_object_may_decline_and_only_its_own_class_is_asked(image):
    assert shown(image, "(defmethod gramercy:picture ((g garden)) nil)") == []
    assert shown(image, "(defmethod gramercy:table ((g garden)) nil)") == []
    assert image.evaluate("(list (make-instance 'garden))").displays == []
    assert image.evaluate("(make-condition 'error)").displays == []


def test_every_value_of_the_last_form_is_shown(image):
    method = '(defmethod gramercy:picture ((g garden)) "<svg/>")'
    values = "(values (make-instance 'garden) 1 (make-instance 'garden))"
    assert len(shown(image, method, values)) == 2


def test_a_method_counts_as_code_that_ran_and_is_taken_back_by_undo(image):
    image.evaluate("(defvar *seen* 0) (defvar *garden* (make-instance 'garden))")
    image.evaluate("(defmethod gramercy:picture ((g garden)) (incf *seen*) nil)")
    assert not image.evaluate("*garden*").unchanged
    assert image.evaluate("*seen*").values == ["1"]
    image.evaluate("(setf *seen* 0)")
    image.evaluate('(defmethod gramercy:picture ((g garden)) "<svg/>")')
    assert len(image.evaluate("*garden*").displays) == 1
    image.undo()
    image.undo()
    assert image.evaluate("*garden*").displays == []
    assert image.evaluate("*seen*").values == ["1"]


def test_a_preview_shows_and_leaves_the_image_alone(image):
    code = '(defmethod gramercy:picture ((g garden)) "<svg/>") (make-instance \'garden)'
    assert image.preview(code).displays[0].data == b"<svg/>"
    assert image.evaluate("(make-instance 'garden)").displays == []


@pytest.mark.contract("day.pictures.lisp-tables")
def test_hash_tables_and_large_matrices_are_shown_as_tables(image):
    """Their own text says little, or far too much."""
    table = (
        "(let ((h (make-hash-table :test 'equal))) "
        '(dotimes (i {} h) (setf (gethash (format nil "k~d" i) h) i)))'
    )
    small = image.evaluate(table.format(2))
    assert small.values[0].startswith("#<HASH-TABLE :TEST EQUAL :COUNT 2")
    assert small.displays[0].text == "key  value\nk0       0\nk1       1"
    large = image.evaluate(table.format(1000)).displays[0].text
    assert large.endswith("… 988 entries not shown")
    assert image.evaluate("(make-hash-table)").displays == []
    matrix = image.evaluate("(make-array '(100 50) :element-type 'double-float :initial-element 1.5d0)")
    assert matrix.values == ["#<(SIMPLE-ARRAY DOUBLE-FLOAT (100 50))>"]
    assert matrix.displays[0].text.endswith("… 88 rows not shown\n… 40 columns not shown")
    assert image.evaluate("(make-array '(2 2) :initial-element 1)").values == ["#2A((1 1) (1 1))"]


def test_the_package_is_documented_and_told_by_a_feature(image):
    assert image.evaluate("(not (null (find :gramercy *features*)))").values == ["T"]
    described = image.ask("describe", symbol="gramercy:picture").text
    assert "Return a picture of OBJECT" in described
    assert (
        image.evaluate('(documentation (find-package "GRAMERCY") t)').values[0].startswith('"How an object')
    )


def test_what_is_evaluated_in_a_frame_is_shown_too(image):
    """The moment of an error has locals that are worth a look."""
    code = '(defmethod gramercy:picture ((g garden)) "<svg/>") (error "now")'
    assert image.evaluate(code).error.moment is not None
    assert image.evaluate_in_frame("(make-instance 'garden)").displays[0].data == b"<svg/>"
