"""A preview is held by the kernel, not by the language: attacked with foreign calls, and looked at."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import socket
import time

import pytest

from gramercy.errors import ImageError
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement, why_not

LANGUAGES = [
    pytest.param("sbcl", marks=pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")),
    "python",
]
CONFINEMENTS = [
    pytest.param(kind, marks=pytest.mark.skipif(why_not(kind) is not None, reason=f"{why_not(kind)}"))
    for kind in (Confinement.BUBBLEWRAP, Confinement.LANDLOCK)
]
pytestmark = pytest.mark.skipif(
    why_not(Confinement.LANDLOCK) is not None, reason=f"{why_not(Confinement.LANDLOCK)}"
)
CONTENT = "0123456789" * 500


@pytest.fixture(scope="module", params=CONFINEMENTS)
def confinement(request):
    return request.param


@pytest.fixture(scope="module", params=LANGUAGES)
def language(request):
    return request.param


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("project").resolve()


@pytest.fixture(scope="module")
def shared_image(language, confinement, place):
    image = LiveImage("test", ImageSettings(language, place, confinement).program, timeout=30)
    yield image
    image.close()


@pytest.fixture
def image(shared_image):
    """Return an image in its first state."""
    shared_image.reset()
    return shared_image


@pytest.fixture
def file(place):
    """Return a file, the only one in its directory."""
    shutil.rmtree(place / "files", ignore_errors=True)
    (place / "files").mkdir()
    path = place / "files/file"
    path.write_text(CONTENT)
    path.chmod(0o640)
    return path


class Words:
    """Code of both languages that means the same."""

    def __init__(self, language):
        self.language = language

    def either(self, lisp, python):
        return lisp if self.language == "sbcl" else python

    def call(self, name, *arguments):
        """Call a function of the C library; the value is its result, an int."""
        if self.language == "python":
            words = ", ".join(f"{a.encode()!r}" if isinstance(a, str) else str(a) for a in arguments)
            return f"__import__('ctypes').CDLL(None).{name}({words})"
        types = " ".join("c-string" if isinstance(a, str) else "long" for a in arguments)
        words = " ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in arguments)
        types = re.sub(r"(c-string|long)", r"sb-alien:\1", types)
        function = f'(sb-alien:extern-alien "{name}" (function sb-alien:int {types}))'
        return f"(sb-alien:alien-funcall {function} {words})"


@pytest.fixture
def words(language):
    return Words(language)


def state(path):
    """Return all of a file that a preview must not change."""
    status = path.stat()
    extended = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return path.read_text(), status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, extended


def previewed(image, code):
    reply = image.preview(code)
    assert reply.ok, reply.error
    return reply.values[-1]


CALLS = {
    "chmod": ("chmod", "{path}", 0o777),
    "chown": ("chown", "{path}", 0, 0),
    "lchown": ("lchown", "{path}", 0, 0),
    "fchmodat": ("fchmodat", -100, "{path}", 0o777, 0),
    "utimes": ("utimes", "{path}", 0),
    "setxattr": ("setxattr", "{path}", "user.x", "1", 1, 0),
    "rename": ("rename", "{path}", "{path}.other"),
    "unlink": ("unlink", "{path}"),
    "truncate": ("truncate", "{path}", 0),
    "creat": ("creat", "{path}.new", 0o600),
    "fork": ("fork",),
    "vfork": ("syscall", 58) if os.uname().machine == "x86_64" else ("fork",),
    "socket of the kernel": ("socket", 16, 3, 0),
    "kill its parent": ("kill", "{parent}", 0),
    "kill its group": ("kill", 0, 0),
    "kill all": ("kill", -1, 0),
    "priority of the user": ("setpriority", 2, 0, 5),
    "limits of its parent": ("prlimit", "{parent}", 7, 0, 0),
    "shared memory": ("shmget", 4711, 4096, 0o1600),
    "namespace": ("unshare", 0x10000000),
    "lease": ("fcntl", 0, 1024, 0),
}


@pytest.mark.contract("trust.preview.foreign-calls")
@pytest.mark.parametrize("attack", CALLS)
def test_foreign_calls_cannot_change_anything(image, words, file, attack):
    """Holes found, 3: ctypes did chmod, chown, xattr, fork, a shell, a connection."""
    parent = image.evaluate(words.either("(sb-posix:getpid)", "__import__('os').getpid()")).values[0]
    name, *arguments = CALLS[attack]
    arguments = [a.format(path=file, parent=parent) if isinstance(a, str) else a for a in arguments]
    arguments = [int(a) if isinstance(a, str) and a.isdecimal() and a == parent else a for a in arguments]
    before = state(file)
    assert previewed(image, words.call(name, *arguments)) == "-1"
    assert state(file) == before
    assert [each.name for each in file.parent.iterdir()] == ["file"]
    assert image.evaluate(words.either("(+ 1 2)", "1 + 2")).values == ["3"]


@pytest.mark.contract("trust.preview.foreign-calls")
def test_a_shell_is_not_started_and_nothing_outlives_the_preview(image, words, file):
    """Holes found, 3: the child outlived the preview."""
    assert previewed(image, words.call("system", "exit 0")) != "0"
    late = file.parent / "late"
    started = words.either(
        f'(ignore-errors (sb-ext:run-program "/bin/sh" (list "-c" "sleep 0.2; echo x > {late}") :wait nil))',
        "import ctypes, time\nif ctypes.CDLL(None).fork() == 0:\n    time.sleep(0.2)\n"
        f"    open({str(late)!r}, 'w')",
    )
    image.preview(started)
    # Long enough for a shell that was started to write.
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline and not late.exists():
        select.select([], [], [], 0.05)
    assert not late.exists()


@pytest.mark.contract("trust.preview.foreign-calls")
def test_a_socket_of_the_project_is_not_connected_to(image, words, file):
    """Holes found, 3: Landlock does not cover unix sockets by path."""
    with contextlib.chdir(file.parents[1]), socket.socket(socket.AF_UNIX) as listening:
        listening.bind("files/door")
        listening.listen()
        octets = [1, 0, *b"files/door\0"]
        code = words.either(
            f"(let ((address (coerce '({' '.join(map(str, octets))}) '(vector (unsigned-byte 8))))"
            f"      (socket {words.call('socket', 1, 1, 0)}))"
            "  (sb-sys:with-pinned-objects (address) (sb-alien:alien-funcall (sb-alien:extern-alien "
            '"connect" (function sb-alien:int sb-alien:int sb-sys:system-area-pointer sb-alien:int)) socket'
            f" (sb-sys:vector-sap address) {len(octets)})))",
            "libc = __import__('ctypes').CDLL(None)\n"
            f"libc.connect(libc.socket(1, 1, 0), bytes({octets}), {len(octets)})",
        )
        assert previewed(image, code) == "-1"
        assert not select.select([listening], [], [], 0.05)[0]


# --- what a copy shares with the live process


@pytest.mark.contract("trust.preview.descriptors")
def test_a_preview_that_reads_an_open_file_leaves_its_place(image, words, file):
    """The wire, 2: a copy shares open file descriptions."""
    image.evaluate(
        words.either(
            f'(defvar *f* (sb-posix:open "{file}" sb-posix:o-rdonly))'
            "(sb-posix:lseek *f* 3 sb-posix:seek-set)",
            f"import os\nf = os.open({str(file)!r}, os.O_RDONLY); os.lseek(f, 3, 0)",
        )
    )
    seek = words.either("(sb-posix:lseek *f* {} sb-posix:seek-cur)", "os.lseek(f, {}, 1)")
    assert previewed(image, seek.format(4)) == "7"
    assert image.evaluate(seek.format(0)).values == ["3"]


@pytest.mark.contract("trust.preview.descriptors")
def test_a_preview_reads_on_where_the_live_process_stands(image, words, file):
    """The wire, 2: files are opened again at the same offset."""
    image.evaluate(
        words.either(
            f'(defvar *s* (open "{file}")) (read-char *s*)',
            f"s = open({str(file)!r}, buffering=1)\ns.read(1)",
        )
    )
    read = words.either("(let ((n 0)) (loop while (read-char *s* nil) do (incf n)) n)", "len(s.read())")
    assert previewed(image, read) == str(len(CONTENT) - 1)
    assert image.evaluate(read).values == [str(len(CONTENT) - 1)]


@pytest.mark.contract("trust.preview.descriptors")
def test_a_preview_does_not_drain_a_pipe(image, words):
    """The wire, 2: queues are shared too."""
    image.evaluate(
        words.either(
            "(multiple-value-bind (in out) (sb-posix:pipe) (defvar *in* in) (defvar *out* out))"
            '(sb-unix:unix-write *out* "kept" 0 4)',
            "import os\ni, o = os.pipe(); os.write(o, b'kept')",
        )
    )
    read = words.either(
        "(let ((b (make-array 9 :element-type (quote (unsigned-byte 8))))) (sb-sys:with-pinned-objects (b)"
        " (values (sb-unix:unix-read *in* (sb-sys:vector-sap b) 9))))",
        "len(os.read(i, 9))",
    )
    assert previewed(image, read) == "0"
    assert image.evaluate(read).values == ["4"]


MAP = {
    "sbcl": "(defun call (name &rest words) (sb-alien:alien-funcall (sb-alien:sap-alien (sb-sys:int-sap"
    " (sb-sys:find-foreign-symbol-address name)) (function sb-alien:unsigned-long sb-alien:unsigned-long"
    " sb-alien:unsigned-long sb-alien:unsigned-long sb-alien:unsigned-long sb-alien:unsigned-long"
    " sb-alien:unsigned-long)) (elt words 0) (elt words 1) (elt words 2) (if (cdddr words) (elt words 3) 0)"
    " (if (cdddr words) (elt words 4) 0) 0))"
    '(defvar *f* (sb-posix:open "{path}" sb-posix:o-rdwr))'
    '(defvar *m* (call "mmap" 0 4096 {rights} 1 *f*))'
    "(sb-posix:close *f*)",
    "python": "import ctypes, os\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\n"
    "f = os.open('{path}', os.O_RDWR)\n"
    "m = libc.mmap(None, 4096, {rights}, 1, f, ctypes.c_long(0))\nos.close(f)",
}
WRITE = {
    "sbcl": '(progn (call "mprotect" *m* 4096 3) (setf (sb-sys:sap-ref-8 (sb-sys:int-sap *m*) 0) 69)'
    " (sb-sys:sap-ref-8 (sb-sys:int-sap *m*) 1))",
    "python": "libc.mprotect(ctypes.c_void_p(m), ctypes.c_size_t(4096), 3)\n"
    "ctypes.memmove(m, b'E', 1)\nctypes.string_at(m + 1, 1)[0]",
}


@pytest.mark.contract("trust.preview.shared-memory")
@pytest.mark.parametrize("rights", [1, 3])
def test_mprotect_on_an_earlier_mapping_writes_no_file(image, words, file, rights):
    """Holes found, 3: mprotect on a shared mapping made earlier wrote a file."""
    reply = image.evaluate(MAP[words.language].format(path=file, rights=rights))
    assert reply.ok, reply.error
    # It reads what the file has, and what it writes stays its own.
    assert previewed(image, WRITE[words.language]) == str(ord("1"))
    assert file.read_text() == CONTENT
    assert image.evaluate(WRITE[words.language]).ok
    assert file.read_text() == f"E{CONTENT[1:]}"


@pytest.mark.contract("trust.preview.shared-memory")
def test_shared_memory_of_the_standard_library_works_in_a_preview(image, words, confinement):
    """The wire, 2: a preview works where it was refused (mmap, multiprocessing.Value)."""
    if words.language != "python":
        pytest.skip("of Python")
    code = "import mmap\nm = mmap.mmap(-1, 4096); v = memoryview(m)[8:12].cast('i'); v[0] = 5"
    if confinement is Confinement.BUBBLEWRAP:
        # Landlock grants no /dev/shm, where it lies.
        code += "\nfrom multiprocessing import Value\nw = Value('i', 5)"
    else:
        code += "\nfrom types import SimpleNamespace\nw = SimpleNamespace(value=5)"
    reply = image.evaluate(code)
    assert reply.ok, reply.error
    assert previewed(image, "m[:4] = b'EVIL'; v[0] += 1; w.value += 2\nv[0], w.value") == "(6, 7)"
    assert image.evaluate("m[:4], v[0], w.value").values == [r"(b'\x00\x00\x00\x00', 5, 5)"]


@pytest.mark.contract("trust.preview.shared-memory")
def test_too_much_shared_memory_is_refused_and_named(image, words, file):
    """The wire, 2: refuse only above 64 MB or unreadable."""
    os.truncate(file, 80 << 20)
    code = MAP[words.language].format(path=file, rights=3).replace(" 4096 ", f" {80 << 20} ")
    reply = image.evaluate(code.replace(" 4096,", f" {80 << 20},"))
    assert reply.ok, reply.error
    with pytest.raises(ImageError, match=r"shares 80 MB of memory \(.*file\), and at most 64 MB"):
        image.preview("1")


@pytest.mark.contract("trust.preview.shared-memory")
def test_shared_memory_that_cannot_be_read_is_refused_and_named(image, words, file):
    """The wire, 2: refuse only above 64 MB or unreadable."""
    assert image.evaluate(MAP[words.language].format(path=file, rights=0)).ok
    with pytest.raises(ImageError, match=r"the shared memory .*file cannot be read"):
        image.preview("1")


# --- a replaced confinement


# Up the stack to the program of the image: its modules are not in sys.modules.
SERVER = """import sys
frame = sys._getframe()
while not frame.f_globals['__name__'].endswith('.server'):
    frame = frame.f_back
server = frame.f_globals
"""
REPLACED = {
    "sbcl": "(sb-ext:unlock-package :gramercy.image)"
    '(defun gramercy.image::confine (&rest ignored) (declare (ignore ignored)) "landlock-6+seccomp")',
    "python": f"{SERVER}server['confine'] = lambda *ignored: 'landlock-6+seccomp'",
}


@pytest.mark.contract("trust.preview.looked-at")
def test_a_copy_that_has_not_confined_itself_evaluates_nothing(image, words, file):
    """Holes found, 3: one evaluation can replace `confine` for all later previews."""
    reply = image.evaluate(REPLACED[words.language])
    assert reply.ok, reply.error
    write = words.either(f'(delete-file "{file}")', f"__import__('os').remove({str(file)!r})")
    with pytest.raises(ImageError, match="has not given up its rights: no filter of system calls was added"):
        image.preview(write)
    assert file.exists()


KEPT = {
    "sbcl": "(sb-ext:unlock-package :gramercy.image) (defun gramercy.image::own-descriptors ())"
    "(defvar *ends* (multiple-value-list (sb-posix:pipe)))",
    "python": f"{SERVER}import os\nends = os.pipe()\n"
    "vars(server['Witness'])['take'].__globals__['_own_descriptors'] = lambda keep: None",
}


@pytest.mark.contract("trust.preview.looked-at")
def test_a_copy_that_keeps_its_descriptors_evaluates_nothing(image, words):
    """Ways that close them: look from outside before running the code."""
    reply = image.evaluate(KEPT[words.language])
    assert reply.ok, reply.error
    with pytest.raises(ImageError, match=r"has not given up its rights: descriptor \d+ is a pipe"):
        image.preview("1")


UNLOCKED = {
    "sbcl": "(sb-ext:unlock-package :gramercy.image) (defun gramercy.image::give-up-rights ()"
    " (gramercy.image::process-control gramercy.image::+no-new-privileges+ 1) 6)",
    "python": f"{SERVER}vars(server['Witness'])['take'].__globals__['restrict_writes'] = lambda: None",
}


@pytest.mark.contract("trust.preview.looked-at")
@pytest.mark.parametrize("attack", ["creat", "unlink", "rename", "truncate"])
def test_files_are_refused_from_outside_where_landlock_was_left_out(image, words, file, attack):
    """The kernel does not tell of Landlock: the listener refuses what a preview does to files."""
    reply = image.evaluate(UNLOCKED[words.language])
    assert reply.ok, reply.error
    name, *arguments = CALLS[attack]
    arguments = [a.format(path=file) if isinstance(a, str) else a for a in arguments]
    reply = image.preview(words.call(name, *arguments))
    assert reply.values == ["-1"]
    assert any(change.path.startswith("files/file") for change in reply.files)
    assert [each.name for each in file.parent.iterdir()] == ["file"]
    assert file.read_text() == CONTENT


# --- what goes on working


@pytest.mark.contract("trust.preview.goes-on")
def test_threads_collections_and_own_signals_work_in_a_preview(image, words):
    """The wire, 2: SBCL: full collections, threads, the finalizer thread go on."""
    code = words.either(
        "(progn (sb-ext:finalize (list 1) (lambda ())) (dotimes (i 50) (make-array 1000000))"
        " (sb-ext:gc :full t)"
        " (sb-posix:kill (sb-posix:getpid) 0)"
        " (reduce #'+ (mapcar #'sb-thread:join-thread (loop for n below 4 collect (let ((n n))"
        " (sb-thread:make-thread (lambda () (sb-ext:gc) n)))))))",
        "import asyncio, gc, signal\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "seen = []\nsignal.signal(signal.SIGUSR1, lambda *_: seen.append(1))\n"
        "signal.raise_signal(signal.SIGUSR1); gc.collect()\n"
        "async def work():\n"
        "    return sum(await asyncio.gather(asyncio.sleep(0.01, 2), asyncio.to_thread(int, 3)))\n"
        "with ThreadPoolExecutor(4) as pool: total = sum(pool.map(int, '0001'))\n"
        "asyncio.run(work()) + total + len(seen) - 1",
    )
    assert previewed(image, code) == "6"


@pytest.mark.contract("trust.preview.mirror")
def test_a_preview_does_not_write_what_shows_the_output_of_the_live_process(image, words):
    """The wire, 2: give a preview its own mirror."""
    say = words.either('(format t "~a~%" {})', "print({})")
    image.evaluate(say.format(4711))
    mirror = image._lifecycle.started().mirror.fd
    before = os.pread(mirror, 1 << 20, 0)
    assert b"4711" in before
    reply = image.preview(say.format(4712))
    assert reply.stdout == "4712\n"
    assert os.pread(mirror, 1 << 20, 0) == before


@pytest.mark.contract("trust.preview.mirror")
def test_what_a_preview_printed_before_it_died_is_told(image, words):
    """Live images: always return the partial output."""
    code = words.either(
        '(progn (format t "before~%") (sb-ext:exit :abort t))', "print('before')\n__import__('os')._exit(1)"
    )
    reply = image.preview(code)
    assert (reply.error.type, reply.stdout) == ("PREVIEW-DIED", "before\n")


@pytest.mark.contract("trust.preview.foreign-calls")
def test_a_preview_that_kills_itself_leaves_the_live_process(image, words):
    """The wire, 2: kill and tgkill only to oneself."""
    code = words.either(
        "(sb-posix:kill (sb-posix:getpid) 9)", "import ctypes, os\nctypes.CDLL(None).kill(os.getpid(), 9)"
    )
    assert image.preview(code).error.type == "PREVIEW-DIED"
    assert image.evaluate(words.either("(+ 1 2)", "1 + 2")).values == ["3"]
