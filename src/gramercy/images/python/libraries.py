"""The compiled libraries whose threads are known: what becomes of them in a copy of the process.

A table, found by trying (`docs/reference/libraries.md` is written by the trials). A library that stood a copy
in the versions below is taken to stand it in others. A library that is not here is never copied with its
threads.
"""

import re
from typing import NamedTuple


class Library(NamedTuple):
    """One library: how its file is recognised, whether a copy works with its threads, and what to know.

    `empties` names a function of it, with arguments, that ends its idle threads; they come back by themselves
    at the next use. `remedy` is what a person can do where a copy does not work.
    """

    name: str
    file: str
    stands: bool
    tried: tuple[str, ...]
    remark: str
    empties: tuple[str, tuple[int, ...]] | None = None
    remedy: str = ""


LIBRARIES = (
    Library(
        "OpenBLAS",
        r"/lib(?:scipy_)?openblas[^/]*\.so[^/]*$",
        stands=True,
        tried=("0.3.21", "0.3.23", "0.3.30", "0.3.31"),
        remark="in numpy and scipy; ends its threads at a fork by itself, and starts them again",
        empties=("blas_thread_shutdown_", ()),
    ),
    Library(
        "libgomp",
        r"/libgomp[^/]*\.so[^/]*$",
        stands=False,
        tried=("of GCC 12", "in scikit-learn 1.3 (cannot be paused)", "in scikit-learn 1.9"),
        remark="the OpenMP of scikit-learn, numba, lightgbm, xgboost and torch; a copy made with its "
        "threads hangs, so they are ended before (OpenMP 5, GCC 9 or newer)",
        empties=("omp_pause_resource_all", (2,)),
        remedy="its version cannot end them, so take a newer build of the package that brings it, or set "
        "OMP_NUM_THREADS=1 before it is imported",
    ),
    Library(
        "LLVM and Intel OpenMP",
        r"/libi?omp5?[-.][^/]*$",
        stands=True,
        tried=("LLVM 14", "Intel 2026.2"),
        remark="used by MKL; makes itself new in a copy. It must not be paused: a copy then hangs or aborts",
    ),
    Library(
        "MKL",
        r"/libmkl_[^/]*\.so[^/]*$",
        stands=True,
        tried=("2026.2",),
        remark="its threads are those of Intel OpenMP",
    ),
    Library(
        "Apache Arrow",
        r"/lib(?:arrow|parquet)[^/]*\.so[^/]*$",
        stands=True,
        tried=("16.1", "26.0"),
        remark="in pyarrow, and in pandas with it; starts new threads in a copy, as does its jemalloc",
    ),
    Library(
        "numexpr",
        r"/numexpr/interpreter[^/]*\.so$",
        stands=True,
        tried=("2.14",),
        remark="starts new threads in a copy",
    ),
    Library(
        "OpenCV",
        r"/cv2[^/]*\.so$|/libopencv_core[^/]*\.so[^/]*$",
        stands=True,
        tried=("5.0",),
        remark="of opencv-python-headless; computes in a copy",
    ),
    Library(
        "polars",
        r"/(?:_polars_runtime|polars)[^/]*\.so$",
        stands=False,
        tried=("2.1",),
        remark="its threads start with the import and never end; in a copy, filters and groups hang",
        remedy="go back to before its import, and use it in a process of its own (subprocess)",
    ),
    Library(
        "duckdb",
        r"/_?duckdb[^/]*\.so[^/]*$",
        stands=False,
        tried=("2.0",),
        remark="has threads while a connection is open; to close that connection in a copy crashes, and both "
        "processes would write the same file",
        remedy="close its connections (duckdb.default_connection().close() for the module's own)",
    ),
)

# What lies on the stack of every thread and tells nothing about who started it.
_NEUTRAL = re.compile(r"/(?:libc|libpthread|libm|ld|ld-linux|ld-musl|libstdc\+\+|libgcc_s|libffi)[-.][^/]*$")
_INTERPRETER = re.compile(r"/(?:libpython3[^/]*|python[\d.]*)$")
_PACKAGES = re.compile(r"/(?:site|dist)-packages/([^/]+?)(?:\.libs)?/")
_known = [(re.compile(each.file), each) for each in LIBRARIES]


def recognise(path: str) -> Library | None:
    """Return what is known about the library in a file."""
    for pattern, library in _known:
        if pattern.search(path):
            return library
    return None


def is_neutral(path: str) -> bool:
    """Tell whether a file is part of the system under every thread."""
    return _NEUTRAL.search(path) is not None


def is_interpreter(path: str) -> bool:
    """Tell whether a file is Python itself."""
    return _INTERPRETER.search(path) is not None


def owner_name(path: str) -> str:
    """Return the name by which people know a file of compiled code: its package, then the file."""
    file = path.rpartition("/")[2]
    package = _PACKAGES.search(path)
    if package is not None:
        return f"{package[1]} ({file})"
    return file
