"""What a Python image shows beside printed values: what objects give of themselves, without any library."""

import pytest

from gramercy.images.opening import open_image
from gramercy.images.pictures import check
from tests.support import png

SHOWN = """
class Shown:
    def __init__(self, **given):
        self.given = given
    def _repr_png_(self):
        return self.given.get("png")
    def _repr_jpeg_(self):
        return self.given.get("jpeg")
    def _repr_svg_(self):
        return self.given.get("svg")
    def _repr_html_(self):
        return self.given.get("html")
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Return one image for all tests of this file."""
    opened = open_image("python", project=tmp_path_factory.mktemp("project"))
    opened.evaluate(SHOWN)
    yield opened
    opened.close()


@pytest.mark.contract("day.pictures.objects")
def test_a_value_shows_the_picture_that_its_class_gives(image):
    """Pictures and tables: objects with `_repr_png_`, as notebooks ask them."""
    (shown,) = image.evaluate(f"Shown(png={png(30, 20)!r})").displays
    assert shown.kind == "picture"
    assert shown.text == "Shown"
    assert shown.data == png(30, 20)
    assert check(shown.data).width == 30


def test_only_the_value_of_the_last_form_is_shown(image):
    code = f"Shown(png={png()!r})\n1"
    assert image.evaluate(code).displays == []
    assert image.evaluate(f"[Shown(png={png()!r})]").displays == []


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (f"png=({png()!r}, {{'width': 3}})", "picture"),
        (f"png=bytearray({png()!r})", "picture"),
        (f"png=__import__('base64').b64encode({png()!r}).decode()", "picture"),
        ("svg='<svg/>'", "picture"),
        ("html='<table><tr><td>1</td></tr></table>'", "table"),
    ],
)
def test_all_that_notebooks_accept_is_accepted(image, given, kind):
    (shown,) = image.evaluate(f"Shown({given})").displays
    assert shown.kind == kind


@pytest.mark.parametrize("given", ["", "png=None", "html=None", "html=5"])
def test_an_object_may_decline(image, given):
    reply = image.evaluate(f"Shown({given})")
    assert reply.ok
    assert reply.displays == []


@pytest.mark.contract("day.pictures.broken")
@pytest.mark.parametrize(
    ("code", "note"),
    [
        ("raise ValueError('no ink')", "not shown: ValueError: no ink"),
        ("return 5", "not shown: _repr_png_ returned int, not bytes"),
        ("return bytes(2_000_000)", "returned 2,000,000 bytes, and at most 750,000 are shown"),
        ("return '***'", "not shown: _repr_png_ returned nothing"),
        ("raise SystemExit(3)", None),
        ("import os; os._exit(3)", None),
    ],
)
def test_a_broken_picture_is_told_and_the_image_lives_on(image, code, note):
    """Bad input: an object that raises, gives no bytes, or leaves the program."""
    image.evaluate(f"class Broken:\n    def _repr_png_(self):\n        {code}")
    reply = image.evaluate("Broken()")
    if note is None:
        assert not reply.ok
    else:
        assert reply.ok
        assert reply.values[0].startswith("<__main__.Broken object")
        assert note in reply.displays[0].note
        assert reply.displays[0].data == b""
    assert image.evaluate("1 + 1").values == ["2"]


@pytest.mark.contract("day.pictures.broken")
def test_a_picture_that_never_comes_ends_with_the_time_of_the_call(image):
    image.evaluate("class Endless:\n    def _repr_png_(self):\n        while True: pass")
    reply = image.evaluate("Endless()", timeout=0.5)
    assert reply.error is not None
    assert reply.error.type == "TIMEOUT"
    assert image.evaluate("1 + 1").values == ["2"]


def test_an_object_that_answers_to_every_name_shows_nothing(image):
    """A mock, a proxy, a data base table with columns as attributes."""
    image.evaluate("class Anything:\n    def __getattr__(self, name): return lambda *a: b'x'")
    assert image.evaluate("Anything()").displays == []
    assert image.evaluate("Shown").displays == []


def test_a_value_that_is_shown_counts_as_one_that_ran_code(image):
    """The short way of a look must not be taken where user code ran."""
    image.evaluate(
        "count = 0\nclass Counting:\n    def _repr_png_(self):\n        global count; count += 1\n"
        "c = Counting()"
    )
    assert not image.evaluate("c").unchanged
    assert image.evaluate("count").values == ["1"]


def test_a_preview_shows_and_leaves_the_image_alone(image):
    image.evaluate(
        "class Once:\n    seen = 0\n    def _repr_svg_(self):\n        Once.seen += 1\n"
        "        return '<svg/>'"
    )
    assert image.preview("Once()").displays[0].data == b"<svg/>"
    assert image.evaluate("Once.seen").values == ["0"]


@pytest.mark.contract("day.pictures.html")
def test_the_tables_of_html_become_text(image):
    html = (
        "<style>td { color: red }</style><!-- <td>no</td> --><TABLE class='x'><tr><th>name<th>b &amp; c</tr>"
        "<tr><td>ro<b>se</b></td><td>1<br>2</td></tr><tr><td>ü</td></tr></TABLE><script>'<td>'</script>"
    )
    (shown,) = image.evaluate(f"Shown(html={html!r})").displays
    assert shown.text.split("\n") == ["name  b & c", "rose  1 2", "ü"]


def test_html_without_a_table_is_named_and_a_telling_text_is_enough(image):
    (shown,) = image.evaluate("Shown(html='<p>hello</p>')").displays
    assert shown.text == "(12 characters of HTML are not shown; print(_._repr_html_()) prints them)"
    image.evaluate("class Telling(Shown):\n    def __repr__(self): return 'Telling()'")
    assert image.evaluate("Telling(html='<table><tr><td>1</table>')").displays == []


def test_large_tables_of_html_are_cut_and_counted(image):
    rows = "''.join(f'<tr>' + '<td>cell</td>' * 30 + '</tr>' for n in range(1000))"
    (shown,) = image.evaluate(f"Shown(html='<table>' + {rows} + '</table>')").displays
    assert len(shown.text) < 3_000
    assert "rows and 20 columns not shown" in shown.text
    assert image.evaluate("Shown(html='<table>' + '<tr><td>' * 300_000)").ok


def test_an_import_of_pyplot_is_followed_only_once_and_a_missing_one_stays_missing(image, tmp_path_factory):
    """The finder must not be in the way of any import."""
    reply = image.evaluate("import importlib.util\nimportlib.util.find_spec('matplotlib')")
    assert reply.values == ["None"]
    assert image.evaluate("import matplotlib.pyplot").error.type == "ModuleNotFoundError"
    project = tmp_path_factory.mktemp("plots")
    (project / "matplotlib").mkdir()
    (project / "matplotlib/__init__.py").write_text("")
    (project / "matplotlib/pyplot.py").write_text("def show():\n    return 'shown by itself'\n")
    other = open_image("python", project=project)
    try:
        assert other.evaluate("import matplotlib.pyplot as p\np.show()").values == ["None"]
        assert other.evaluate("import sys\n[type(f).__name__ for f in sys.meta_path]").values == [
            "['Follower', 'Follower', 'Follower', 'type', 'type', 'type']"
        ]
    finally:
        other.close()


def test_what_is_evaluated_in_a_frame_is_shown_too(image):
    """The moment of an error has locals that are worth a look."""
    failed = image.evaluate("def fail(svg):\n    local = Shown(svg=svg)\n    return 1 / 0\nfail('<svg/>')")
    assert failed.error.moment is not None
    reply = image.evaluate_in_frame("local")
    assert reply.displays[0].data == b"<svg/>"
    assert image.evaluate_in_frame("Shown(html='<table><tr><td>1</table>')").displays[0].text == "1"
