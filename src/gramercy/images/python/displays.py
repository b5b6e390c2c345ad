"""The output of an evaluation beside its printed value: matplotlib figures, pictures of a value, tables.

Nothing is imported for it: a library that is not loaded has nothing to show. It runs code of the user and of
libraries, so it is part of the evaluation and its timeout. Only interrupts leave this module.
"""

import functools
import io
import sys
import weakref
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .anatomy import ATOMS, class_name, class_space, kinds, mro_of, raw_space, short_name
from .evaluation import Run
from .printing import shorten
from .tables import html_table, summary_of, table_of

# The model services scale pictures down to this many pixels on the longer side: more would be wasted.
LONGEST_SIDE = 1568
# One MB as base64, the limit of the parent.
LARGEST = 750_000
# Figures of one call: a model pays some 1,500 tokens for each.
MOST = 4
# A picture of too many bytes is retried with at most this part of its sides, so that few attempts suffice.
_SMALLER, _ATTEMPTS = 0.8, 6
# Figures that were shown and closed, and are shown again when a later call changes them.
_FOLLOWED = 16
PLOTS = "matplotlib.pyplot"
BLANK = "drawn empty: one that was shown is closed. Save it before, or keep fig = plt.gcf() and save that"
_PLAIN = ATOMS | kinds(list, tuple, dict, set, frozenset, bytearray, range)
_PICTURES = (("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_svg_", "image/svg+xml"))
_HTML = "_repr_html_"
# Modes of PIL that a PNG can hold.
_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "I;16"))
# Characters of what a picture is called, and of what is said about it.
_NAME, _NOTE = 100, 300
_modules = sys.modules
_loaded = sys.modules.get
Display = dict[str, object]


class Gallery:
    """The figures of this process, and the displays of the running evaluation."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._drawn: list[object] = []
        self._left_out = 0
        self._followed: list[weakref.ref[Any]] = []
        # Whether a call has closed figures, and the blank figure that was reported last.
        self._has_closed = False
        self._blank: weakref.ref[Any] | None = None

    def follow(self, work: Callable[[Run], None], run: Run) -> None:
        """Run the work, then show its value and its figures. For failed work, show its figures."""
        self._run = run
        try:
            work(run)
            if PLOTS in _modules or (run.last and id(type(run.last[0])) not in _PLAIN):
                self._value(run)
                self.figures()
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.figures()
            raise
        finally:
            self._leave()

    def _leave(self) -> None:
        """Stop collecting, and count the omitted ones."""
        run, count = self._run, self._left_out
        self._run = None
        if self._drawn:
            self._left_out, self._drawn = 0, []
        if run is not None and count:
            name = f"{count:,} more figure{'s' if count > 1 else ''}"
            _add(run, {"text": name, "note": f"not shown: at most {MOST} in one call"})

    def figures(self) -> bool:
        """Show the open figures and close them, and show changed ones. Return whether that worked."""
        run = self._run
        if run is None or (PLOTS not in _modules and not self._followed):
            return run is not None
        try:
            for figure in self._open_figures(run):
                self._figure(run, figure)
            self._show_changed(run)
        except Exception as error:  # noqa: BLE001 - a library that is broken, or not what it seems
            _add(run, {"text": "figures", "note": f"not shown: {_told(error)}"})
        return True

    def _open_figures(self, run: Run) -> list[Any]:
        """Return the figures with content, and close them. Figures with a window stay open."""
        helpers: Any = _loaded("matplotlib._pylab_helpers")
        if helpers is None:
            return []
        found, had_closed = [], self._has_closed
        for number, manager in sorted(helpers.Gcf.figs.items()):
            figure = manager.canvas.figure
            is_window = getattr(manager.canvas, "required_interactive_framework", None) is not None
            if not is_window and not _is_blank(figure):
                found.append((number, figure))
            elif not is_window and had_closed:
                self._tell_of_blank(run, figure)
        for number, _ in found:
            helpers.Gcf.destroy(number)
            self._has_closed = True
        return [figure for _, figure in found]

    def _tell_of_blank(self, run: Run, figure: Any) -> None:
        """Explain why a picture is empty that was drawn from a new figure, most often by plt.savefig."""
        # A new figure is stale until it is drawn. An older matplotlib marks it stale again after saving.
        is_drawn = not figure.stale or hasattr(figure.canvas, "renderer")
        if is_drawn and (self._blank is None or self._blank() is not figure):
            self._blank = weakref.ref(figure)
            _add(run, {"text": "figure", "note": BLANK})

    def _show_changed(self, run: Run) -> None:
        """Show the figures again that the user has kept and changed."""
        figures = [figure for reference in self._followed if (figure := reference()) is not None]
        self._followed = [weakref.ref(figure) for figure in figures[-_FOLLOWED:]]
        for figure in figures:
            if figure.stale:
                self._figure(run, figure)

    def _figure(self, run: Run, figure: Any) -> None:
        is_drawn = any(figure is drawn for drawn in self._drawn)
        if _is_blank(figure) or (is_drawn and not figure.stale):
            return
        run.pure = False
        if len(self._drawn) >= MOST:
            self._left_out += 1
            return
        self._drawn.append(figure)
        name = f"figure {figure.get_label() or len(self._drawn)}"
        try:
            _add(run, {"text": shorten(name, _NAME), **_figure_picture(figure)})
        except Exception as error:  # noqa: BLE001 - of the user's code, or of a library's
            _add(run, {"text": shorten(name, _NAME), "note": f"not drawn: {_told(error)}"})
        # Whatever is changed in a figure from now on marks it as stale.
        figure.stale = False
        if not any(reference() is figure for reference in self._followed):
            self._followed.append(weakref.ref(figure))

    def _value(self, run: Run) -> None:
        """Show the value of the last form."""
        if not run.last or id(type(run.last[0])) in _PLAIN:
            return
        value = run.last[0]
        try:
            shown = self._shown(run, value)
        except Exception as error:  # noqa: BLE001 - of the user's code, or of a library's
            shown = {"text": short_name(type(value)), "note": f"not shown: {_told(error)}"}
        if shown is not None:
            run.pure = False
            _add(run, shown)

    def _shown(self, run: Run, value: object) -> Display | None:
        """Return the display of the value, or None where it has none or is a figure."""
        if summary_of(value) is not None:
            return _own_rows(value)
        figures, images = _loaded("matplotlib.figure"), _loaded("PIL.Image")
        if _is_of(value, figures, "Figure"):
            self._figure(run, value)
            return None
        if _is_of(value, images, "Image"):
            return {"text": short_name(type(value)), **_pil_picture(value)}
        return _own_picture(run, value) or _own_table(run, value)


def _add(run: Run, display: Display) -> None:
    if run.displays is None:
        run.displays = []
    run.displays.append({"kind": "picture", **display})


def _told(error: BaseException) -> str:
    try:
        return shorten(f"{short_name(type(error))}: {error}", _NOTE)
    except Exception:  # noqa: BLE001 - its __str__ is the user's
        return short_name(type(error))


def _is_of(value: object, module: object, name: str) -> bool:
    """Return whether the value is of that class of a module, if that is loaded."""
    wanted = raw_space(module).get(name) if type(module) is ModuleType else None
    return wanted is not None and any(base is wanted for base in mro_of(type(value)))


def _picture(data: bytes, mime: str, note: str = "") -> Display:
    found: Display = {"mime": mime, "data": b2a_base64(data, newline=False).decode("ascii")}
    return {**found, "note": note} if note else found


def _is_blank(figure: Any) -> bool:
    """Return whether a figure is still empty. Every figure has its background."""
    return len(figure.get_children()) <= 1


def _figure_picture(figure: Any) -> Display:
    """Draw a figure; with fewer dots per inch where it would be too large, as JPEG where that is smaller."""
    usual = float(figure.get_dpi())
    sides = sorted(map(float, figure.get_size_inches()))
    dpi = min(usual, LONGEST_SIDE / sides[1])
    if sides[0] * dpi < 1:
        return {"note": f"not drawn: {sides[1]:,.0f} by {sides[0]:,.3g} inches are too long to be shown"}
    kinds_of = ("png", "jpeg") if "PIL.Image" in _modules else ("png", "png")
    for attempt in range(_ATTEMPTS):
        kind = kinds_of[attempt > 0]
        written = io.BytesIO()
        figure.savefig(written, format=kind, dpi=dpi)
        data = written.getvalue()
        if len(data) <= LARGEST:
            scaled = f"drawn with {dpi:.3g} dots per inch instead of {usual:.3g}, to be small enough to show"
            return _picture(data, f"image/{kind}", scaled if dpi < usual else "")
        dpi *= _smaller(len(data)) if kind == kinds_of[1] else 1.0
    return {"note": f"not shown: it has more than {LARGEST:,} bytes at any size; savefig writes it to a file"}


def _smaller(count: int) -> float:
    """Return the factor by which sides must shrink for a picture of this many bytes to fit, with a margin."""
    fitting: float = 0.9 * (LARGEST / count) ** 0.5
    return min(_SMALLER, fitting)


def _pil_picture(image: Any, note: str = "") -> Display:
    """Write an image of PIL as PNG; scaled down where it is too large, as JPEG where that is smaller."""
    width, height = image.size
    if not width or not height:
        return {"note": "not shown: it has no pixels"}
    scale = min(1.0, LONGEST_SIDE / max(width, height))
    for attempt in range(_ATTEMPTS):
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        part = image if size == (width, height) else image.resize(size, reducing_gap=2.0)
        if part.mode not in _MODES or attempt:
            part = part.convert("RGB")
        written = io.BytesIO()
        part.save(written, format="JPEG" if attempt else "PNG")
        if len(data := written.getvalue()) <= LARGEST:
            told = f"scaled down from {width}x{height} px" if size != (width, height) else note
            return _picture(data, "image/jpeg" if attempt else "image/png", told)
        scale *= _smaller(len(data)) if attempt else 1.0
    return {"note": f"not shown: it has more than {LARGEST:,} bytes at any size"}


def _own_rows(value: object) -> Display:
    try:
        return {"kind": "table", "text": table_of(value)}
    except Exception as error:  # noqa: BLE001 - of an element of the user's
        return {"kind": "table", "text": f"(it cannot be printed: {_told(error)})"}


def _method(value: object, name: str) -> Any:
    """Find a method by the classes alone: an object may answer to every name."""
    for base in mro_of(type(value)):
        found = class_space(base).get(name)
        if found is not None:
            return found
    return None


def _own_picture(run: Run, value: object) -> Display | None:
    """Ask the value for a picture of itself, as notebooks do."""
    for name, mime in _PICTURES:
        if not callable(_method(value, name)):
            continue
        run.pure = False
        given = getattr(value, name)()
        # Some return a pair: the picture, and metadata for a notebook.
        data = given[0] if type(given) is tuple and given else given
        if data is not None:
            return {"text": short_name(type(value)), **_given_picture(data, mime, name)}
    return None


def _given_picture(data: object, mime: str, name: str) -> Display:
    if type(data) is str:
        data = data.encode() if mime.endswith("xml") else a2b_base64(data)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        return {"note": f"not shown: {name} returned {class_name(type(data))}, not bytes"}
    data = bytes(data)
    if not data:
        return {"note": f"not shown: {name} returned nothing"}
    pil = _loaded("PIL.Image")
    is_wide = data[:4] == b"\x89PNG" and max(_sides(data)) > LONGEST_SIDE
    if type(pil) is ModuleType and mime != "image/svg+xml" and (is_wide or len(data) > LARGEST):
        opened: Any = raw_space(pil)["open"]
        with suppress(OSError, ValueError, SyntaxError):  # what PIL raises for what is no picture
            return _pil_picture(opened(io.BytesIO(data)))
    if len(data) > LARGEST:
        return {"note": f"not shown: {name} returned {len(data):,} bytes, and at most {LARGEST:,} are shown"}
    return _picture(data, mime)


def _sides(data: bytes) -> tuple[int, int]:
    """Return width and height of a PNG."""
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _own_table(run: Run, value: object) -> Display | None:
    """Ask a value with a meaningless printed text for its HTML, and extract the tables."""
    text = run.printed[0].text if run.printed else ""
    if not (text.startswith("<") and text.endswith(">")) or not callable(_method(value, _HTML)):
        return None
    run.pure = False
    html = getattr(value, _HTML)()
    if type(html) is not str:
        return None
    table = html_table(html)
    if table is not None:
        return {"kind": "table", "text": table}
    told = f"({len(html):,} characters of HTML are not shown; print(_.{_HTML}()) prints them)"
    return {"kind": "table", "text": told}


class Follower:
    """A finder that runs a hook on one module, right after its import."""

    def __init__(self, name: str, act: Callable[[ModuleType], object]) -> None:
        self._name = name
        self._act = act

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the module as the other finders do, and run the hook after it was loaded."""
        if name != self._name:
            return None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec: ModuleSpec | None = finder.find_spec(name, path, target)
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        def load(module: ModuleType) -> None:
            del loader.exec_module
            loader.exec_module(module)
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            self._act(module)

        if loader is not None and hasattr(loader, "exec_module"):
            loader.exec_module = load


def hook(pyplot: ModuleType, gallery: Gallery) -> None:
    """Replace `pyplot.show` by one that shows the figures here. With a window it is unchanged.

    Without a window `show` does nothing, and the next plot of a script would go into the same figure.
    """
    plain: Any = raw_space(pyplot).get("show")
    if plain is None:
        return

    @functools.wraps(plain)
    def show(*arguments: object, **options: object) -> object:
        switched: Any = raw_space(pyplot).get("_backend_mod")
        canvas = getattr(switched, "FigureCanvas", None)
        is_window = getattr(canvas, "required_interactive_framework", None) is not None
        return plain(*arguments, **options) if is_window or not gallery.figures() else None

    raw_space(pyplot)["show"] = show
