"""Real figures, pictures, data frames and arrays of matplotlib, PIL, pandas and numpy, decoded."""

import io
import struct
import zlib
from base64 import b64decode
from pathlib import Path

import pytest

from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from gramercy.images.pictures import LARGEST, Picture, check
from gramercy.toolsets.rendering import LONGEST_ANSWER, evaluation_text
from tests.support import install, start_server

ROOT = Path(__file__).parents[2]
INSTALLING = 600
pytestmark = pytest.mark.slow
START = "import matplotlib.pyplot as plt, numpy as np, pandas as pd\nfrom PIL import Image"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Return one image with the libraries of the trials, which are installed where they are not."""
    install("libraries")
    opened = open_image(
        "python",
        project=tmp_path_factory.mktemp("project"),
        environment=Environment(python=str(ROOT / ".venv-libraries")),
    )
    reply = opened.evaluate(START)
    assert reply.ok, reply.error
    yield opened
    opened.close()


@pytest.fixture
def image(shared):
    """Return the image with the libraries loaded and nothing open."""
    shared.evaluate("plt.close('all')")
    return shared


def pictures(reply):
    """Return what the pictures of a reply are; each is decoded to its last pixel."""
    return [check(display.data) for display in reply.displays if display.data]


def colours(data):
    """Return the set of the colours of an RGB(A) PNG without interlacing and filters, by hand."""
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    samples = {2: 3, 6: 4}[colour]
    place, packed = 8, b""
    while place < len(data):
        size, name = struct.unpack(">I4s", data[place : place + 8])
        packed += data[place + 8 : place + 8 + size] if name == b"IDAT" else b""
        place += size + 12
    raw, found, before = zlib.decompress(packed), set(), bytearray(width * samples)
    for row in range(height):
        start = row * (width * samples + 1)
        line = bytearray(raw[start + 1 : start + 1 + width * samples])
        _unfilter(raw[start], line, before, samples)
        found |= {tuple(line[at : at + 3]) for at in range(0, len(line), samples)}
        before = line
    return found


def _unfilter(kind, line, before, samples):
    """Undo the filter of one line of a PNG."""
    for at in range(len(line)):
        left = line[at - samples] if at >= samples else 0
        up, corner = before[at], before[at - samples] if at >= samples else 0
        guess = left + up - corner
        near = min((left, up, corner), key=lambda value: abs(guess - value))
        line[at] = (line[at] + (0, left, up, (left + up) // 2, near)[kind]) % 256


@pytest.mark.contract("day.pictures.figures")
def test_an_open_figure_is_shown_at_the_end_of_the_call_and_closed(image):
    """Pictures and tables: matplotlib figures open at the end of a call."""
    reply = image.evaluate("plt.bar([1, 2], [3, 4], color=(1, 0, 0))\n7")
    assert reply.values == ["7"]
    assert reply.displays[0].text == "figure 1"
    assert pictures(reply) == [Picture("image/png", 640, 480)]
    assert (255, 0, 0) in colours(reply.displays[0].data)
    assert image.evaluate("plt.get_fignums()").values == ["[]"]
    assert image.evaluate("1 + 1").displays == []


def test_show_shows_at_once_so_that_the_next_plot_is_another_one(image):
    """As in a script with windows; without them `show` alone would leave both in one figure."""
    reply = image.evaluate(
        "for colour in ((1, 0, 0), (0, 1, 0)):\n    plt.bar([1], [1], color=colour)\n    plt.show()"
    )
    assert reply.warnings == []
    assert [display.text for display in reply.displays] == ["figure 1", "figure 2"]
    found = [colours(display.data) for display in reply.displays]
    assert [(255, 0, 0) in each for each in found] == [True, False]
    assert [(0, 255, 0) in each for each in found] == [False, True]


def test_a_figure_that_was_kept_is_shown_again_when_it_has_changed(image):
    image.evaluate("fig, ax = plt.subplots()")
    assert image.evaluate("1 + 1").displays == []
    assert len(pictures(image.evaluate("ax.plot([1, 2])"))) == 1
    assert len(pictures(image.evaluate("fig"))) == 1
    assert image.evaluate("ax.get_title()").displays == []


def test_a_figure_without_anything_in_it_stays_open_for_the_next_call(image):
    assert image.evaluate("plt.figure()").displays == []
    assert len(pictures(image.evaluate("plt.plot([1])"))) == 1


@pytest.mark.contract("day.pictures.failed")
def test_what_was_plotted_before_an_error_is_shown(image):
    reply = image.evaluate("plt.plot([1, 2])\nraise ValueError('after')")
    assert reply.error.type == "ValueError"
    assert len(pictures(reply)) == 1


def test_previews_and_undo_have_figures_too(image):
    image.evaluate("kept = 1")
    assert len(pictures(image.preview("plt.plot([1]); kept = 2"))) == 1
    reply = image.evaluate("plt.plot([1]); kept = 3")
    assert reply.unkept is None
    image.undo()
    assert image.evaluate("kept").values == ["1"]
    assert image.evaluate("kept").displays == []


@pytest.mark.contract("day.pictures.large")
def test_a_figure_of_100_megapixels_is_drawn_smaller(image):
    """Bad input: a figure of 100 megapixels."""
    reply = image.evaluate("plt.figure(figsize=(100, 100), dpi=100); plt.plot([1, 2]); None")
    assert pictures(reply) == [Picture("image/png", 1568, 1568)]
    assert reply.displays[0].note.startswith("drawn with 15.7 dots per inch instead of 100")
    long = image.evaluate("plt.figure(figsize=(100_000, 1)); plt.plot([1, 2]); None")
    assert long.displays[0].note == "not drawn: 100,000 by 1 inches are too long to be shown"


@pytest.mark.contract("day.pictures.large")
def test_a_figure_of_too_many_bytes_is_drawn_smaller(image):
    reply = image.evaluate(
        "plt.figure(figsize=(15, 15)); plt.imshow(np.random.rand(1500, 1500, 3)); plt.tight_layout()"
    )
    (shown,) = pictures(reply)
    assert len(reply.displays[0].data) <= LARGEST
    assert min(shown.width, shown.height) > 400


def test_of_1000_figures_four_are_shown_and_the_rest_is_counted(image):
    reply = image.evaluate("for n in range(1000):\n    plt.figure(figsize=(1, 1)); plt.plot([n])")
    assert len(pictures(reply)) == 4
    assert reply.displays[-1].text == "996 more figures"
    assert image.evaluate("plt.get_fignums()").values == ["[]"]


def test_a_figure_that_cannot_be_drawn_is_told_once(image):
    reply = image.evaluate("fig, ax = plt.subplots(); ax.draw = lambda *a: 1 / 0")
    assert reply.ok
    assert reply.displays[0].note == "not drawn: ZeroDivisionError: division by zero"
    assert image.evaluate("2").displays == []


def test_a_warning_while_a_figure_is_drawn_names_no_file_of_ours(image):
    reply = image.evaluate("plt.plot([1]); plt.title('日本')")
    assert reply.warnings
    assert {notice.file for notice in reply.warnings} == {None}


@pytest.mark.usefixtures("shared")
def test_a_backend_that_the_user_chooses_is_respected(tmp_path):
    other = open_image(
        "python",
        project=tmp_path,
        environment=Environment(python=str(ROOT / ".venv-libraries"), variables={"MPLBACKEND": "svg"}),
    )
    try:
        reply = other.evaluate("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.get_backend()")
        assert reply.values == ["'svg'"]
        assert pictures(reply) == [Picture("image/png", 640, 480)]
    finally:
        other.close()


@pytest.mark.contract("day.pictures.pil")
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "F", "I", "HSV", "YCbCr"])
def test_an_image_of_pil_is_shown_whatever_its_mode(image, mode):
    reply = image.evaluate(f"Image.new({mode!r}, (30, 20))")
    assert pictures(reply) == [Picture("image/png", 30, 20)]


@pytest.mark.contract("day.pictures.large")
def test_large_images_are_scaled_down_and_noisy_ones_become_jpeg(image):
    reply = image.evaluate("Image.new('RGB', (10_000, 5_000), 'red')")
    assert pictures(reply) == [Picture("image/png", 1568, 784)]
    assert reply.displays[0].note == "scaled down from 10000x5000 px"
    assert colours(reply.displays[0].data) == {(255, 0, 0)}
    noise = image.evaluate("Image.fromarray((np.random.rand(1200, 1200, 3) * 255).astype('uint8'))")
    (shown,) = pictures(noise)
    assert shown.mime == "image/jpeg"
    assert image.evaluate("Image.new('RGB', (0, 0))").displays[0].note == "not shown: it has no pixels"


def test_a_large_picture_that_an_object_gives_is_scaled_where_pil_is_loaded(image):
    image.evaluate(
        "import io\nclass Big:\n    def _repr_png_(self):\n        b = io.BytesIO()\n"
        "        Image.new('RGB', (4000, 1000)).save(b, format='PNG')\n        return b.getvalue()"
    )
    assert pictures(image.evaluate("Big()")) == [Picture("image/png", 1568, 392)]


@pytest.mark.contract("day.pictures.frames")
def test_a_frame_is_a_bounded_table_with_its_shape_and_types(image):
    """Pictures and tables: data frames as bounded tables with shape and types."""
    reply = image.evaluate("pd.DataFrame({'a': range(1000), 'b': np.arange(1000) / 3, 'c': 'x'})")
    assert reply.values == ["DataFrame, 1,000 rows x 3 columns: a int64, b float64, c str"]
    lines = reply.displays[0].text.split("\n")
    assert lines[0].split() == ["a", "b", "c"]
    assert lines[1].split() == ["0", "0", "0.000000", "x"]
    assert lines[-2].split() == ["999", "999", "333.000000", "x"]
    assert lines[-1] == "… 988 rows not shown; iloc selects others"
    small = image.evaluate("pd.DataFrame({'a': [1, 2]})").displays[0].text
    assert small == "   a\n0  1\n1  2"


FRAMES = [
    ("pd.DataFrame({'a': np.arange(10_000_000)})", "10,000,000 rows x 1 column"),
    ("pd.DataFrame(np.zeros((5, 10_000)))", "5 rows x 10,000 columns"),
    ("pd.DataFrame()", "0 rows x 0 columns"),
    ("pd.DataFrame({'a': []})", "0 rows x 1 column"),
    ("pd.DataFrame({'x': [1, np.nan, None], 'ü日本': ['a\\nb', 'c' * 9_999, '\\x1b[31m']})", "ü日本 str"),
    ("pd.DataFrame({'o': [object(), [1] * 9_999, {'a': 1}]})", "o object"),
    ("pd.DataFrame({'c' * 500: [1]})", "1 column"),
    (
        "pd.DataFrame(np.zeros((40, 2)), index=pd.MultiIndex.from_product([list('abcd'), range(10)]))",
        "40 rows",
    ),
    (
        "pd.DataFrame(np.zeros((3, 2)), columns=pd.MultiIndex.from_tuples([('p', 'q'), ('p', 'r')]))",
        "('p', 'q')",
    ),
    ("pd.DataFrame(np.zeros((3, 2)), columns=['same', 'same'])", "same float64, same float64"),
    ("pd.Series(range(1000), name='s')", "Series s, 1,000 rows: int64"),
    ("pd.Series(['x' * 9_999] * 50)", "50 rows"),
    ("np.zeros((1000, 1000))", "ndarray, shape 1,000 x 1,000: float64"),
    ("np.arange(1000)", "ndarray, shape 1,000: int64"),
    ("np.zeros((10, 10, 10, 10))", "ndarray, shape 10 x 10 x 10 x 10: float64"),
    ("np.array([object()] * 200)", "ndarray, shape 200: object"),
    ("np.array(['x' * 9_999] * 200)", "ndarray, shape 200"),
    ("np.full(200, np.nan)", "float64"),
    ("np.zeros(200, dtype=[('a', 'i4'), ('b', 'f8')])", "shape 200"),
    ("np.broadcast_to(0, (3,) * 30)", "int64"),
    ("np.zeros((0, 500))", None),
]


@pytest.mark.contract("day.pictures.frames")
@pytest.mark.parametrize(("code", "summary"), FRAMES)
def test_odd_and_huge_frames_and_arrays_stay_within_an_answer(image, code, summary):
    """Bad input: ten million rows, object arrays, nan, unicode, several levels of index."""
    reply = image.evaluate(code, timeout=20)
    assert reply.ok, reply.error
    assert len(evaluation_text(reply, room=7_600)) < LONGEST_ANSWER / 2
    if summary is not None:
        assert summary in reply.values[0]
        assert reply.displays[0].kind == "table"


def test_an_element_that_cannot_be_printed_is_told(image):
    image.evaluate("class Broken:\n    def __repr__(self): raise ValueError('no')")
    reply = image.evaluate("pd.DataFrame({'o': [Broken()]})")
    assert reply.displays[0].text == "(it cannot be printed: ValueError: no)"


def test_small_arrays_are_printed_exactly_and_frames_inside_of_others_too(image):
    assert image.evaluate("np.arange(3)").values == ["array([0, 1, 2])"]
    assert image.evaluate("np.arange(3)").displays == []
    assert image.evaluate("{'f': pd.Series([1])}").displays == []


def test_tables_need_no_memory_of_the_size_of_the_data(image):
    """What is shown of ten million rows is read from their ends."""
    image.evaluate("big = pd.DataFrame({'a': np.arange(10_000_000)})")
    before = image.evaluate("import resource; resource.getrusage(resource.RUSAGE_SELF).ru_maxrss").values[0]
    image.evaluate("big")
    after = image.evaluate("resource.getrusage(resource.RUSAGE_SELF).ru_maxrss").values[0]
    assert int(after) - int(before) < 30_000


def test_the_pictures_are_those_that_pil_itself_reads(image):
    """The checks of this project and a real decoder agree."""
    shown = image.evaluate("plt.plot([1, 2])").displays[0].data
    image.evaluate(f"from io import BytesIO\ndata = bytes.fromhex({shown.hex()!r})")
    assert image.evaluate("Image.open(BytesIO(data)).size").values == ["(640, 480)"]
    assert io.BytesIO(shown).read(4) == b"\x89PNG"


@pytest.mark.contract("day.points.blank-figure")
def test_a_picture_that_is_saved_empty_is_told_with_the_reason(image):
    """The figure of the call before was closed, and plt.savefig saved a new one without a word."""
    image.evaluate("plt.plot([1, 2]); kept = plt.gcf()")
    (told,) = image.evaluate("plt.savefig('late.png')").displays
    assert told.data == b""
    assert told.note.startswith("drawn empty: one that was shown is closed.")
    assert image.evaluate("1 + 1").displays == []
    assert not any(shown.note for shown in image.evaluate("kept.savefig('late.png')").displays)


@pytest.mark.contract("day.points.blank-figure")
def test_a_new_figure_that_waits_for_its_plot_is_not_told_of(image):
    """A figure may be made in one call and plotted in the next."""
    image.evaluate("plt.plot([1, 2])")
    assert image.evaluate("plt.figure(); None").displays == []
    assert len(pictures(image.evaluate("plt.plot([3, 4]); plt.savefig('now.png')"))) == 1


@pytest.mark.contract("day.pictures.mcp")
@pytest.mark.usefixtures("shared")
def test_a_client_gets_the_figures_of_a_call_that_fails(tmp_path):
    """The text says what went wrong, and the pictures what was there before."""
    with start_server("--image", "python", "--python", str(ROOT / ".venv-libraries"), cwd=tmp_path) as client:
        client.seconds = INSTALLING
        client.initialize()
        code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nraise ValueError('after')"
        result = client.call("evaluate-python", code=code)
        assert result["isError"]
        text, *_, picture = result["content"]
        assert text["text"].startswith("[ERROR] ValueError")
        assert "figure 1, 640x480 px" in text["text"]
        assert check(b64decode(picture["data"])) == Picture("image/png", 640, 480)
