"""Memory, space and descriptors that no single process shows as its own, and what bounds them."""

import subprocess
import sys
from time import monotonic, sleep

import pytest

from gramercy.images.bounds import watch
from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from gramercy.images.sandbox import Confinement, why_not

needs_bubblewrap = pytest.mark.skipif(
    why_not(Confinement.BUBBLEWRAP) is not None, reason="bubblewrap does not work here"
)
WAIT = 60.0
PRELUDE = """
import ctypes, errno, mmap, os, socket, time
libc = ctypes.CDLL(None, use_errno=True)

def failed(answer):
    return errno.errorcode.get(ctypes.get_errno(), "?") if answer < 0 else "made"

def fill(file, count=60):
    for _ in range(count):
        file.write(bytes(1 << 20))

def full_pair():
    pair = socket.socketpair()
    for one in pair:
        one.setblocking(False)
        try:
            while True:
                one.send(bytes(65536))
        except BlockingIOError:
            pass
    return pair
"""


@pytest.fixture
def small(tmp_path):
    """Give an image of 64 MB: its processes may use 128 MB together, and a call may write 20 MB."""
    image = open_image(
        "python", project=tmp_path, environment=Environment(memory_mb=64, disk_mb=20), timeout=WAIT
    )
    assert image.evaluate(PRELUDE).ok
    yield image
    image.close()


def value(image, code):
    reply = image.evaluate(code)
    assert reply.ok, reply
    return reply.values[-1]


def ended(reply):
    """Return why the watch has ended a call."""
    assert reply.error is not None, reply
    assert reply.error.type == "IMAGE-DIED", reply
    return reply.error.message


@pytest.mark.contract("trust.memory.system-v")
def test_segments_queues_and_semaphores_of_system_v_are_refused_but_for_small_segments(small):
    """They belong to no process: 2 GB of them were taken by an image of 256 MB."""
    assert value(small, "failed(libc.shmget(0, ctypes.c_size_t(64 << 20), 0o1600))") == "'EPERM'"
    assert value(small, "failed(libc.shmget(0, ctypes.c_size_t(1 << 32), 0o1600))") == "'EPERM'"
    assert value(small, "failed(libc.semget(0, 1, 0o1600)), failed(libc.msgget(0, 0o1600))") == (
        "('EPERM', 'EPERM')"
    )


@needs_bubblewrap
@pytest.mark.contract("trust.memory.system-v")
def test_a_small_segment_of_system_v_can_be_made(small):
    """Databases lock their directory with one."""
    assert value(small, "failed(libc.shmget(0, ctypes.c_size_t(56), 0o1600))") == "'made'"


@pytest.mark.contract("trust.memory.files")
def test_files_in_memory_without_a_name_are_absent_and_shared_memory_with_one_works(small):
    """One that is not mapped is in no process: 2 GB were taken so."""
    assert value(small, "failed(libc.memfd_create(b'x', 0))") == "'ENOSYS'"
    assert value(small, "failed(libc.syscall(447, 0))") == "'ENOSYS'"
    shared = """
import multiprocessing as mp
number, queue = mp.get_context("fork").Value("i", 1), mp.get_context("fork").SimpleQueue()
worker = mp.get_context("fork").Process(target=lambda: queue.put(number.value + 1))
worker.start()
got = queue.get()
worker.join()
got
"""
    if why_not(Confinement.BUBBLEWRAP) is None:
        assert value(small, shared) == "2"


@pytest.mark.contract("trust.memory.pipes")
def test_pages_cannot_be_put_into_a_pipe(small):
    """They would be in use without being in a process."""
    code = """
import platform
reader, writer = os.pipe()
part = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(4096)), 4096)
number = {"x86_64": 278, "aarch64": 75}[platform.machine()]
failed(libc.syscall(number, writer, ctypes.byref(part), 1, 0))
"""
    assert value(small, code) == "'EPERM'"


@pytest.mark.contract("trust.memory.sockets")
def test_the_memory_of_sockets_counts_for_the_processes_that_hold_them(small):
    """6,000 pairs took 2.7 GB, and no process showed them."""
    small.evaluate("before = 41")
    reply = small.evaluate("held = [full_pair() for _ in range(480)]\ntime.sleep(1000)")
    told = ended(reply)
    assert "MB of it in sockets and the like" in told
    assert "and 128 MB are allowed" in told
    assert value(small, "before") == "41"


@pytest.mark.contract("trust.memory.sockets")
def test_sockets_that_are_not_full_are_no_excess(small):
    assert value(small, "held = [socket.socketpair() for _ in range(400)]\ntime.sleep(1)\nlen(held)") == "400"


@pytest.mark.contract("trust.memory.sockets")
def test_kept_states_that_hold_the_memory_of_sockets_are_dropped_and_told(small):
    """A copy has the descriptors of its moment, also when the live process has closed them."""
    notes: list[str] = []
    deadline = monotonic() + WAIT
    while not any("Kept states hold sockets with" in note for note in notes):
        assert monotonic() < deadline, notes
        # Half of what all may use, and closed by the next call before it opens others.
        reply = small.evaluate("held = None\nheld = [full_pair() for _ in range(150)]")
        assert reply.ok, reply
        notes += reply.notes
        sleep(0.2)
    assert any("dropped for room" in note for note in notes)


@pytest.mark.contract("trust.memory.tables")
def test_tables_of_pages_count(small):
    """A page of zeros is in no process, however often it is seen; the tables that lead to it take memory."""
    code = """
libc.mmap.restype = ctypes.c_void_p
size = 200 << 30
place = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_size_t(0))
for offset in range(0, size, 2 << 20):
    ctypes.string_at(place + offset, 1)
time.sleep(1000)
"""
    assert "and 128 MB are allowed" in ended(small.evaluate(code))


@needs_bubblewrap
@pytest.mark.contract("trust.memory.temporary")
def test_temporary_files_take_no_more_memory_than_the_image_may(small):
    """They are memory that stays when the process that wrote them has ended."""
    code = """
try:
    with open("/tmp/much", "wb") as file:
        for _ in range(100):
            file.write(bytes(1 << 20))
except OSError as error:
    print(errno.errorcode[error.errno], os.stat("/tmp/much").st_size >> 20 <= 64)
"""
    assert small.evaluate(code).stdout == "ENOSPC True\n"


@pytest.mark.contract("trust.memory.descriptors")
@pytest.mark.parametrize("language", ["python", "sbcl"])
def test_a_process_may_have_as_many_descriptors_as_is_usual(language, tmp_path):
    image = open_image(language, project=tmp_path)
    code = {
        "python": "import resource; resource.getrlimit(resource.RLIMIT_NOFILE)",
        "sbcl": '(run-program "/bin/sh" (list "-c" "ulimit -Sn;ulimit -Hn") :output *standard-output*)',
    }
    try:
        reply = image.evaluate(code[language])
        assert reply.stdout == "1024\n4096\n" if language == "sbcl" else reply.values == ["(1024, 4096)"]
    finally:
        image.close()


@pytest.mark.contract("trust.memory.watchers")
@pytest.mark.parametrize("is_hidden", [False, True])
def test_an_image_may_have_few_inotify_instances_and_one_that_is_closed_makes_room(small, is_hidden):
    """An image took 126 of the 128 that its user has. What is on its way in a message counts too."""
    hide = """
plugs = socket.socketpair()
def hide(number):
    socket.send_fds(plugs[0], [b"x"], [number])
    os.close(number)
    return number
"""
    made = """
made = []
while (number := libc.inotify_init1(0)) >= 0 and len(made) < 100:
    made.append(hide(number))
len(made), failed(number)
"""
    small.evaluate(hide if is_hidden else "hide = int")
    small.evaluate(made)
    assert value(small, "len(made), failed(number)") == ("(1, 'EMFILE')" if is_hidden else "(16, 'EMFILE')")
    if not is_hidden:
        small.evaluate("for number in made: os.close(number)")
        small.reset()
        small.evaluate(PRELUDE)
        deadline = monotonic() + WAIT
        while value(small, "failed(libc.inotify_init1(0))") != "'made'":
            assert monotonic() < deadline
            sleep(0.1)


WRITES = {
    "at once": "fill(file)",
    "to a file that is renamed": "fill(file); file.flush(); os.rename('much', 'more')",
    "to a directory that is renamed": "fill(file); file.flush(); os.rename('one', 'other')",
    "to a file without a name": "os.unlink('much'); fill(file)",
    "ahead": "os.posix_fallocate(file.fileno(), 0, 60 << 20)",
    "to a cache": "fill(file)",
}


@pytest.mark.contract("trust.memory.disk")
@pytest.mark.parametrize("way", WRITES)
@pytest.mark.slow
def test_a_call_that_writes_too_much_to_the_project_is_ended_and_its_files_are_named(way, small):
    """3 GB were written without a note."""
    path = {"to a directory that is renamed": "one/much", "to a cache": "__pycache__/much"}.get(way, "much")
    small.evaluate("before = 41\nos.makedirs('one'); os.makedirs('__pycache__')")
    reply = small.evaluate(f"file = open({path!r}, 'wb', buffering=0)\n{WRITES[way]}\ntime.sleep(1000)")
    told = ended(reply)
    assert "MB to the project, and 20 MB are allowed for one call (--disk)" in told
    if way in ("at once", "ahead", "to a file that is renamed"):
        assert {change.path for change in reply.files} & {"much", "more"}, reply
    assert value(small, "before") == "41"


@pytest.mark.contract("trust.memory.disk")
def test_what_earlier_calls_have_written_does_not_count(small, tmp_path):
    """The bound is for one call; a file that was there, and one with holes, are not what it wrote."""
    (tmp_path / "there").write_bytes(bytes(30 << 20))
    for number in range(3):
        assert small.evaluate(f"file = open('part{number}', 'wb'); fill(file, 12); file.close()").ok
    assert small.evaluate("file = open('there', 'r+b'); file.write(b'x'); file.close(); time.sleep(0.5)").ok
    assert small.evaluate("file = open('holes', 'wb'); file.truncate(1 << 40); time.sleep(0.5)").ok
    assert small.evaluate("os.rename('there', 'moved'); time.sleep(0.5)").ok


MANY = """
import os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (192, hard))
from gramercy.errors import ImageError
from gramercy.images.opening import open_image
images, said = [], []
try:
    for number in range(6):
        images.append(open_image("python", project=sys.argv[1], name=f"i{number}"))
        for turn in range(20):
            reply = images[-1].evaluate(f"x{turn} = {turn}")
            said += reply.notes + ([reply.error.message] if reply.error else [])
    works = [image.evaluate("x19").values == ["19"] for image in images]
    try:
        images[-1].preview("1")
    except ImageError as error:
        said.append(str(error))
    print(works)
    print("dropped:", any("file descriptors left" in each and "dropped for room" in each for each in said))
    print("told:", any("too few file descriptors left (192 are allowed)" in each for each in said))
finally:
    for image in images:
        image.close()
"""


@pytest.mark.contract("trust.memory.scarcity")
def test_images_that_use_up_the_descriptors_drop_states_and_one_too_many_is_refused(tmp_path):
    """16 to 20 images reached 1,024; the next call of each raised OSError."""
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    works, *rest = done.stdout.splitlines()
    assert works.startswith("[True, True, True")
    assert works.endswith("False]")
    assert rest == ["dropped: True", "told: True"]


ROOM = """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
from gramercy.workbench.sources import live_image
with live_image("python"):
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(hard, 65536))
"""


@pytest.mark.contract("trust.memory.scarcity")
def test_a_program_of_ours_takes_as_many_descriptors_as_it_may(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ROOM], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.stdout == "True\n", done.stderr


@pytest.mark.contract("trust.memory.sockets")
def test_what_the_kernel_holds_is_enough_while_the_exact_look_rests(small):
    """On a slow machine that look took so long that the next one came after the call was over."""
    (look,) = watch._of(small._lifecycle.usage)
    look._rests_until = float("inf")
    reply = small.evaluate(f"held = [full_pair() for _ in range(480)]\ntime.sleep({WAIT})")
    assert "of it in sockets and the like" in ended(reply)
