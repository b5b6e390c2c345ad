"""Decide whether this process can be forked with its threads, and which of them prevents it.

Only the forking thread is in the copy. Whether that is enough depends on the owner of each other thread:
Python code, or a compiled library, for which the table holds the results of trials. The owner is the library
whose function the thread was started with, or, where that is a function of the system, the first on its
stack.
"""

import _thread
import ctypes
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from .resting import Others, Rest, look, waits_for_its_turn

_listdir, _stat, _readlink = os.listdir, os.stat, os.readlink
_open, _read, _pread, _close = os.open, os.read, os.pread, os.close
_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_syscall = ctypes.CDLL(None).syscall
_ROBUST_LIST = {"x86_64": 274, "aarch64": 100}
_load, _NOLOAD = ctypes.CDLL, getattr(os, "RTLD_NOLOAD", 4) | os.RTLD_NOW
_python_count = _thread._count  # noqa: SLF001 - the interpreter's own figure; threading may be patched
_clock, _sleep = time.monotonic, time.sleep
_TASKS = "/proc/self/task"
_SIZE = re.compile(rb"^VmLib:\s*(\d+)", re.MULTILINE)
_NUMBERS = re.compile(rb"^NSpid:([\d\s]+)$", re.MULTILINE)
_CODE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ..x. \S+ \S+ \S+ +(/[^\n]+)$", re.MULTILINE)
# Bytes. An idle thread of a pool has less than this on its stack, including the interpreter's frames.
_DEPTH = 8192
# Bytes of glibc's struct pthread after the robust list, among them the function that the thread runs.
_RECORD = 1536
# Names of threads in a message.
_SHOWN = 10
# Seconds. A thread that ends, or spins before it sleeps (OpenBLAS, OpenMP), is done within this.
_PATIENCE, _PAUSE = 0.1, 0.001


class Library(NamedTuple):
    """One library: how its file is recognised, whether a copy works with its threads, and remarks.

    `empties` names a function of it, with arguments, that ends its idle threads. They come back by themselves
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
        remark="has threads while a connection is open; to close that connection in a copy crashes or hangs, "
        "and both processes would write the same file",
        remedy="close its connections (duckdb.default_connection().close() for the module's own)",
    ),
)

# Files that are on the stack of every thread and do not show its owner.
_NEUTRAL = re.compile(r"/(?:libc|libpthread|libm|ld|ld-linux|ld-musl|libstdc\+\+|libgcc_s|libffi)[-.][^/]*$")
_INTERPRETER = re.compile(r"/(?:libpython3[^/]*|python[\d.]*)$")
_PACKAGES = re.compile(r"/(?:site|dist)-packages/([^/]+?)(?:\.libs)?/")
_known = [(re.compile(each.file), each) for each in LIBRARIES]


def recognise(path: str) -> Library | None:
    """Return the known facts about the library in a file."""
    for pattern, library in _known:
        if pattern.search(path):
            return library
    return None


def is_neutral(path: str) -> bool:
    """Return whether a file is part of the system under every thread."""
    return _NEUTRAL.search(path) is not None


def is_interpreter(path: str) -> bool:
    """Tell whether a file is Python itself."""
    return _INTERPRETER.search(path) is not None


def owner_name(path: str) -> str:
    """Return the usual name of a file of compiled code: its package, then the file."""
    file = path.rpartition("/")[2]
    package = _PACKAGES.search(path)
    if package is not None:
        return f"{package[1]} ({file})"
    return file


class Code(NamedTuple):
    """The compiled code in this process: the range of each part, its file, and how to empty pools.

    `size` is that of all code together: while it is unchanged, nothing was loaded.
    """

    size: bytes
    starts: list[int]
    ends: list[int]
    files: list[str]
    empties: list[Callable[[], object]]

    def file_at(self, address: int) -> str | None:
        """Return the file whose code is at an address."""
        place = bisect_right(self.starts, address) - 1
        return self.files[place] if place >= 0 and address < self.ends[place] else None


class Thread(NamedTuple):
    """A thread beside the main one: its system name, and the file of its owner."""

    id: str
    name: str
    file: str | None

    @property
    def library(self) -> Library | None:
        """The known facts about the library that owns it."""
        return recognise(self.file) if self.file else None

    @property
    def may_end(self) -> bool:
        """Return whether it may just be ending or going to sleep."""
        library = self.library
        is_emptied = library is not None and library.empties is not None
        return is_emptied or self.file is None or is_interpreter(self.file)


class Threads:
    """The threads of this process, and those that outlasted the wait for them."""

    def __init__(self) -> None:
        self._lingering: set[str] = set()
        self._code = Code(b"", [], [], [], [])
        # Names of threads of Python code that did not become idle in time.
        self._stirring: list[str] = []
        # Idle threads: a copy is made without them.
        self.resting: list[Rest] = []
        # Their numbers in /proc.
        self._tasks: set[str] = set()
        # Threads that the interpreter of a copy counts, though it does not have them.
        self._missing = 0

    def begin_as_copy(self) -> list[Rest]:
        """Note, in a copy, that it has one thread. Return the idle threads that it lacks."""
        self._missing = _python_count()
        gone, self.resting = self.resting, []
        return gone

    def _running(self) -> int:
        return _python_count() - self._missing

    def obstacle(self) -> str | None:
        """Return why a copy of this process would not work, or None when it would."""
        self.resting = []
        if count() <= 1:
            return None
        try:
            return self._of_python() or self._of_libraries()
        except Exception:  # noqa: BLE001 - no /proc, or an audit hook of the user's
            return f"{_number(count() - 1, 'thread')} running, and it cannot be told whose"

    def is_still(self) -> bool:
        """Return whether no other thread of Python code has started or moved since. Lets none of them run."""
        if not self.resting:
            return True
        others = look()
        is_same = len(others.resting) == len(self.resting) == self._running()
        # New ones: the object that each thread waits for belongs to this one wait.
        self.resting = others.resting
        return is_same

    def _of_python(self) -> str | None:
        """Name the threads of Python code that a copy would lack, and how to end them."""
        deadline = _clock() + _PATIENCE
        while self._running():
            others = look()
            if len(others.resting) == self._running() and self._are_idle(others.resting):
                self.resting = others.resting
                return None
            is_hopeless = others.busy or not (others.stirring or others.resting)
            was_awaited = others.stirring and others.stirring == self._stirring
            if is_hopeless or was_awaited or _clock() > deadline:
                self._stirring = others.stirring
                return _told(others, self._running())
            _sleep(_PAUSE)
        return None

    def _are_idle(self, resting: list[Rest]) -> bool:
        """Ask the system whether apparently idle threads really have no work."""
        numbers = {_own_number(task): task for task in _listdir(_TASKS)}
        self._tasks = {numbers[rest.task] for rest in resting}
        return not any(waits_for_its_turn(_content(f"{_TASKS}/{task}/syscall")) for task in self._tasks)

    def _of_libraries(self) -> str | None:
        self._look_at_code()
        for empty in self._code.empties:
            empty()
        deadline = _clock() + _PATIENCE
        while count() > 1:
            known: set[str] = self._tasks if self.resting else set()
            blamed = [thread for thread in _others(self._code, known) if not _stands(thread)]
            if not blamed:
                return None
            hopeless = [thread for thread in blamed if not thread.may_end or thread.id in self._lingering]
            if hopeless or _clock() > deadline:
                self._lingering = {thread.id for thread in blamed}
                return _blame(min(hopeless or blamed, key=_obscurity))
            # A new thread counts as one of Python only once it has run.
            _sleep(_PAUSE)
            reason = self._of_python()
            if reason is not None:
                return reason
        return None

    def _look_at_code(self) -> None:
        """Read the ranges of the code, if they have changed: with much code it takes some milliseconds."""
        size = _size_of_code()
        if size is None or size != self._code.size:
            self._code = _code(size or b"")


def count() -> int:
    """Return the number of threads of this process."""
    try:
        # Linux counts a directory and its parent as links, and then one for each directory in it.
        known = _stat(_TASKS).st_nlink - 2
        return known if known >= 1 else max(len(_listdir(_TASKS)), 1)
    except Exception:  # noqa: BLE001 - no /proc, or an audit hook of the user's
        return 1 + _python_count()


def _told(others: Others, running: int) -> str:
    """Name the threads of Python code that prevent states from being kept."""
    names = [*others.busy, *others.stirring][:_SHOWN]
    running = max(running - len(others.resting), 1)
    listed = f": {', '.join(names)}" if names else " (started with _thread)"
    return f"{_number(running, 'user thread')} running{listed}{_remedy(names)}"


def _remedy(names: list[str]) -> str:
    if any(name.startswith("asyncio_") for name in names):
        return " (await what asyncio.to_thread or run_in_executor has begun)"
    if any(name.startswith("ThreadPoolExecutor-") for name in names):
        return " (states are kept again when its work is done)"
    return ""


def _number(number: int, noun: str) -> str:
    return f"{number} {noun} is" if number == 1 else f"{number} {noun}s are"


def _size_of_code() -> bytes | None:
    found = _SIZE.search(_content("/proc/self/status"))
    return None if found is None else found[1]


def _code(size: bytes) -> Code:
    """Read the ranges of compiled code in this process."""
    starts, ends, files = [], [], []
    for start, end, file in _CODE.findall(_content("/proc/self/maps")):
        starts.append(int(start, 16))
        ends.append(int(end, 16))
        files.append(file.decode("utf-8", "surrogateescape"))
    return Code(size, starts, ends, files, _empties(files))


def _empties(files: list[str]) -> list[Callable[[], object]]:
    """Return functions that end the idle threads of the libraries that support it."""
    found: list[Callable[[], object]] = []
    for file in dict.fromkeys(files):
        library = recognise(file)
        if library is not None and library.empties is not None:
            symbol, arguments = library.empties
            # Loaded by another name, or a version without the function: its threads are judged unchanged.
            with suppress(OSError, AttributeError):
                found.append(partial(getattr(_load(file, mode=_NOLOAD), symbol), *arguments))
    return found


def _content(path: str) -> bytes:
    file = _open(path, _FLAGS)
    try:
        parts = []
        while part := _read(file, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        _close(file)


def _others(code: Code, known: set[str]) -> list[Thread]:
    """Return every thread but the main one and the known ones, as far as they have not ended."""
    # The pid in the namespace of this /proc, which may be another one.
    main = _readlink("/proc/self")
    found = []
    for task in _listdir(_TASKS):
        if task != main and task not in known:
            with suppress(FileNotFoundError, ProcessLookupError):
                name = _content(f"{_TASKS}/{task}/comm").decode("utf-8", "replace").strip()
                found.append(Thread(task, name, _owner(task, code)))
    return found


def _own_number(task: str) -> int:
    """Return the number of a thread as this process knows it: /proc may belong to another namespace."""
    with suppress(FileNotFoundError, ProcessLookupError):
        found = _NUMBERS.search(_content(f"{_TASKS}/{task}/status"))
        if found is not None:
            return int(found[1].split()[-1])
    return int(task)


def _owner(task: str, code: Code) -> str | None:
    """Return the file of the library that a thread belongs to. None where it cannot be seen."""
    try:
        return _first_file(_addresses(task), code)
    except OSError:  # it has ended meanwhile, or the system does not allow reading this
        return None


def _addresses(task: str) -> list[int]:
    """Return possible places in the code of a thread's owner, the best first."""
    words = _content(f"{_TASKS}/{task}/syscall").split()
    if len(words) < 3:  # noqa: PLR2004 - "running": on a processor, so the end of its stack is not told
        return _record(int(task))
    stack, place = int(words[-2], 16), int(words[-1], 16)
    # The outermost first: further in there are stale words of earlier calls.
    return [*_record(int(task)), *reversed(_stack(stack)), place]


def _first_file(addresses: list[int], code: Code) -> str | None:
    for address in addresses:
        file = code.file_at(address)
        if file is not None and not is_neutral(file):
            return file
    return None


def _stack(address: int) -> list[int]:
    """Return the words on a stack, up to the record of the thread, which points to itself."""
    words = _words(address, _DEPTH)
    for place, word in enumerate(words[:-2]):
        if word == address + 8 * place == words[place + 2]:
            return words[:place]
    return words


def _record(task: int) -> list[int]:
    """Return the words of the system's record of a thread. One of them is its start function.

    The list of its locks is in the middle of the record, and the kernel tells where that is.
    """
    number = _ROBUST_LIST.get(os.uname().machine)
    head, size = ctypes.c_void_p(), ctypes.c_size_t()
    if number is None or _syscall(number, task, ctypes.byref(head), ctypes.byref(size)) or not head.value:
        return []
    return _words(head.value, _RECORD)


def _words(address: int, size: int) -> list[int]:
    # Not by a pointer: the thread may end meanwhile, and reading its unmapped stack would cause a SIGSEGV.
    memory = _open("/proc/self/mem", _FLAGS)
    try:
        data = _pread(memory, size, address)
    finally:
        _close(memory)
    return memoryview(data[: len(data) // 8 * 8]).cast("Q").tolist()


def _stands(thread: Thread) -> bool:
    library = thread.library
    return library is not None and library.stands


def _obscurity(thread: Thread) -> int:
    """Rank the threads that prevent a copy: a library with a name explains more than one without."""
    return 0 if thread.library is not None else 1 if thread.file is not None else 2


def _blame(thread: Thread) -> str:
    """Name the owner of a thread that prevents a copy, and give advice."""
    library, file = thread.library, thread.file
    if library is not None:
        return f"{library.name} is loaded, whose threads do not survive a copy: {library.remedy}"
    if file is None:
        owner = f"that compiled code started (the system calls it '{thread.name}')"
    elif is_interpreter(file):
        owner = f"that runs Python code for compiled code (the system calls it '{thread.name}')"
    else:
        owner = f"of {owner_name(file)}"
    then = "states are kept again when it has ended"
    return f"a thread {owner} is running, and it is not known whether a copy works without it; {then}"
