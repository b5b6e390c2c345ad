"""Evaluated code cannot get out of its image: attacked from inside, looked at from outside."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from gramercy.errors import SandboxError
from gramercy.images.census import census
from gramercy.images.confine.seccomp import MACHINES, NUMBERS, build_filter, build_preview_filter
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.project import check_project
from gramercy.images.sandbox import Confinement, find_confinement, weaknesses, why_not
from gramercy.images.walls import Placeholders
from gramercy.ui.doctor.attempts import Freely, attempts, groups
from gramercy.ui.doctor.escapes import Arena, Trial, attempts_from, run_escapes
from gramercy.ui.doctor.scenes import SCENES, run_bare, run_scenes

LANGUAGES = [
    pytest.param("sbcl", marks=pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")),
    "python",
]
needs_bubblewrap = pytest.mark.skipif(
    why_not(Confinement.BUBBLEWRAP) is not None, reason=f"{why_not(Confinement.BUBBLEWRAP)}"
)
needs_landlock = pytest.mark.skipif(
    why_not(Confinement.LANDLOCK) is not None, reason=f"{why_not(Confinement.LANDLOCK)}"
)
LEAST_ATTEMPTS = 100
CONFINEMENTS = [
    pytest.param(Confinement.BUBBLEWRAP, marks=needs_bubblewrap),
    pytest.param(Confinement.LANDLOCK, marks=needs_landlock),
]


@pytest.fixture
def images():
    """Make images and end them all."""
    made = []

    def make(language, project, confinement=Confinement.BUBBLEWRAP):
        made.append(LiveImage("test", ImageSettings(language, project, confinement).program, timeout=60))
        return made[-1]

    yield make
    for image in made:
        image.close()


@pytest.fixture
def project(tmp_path):
    """Return an empty project."""
    path = (tmp_path / "project").resolve()
    path.mkdir()
    return path


def value(image, code):
    """Evaluate Python code and return what it makes, read back."""
    reply = image.evaluate(code)
    assert reply.ok, reply.error
    return reply.values[0]


def attack(images, language, confinement, *, preview=False):
    """Make the attempts; return those that got out, with the evidence."""
    chosen = attempts_from(preview=preview)
    if confinement is Confinement.NONE:
        chosen = [attempt for attempt in chosen if attempt.freely is not Freely.NEVER]
    with Arena() as arena:
        image = images(language, arena.project, confinement)
        results = list(run_escapes(image, arena, confinement, preview=preview, chosen=chosen))
        image.close()
    if confinement is not Confinement.NONE:
        assert [result for result in results if not result.escaped and not result.tried] == []
    assert len(results) == len(chosen)
    return results


def got_out(results):
    return {result.attempt.id: result.detail for result in results if result.escaped}


def known(results):
    """Return what must get out, and what may."""
    sure = {result.attempt.id for result in results if result.reason is not None}
    return sure, sure | {result.attempt.id for result in results if result.attempt.awaits}


@pytest.mark.contract("trust.attack.battery")
@pytest.mark.parametrize("confinement", CONFINEMENTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_attempt_gets_out_but_those_that_are_known_to(images, language, confinement):
    """Trust: at least 100 attempts for each language and sandbox; what is listed as open is open."""
    results = attack(images, language, confinement)
    assert len(results) >= LEAST_ATTEMPTS
    sure, possible = known(results)
    escaped = got_out(results)
    assert {name: detail for name, detail in escaped.items() if name not in possible} == {}
    assert sure - set(escaped) == set()
    assert not sure or confinement is Confinement.BUBBLEWRAP or weaknesses(confinement)


@pytest.mark.slow
@pytest.mark.contract("trust.attack.previews")
@pytest.mark.parametrize("confinement", CONFINEMENTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_attempt_gets_out_of_a_preview_but_those_that_are_known_to(images, language, confinement):
    """Trust: the same attempts from inside a preview, which may not even write in the project."""
    results = attack(images, language, confinement, preview=True)
    assert len(results) >= LEAST_ATTEMPTS
    _, possible = known(results)
    assert {name: detail for name, detail in got_out(results).items() if name not in possible} == {}


def judged(results):
    """Return what got out that must be held, and what could not be tried."""
    holes = {each.attempt.id: each.detail for each in results if each.is_hole}
    return holes, {each.attempt.id: each.detail for each in results if not each.escaped and not each.tried}


@pytest.mark.parametrize("confinement", CONFINEMENTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_that_programs_run_can_be_left_in_a_bare_project(language, confinement):
    """Trust 1 and 2: git, editors, agents and shells; what is listed as open is open."""
    results = list(run_bare(language, confinement))
    assert judged(results) == ({}, {})
    known = {each.attempt.id for each in results if each.reason is not None}
    assert known - {each.attempt.id for each in results if each.escaped} == set()


@pytest.mark.slow
@pytest.mark.contract("trust.attack.scenes")
@pytest.mark.parametrize("confinement", CONFINEMENTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_scene_ends_with_an_escape(language, confinement):
    """Trust 4, 5, 6, 9 and 10: forged words, held calls, endings, bounds, and a sandbox that is told."""
    results = list(run_scenes(language, confinement))
    assert judged(results) == ({}, {})


def test_every_group_and_every_attempt_is_described():
    """Trust: the tables are read by people too."""
    assert {len(group.holds) > 20 and len(group.attacker) > 10 for group in groups().values()} == {True}
    ids = [attempt.id for attempt in attempts()]
    assert len(ids) == len(set(ids))
    assert {each.stage for each in attempts()} - {"", "git", "git after", "git below"} == set(SCENES)
    both = [each for each in attempts() if not (each.form("python") and each.form("sbcl"))]
    assert both == []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.slow
def test_the_same_attempts_succeed_without_confinement(images, language):
    """A suite that cannot fail proves nothing."""
    sure = {Freely.YES, Freely.AS_ROOT} if os.geteuid() == 0 else {Freely.YES}
    expected = {each.id for each in attempts_from(preview=False) if each.freely in sure}
    assert expected - set(got_out(attack(images, language, Confinement.NONE))) == set()


def test_the_arena_sees_what_happened_to_a_process_of_the_host():
    """An image may hold itself back from this one, so that the check is proven here."""
    attempt = next(each for each in attempts() if each.id == "processes.end")
    with Arena() as arena:
        trial = Trial(arena, attempt, "$victim")
        assert trial.evidence(preview=False) is None
        assert trial.victim is not None
        trial.victim.send_signal(signal.SIGTERM)
        trial.victim.wait(60)
        assert trial.evidence(preview=False) == "seen from outside: the process of the host"


@needs_bubblewrap
def test_the_sandbox_has_no_powers_no_network_and_no_secrets(images, project):
    """Images, Sandbox: the policy, line by line."""
    image = images("python", project)
    status = dict(
        line.split(":\t", 1) for line in eval(value(image, "open('/proc/self/status').read()")).splitlines()
    )
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status["Uid"].split()[0] != "0"
    assert (
        value(image, "sorted(l.split(':')[0].strip() for l in open('/proc/net/dev').readlines()[2:])")
        == "['lo']"
    )
    assert value(
        image, "import os; sorted(set(os.listdir('/')) & {'root', 'home', 'var', 'run', 'sys', 'srv'})"
    ) in (
        "[]",
        "['root']",
        "['home']",
    )
    assert (
        value(image, "[p for p in ('/etc/shadow', '/root/.ssh', '/root/.bashrc') if os.path.lexists(p)]")
        == "[]"
    )
    assert value(image, "sorted(os.environ)") == "['HOME', 'LANG', 'MPLBACKEND', 'PATH', 'PWD', 'TMPDIR']"


@needs_bubblewrap
def test_only_the_project_and_a_bounded_tmp_can_be_written(images, project):
    """Images, Sandbox: read-only system, private /tmp."""
    image = images("python", project)
    image.evaluate(
        "def writes(place):\n"
        f"    try:\n        open(f'{{place}}/{project.parent.name}', 'w').close()\n        return True\n"
        "    except OSError:\n        return False"
    )
    places = ["/", "/usr", "/etc", "/dev", "/proc", str(image._lifecycle.family.directory.path), "/root"]
    assert value(image, f"[p for p in {places} if writes(p)]") == "[]"
    assert (
        value(image, f"[writes(p) for p in ('/tmp', '/dev/shm', {str(project)!r})]") == "[True, True, True]"
    )
    assert value(image, "import os; s = os.statvfs('/tmp'); s.f_blocks * s.f_frsize <= 512 * 2**20") == "True"
    assert not Path("/tmp", project.parent.name).exists()
    assert (project / project.parent.name).exists()


@pytest.mark.parametrize("confinement", [*CONFINEMENTS, Confinement.NONE])
def test_memory_is_bounded_in_each_process(images, project, confinement):
    """Images, Sandbox: RLIMIT_DATA."""
    image = images("python", project, confinement)
    reply = image.evaluate(f"len(bytearray({image.program().memory_mb + 500} << 20))")
    assert reply.error.type == "MemoryError"


@pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
@pytest.mark.parametrize("confinement", [*CONFINEMENTS, Confinement.NONE])
def test_a_heap_that_overflows_leaves_the_image_usable(images, project, confinement):
    """Images, Timeouts and deaths: heap exhaustion inside the limit of memory."""
    image = images("sbcl", project, confinement)
    image.evaluate("(defvar *x* 42)")
    assert not image.evaluate("(let ((l nil)) (loop (push (make-array 100000) l)))").ok
    assert image.evaluate("*x*").values == ["42"]


@pytest.mark.parametrize("confinement", CONFINEMENTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_previews_and_undo_work_inside_each_confinement(images, project, language, confinement):
    """Images, Forking inside a sandbox."""
    image = images(language, project, confinement)
    define, change, read = {
        "python": ("x = 42", "x = 0", "x"),
        "sbcl": ("(defparameter *x* 42)", "(setf *x* 0)", "*x*"),
    }[language]
    assert image.evaluate(define).ok
    assert image.preview(change).ok
    assert image.evaluate(read).values == ["42"]
    assert image.evaluate(change).ok
    image.undo()
    assert image.evaluate(read).values == ["42"]


@needs_bubblewrap
def test_a_missing_git_directory_cannot_be_made_and_leaves_no_trace(images, project):
    """Images, Sandbox: a repository made inside would run programs at the user's next git command."""
    image = images("python", project)
    assert image.evaluate("import os; os.makedirs('.git/hooks')").error.type == "OSError"
    assert image.evaluate("os.rename('.git', 'other')").error.type == "OSError"
    image.close()
    assert list(project.iterdir()) == []


@needs_bubblewrap
def test_the_git_placeholder_stays_while_another_image_needs_it(images, project):
    """Removing the directory would lift the protection inside the other sandbox."""
    first, second = images("python", project), images("python", project)
    assert first.evaluate("1").ok
    assert second.evaluate("1").ok
    first.close()
    assert (project / ".git").is_dir()
    assert second.evaluate("open('.git/config', 'w')").error.type == "OSError"
    second.close()
    assert not (project / ".git").exists()


def test_a_placeholder_left_by_a_killed_process_is_taken_over(project):
    """An empty .git is nobody's repository."""
    (project / ".git").mkdir()
    Placeholders(project).close()
    assert not (project / ".git").exists()


def test_a_repository_made_while_an_image_runs_is_kept(project):
    """The user may run git init outside."""
    placeholder = Placeholders(project)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    placeholder.close()
    assert (project / ".git" / "HEAD").exists()


@needs_bubblewrap
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_git_file_of_a_worktree_is_read_only(images, project, language):
    """Images, Sandbox: .git may be a file."""
    (project / ".git").write_text("gitdir: /elsewhere\n")
    code = {
        "python": "open('.git', 'w')",
        "sbcl": '(open ".git" :direction :output :if-exists :append)',
    }[language]
    assert not images(language, project).evaluate(code).ok
    assert (project / ".git").read_text() == "gitdir: /elsewhere\n"


@needs_bubblewrap
def test_the_git_of_a_submodule_is_read_only(images, project):
    """Images, Sandbox: submodules that .gitmodules names."""
    (project / "lib").mkdir()
    (project / ".git").mkdir()
    (project / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = x\n')
    (project / "lib" / ".git").write_text("gitdir: ../.git/modules/lib\n")
    assert sorted(census(project).held) == [".git", "lib/.git"]
    assert images("python", project).evaluate("open('lib/.git', 'w')").error.type == "OSError"


@pytest.mark.parametrize("place", ["/", "/tmp", "/usr", "~", "~/.."])
def test_a_project_that_would_expose_too_much_is_refused(place):
    """Images, Sandbox: the project is writable, so it must not be everything."""
    with pytest.raises(SandboxError, match="cannot be the project of an image"):
        check_project(place)


def test_a_project_with_a_linked_git_or_that_is_no_directory_is_refused(project):
    """A link cannot be protected: it can be replaced."""
    (project / ".git").symlink_to(project / "elsewhere")
    with pytest.raises(SandboxError, match="symbolic link"):
        check_project(project)
    with pytest.raises(SandboxError, match="is not a directory"):
        check_project(project / "absent")


@needs_landlock
def test_without_a_working_bubblewrap_landlock_is_chosen_and_the_reason_told(tmp_path, monkeypatch):
    """User namespaces may be switched off although the program is there."""
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "No permissions to create new namespace" in (why_not(Confinement.BUBBLEWRAP) or "")
    assert find_confinement() is Confinement.LANDLOCK
    program.unlink()
    assert why_not(Confinement.BUBBLEWRAP) == "bubblewrap is not installed"


@needs_landlock
def test_a_command_is_never_run_when_it_cannot_be_confined(tmp_path):
    """The fallback program refuses rather than going on."""
    source = Path(__file__).parents[2] / "src"
    code = "from gramercy.images.confine.program import main; main()"
    command = ["--read", "/usr", "--nonsense", "x", "--", "touch", str(tmp_path / "x")]
    done = subprocess.run(
        [shutil.which("python3") or "python3", "-c", code, *command],
        env={"PYTHONPATH": str(source), "PATH": os.environ["PATH"]},
        check=False,
        timeout=60,
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (64, [])


# What a filter answers, found by running it as the kernel would.

ALLOWED, REFUSED, ABSENT = 0x7FFF0000, 0x00050001, 0x00050026


def answer(program, architecture, number, *arguments):
    data = struct.pack("=IIQ6Q", number, architecture, 0, *(list(arguments) + [0] * 6)[:6])
    place = accumulator = 0
    while True:
        code, yes, no, operand = struct.unpack_from("=HBBI", program, place * 8)
        place += 1
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, operand)[0]
        elif code == 0x06:
            return operand
        else:
            test = {0x15: accumulator == operand, 0x35: accumulator >= operand, 0x45: accumulator & operand}
            place += yes if test[code] else no


CASES = [
    ("mount", (), REFUSED, REFUSED),
    ("io_uring_setup", (), ABSENT, ABSENT),
    ("clone3", (), ABSENT, ABSENT),
    ("clone", (0x11,), ALLOWED, ALLOWED),
    ("clone", (0x10000011,), REFUSED, REFUSED),
    ("socket", (1,), ALLOWED, REFUSED),
    ("setsid", (), ALLOWED, 0x00050000),
    ("socket", (2,), ALLOWED, REFUSED),
    ("socket", (40,), REFUSED, REFUSED),
    ("fchmod", (3, 0o755), ALLOWED, REFUSED),
    ("fchmod", (3, 0o4755), REFUSED, REFUSED),
    ("openat", (0, 0, os.O_RDONLY, 0o4755), ALLOWED, ALLOWED),
    ("openat", (0, 0, os.O_CREAT | os.O_WRONLY, 0o644), ALLOWED, ALLOWED),
    ("openat", (0, 0, os.O_CREAT | os.O_WRONLY, 0o2755), REFUSED, REFUSED),
    ("ioctl", (0, 0x5401), ALLOWED, ALLOWED),
    ("ioctl", (0, 0x5412), REFUSED, REFUSED),
    ("prlimit64", (0,), ALLOWED, ALLOWED),
    ("prlimit64", (77,), ALLOWED, REFUSED),
    ("setpriority", (0, 77), ALLOWED, REFUSED),
    ("setpriority", (2, 0), ALLOWED, REFUSED),
    ("sched_setaffinity", (77,), ALLOWED, REFUSED),
    ("settimeofday", (), REFUSED, REFUSED),
    ("sethostname", (), REFUSED, REFUSED),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("call", "arguments", "with_namespaces", "without"), CASES)
def test_the_filter_answers_each_call_as_meant(machine, call, arguments, with_namespaces, without):
    """Images, Sandbox: seccomp, for machines that are not this one too."""
    architecture, column = MACHINES[machine]
    number = NUMBERS[call][column]
    for namespaces, expected in ((True, with_namespaces), (False, without)):
        program = build_filter(machine, namespaces=namespaces)
        assert answer(program, architecture, number, *arguments) == expected


ME = 7
PREVIEW_CASES = [
    ("fork", (), REFUSED),
    ("vfork", (), REFUSED),
    ("clone", (0x11,), REFUSED),
    ("clone", (0x4111,), REFUSED),
    ("clone", (0x3D0F00,), ALLOWED),
    ("clone", (0x3D0F00 | 0x10000000,), REFUSED),
    ("clone3", (), ABSENT),
    ("execve", (), REFUSED),
    ("kill", (ME,), ALLOWED),
    ("kill", (0,), REFUSED),
    ("kill", (0xFFFFFFFF,), REFUSED),
    ("tgkill", (ME, 9), ALLOWED),
    ("tgkill", (9, 9), REFUSED),
    ("chmod", (0, 0o600), REFUSED),
    ("fchmodat2", (), REFUSED),
    ("setxattrat", (), REFUSED),
    ("socket", (1,), ALLOWED),
    ("socket", (16,), REFUSED),
    ("connect", (), REFUSED),
    ("sendto", (3, 0, 1, 0, 0, 0), ALLOWED),
    ("sendto", (3, 0, 1, 0, 1 << 32, 16), REFUSED),
    ("setsockopt", (3, 1, 2), ALLOWED),
    ("setsockopt", (3, 0, 35), REFUSED),
    ("setsockopt", (3, 41, 20), REFUSED),
    ("ioctl", (0, 0x5401), ALLOWED),
    ("ioctl", (0, 0x40086602), REFUSED),
    ("fcntl", (0, 3), ALLOWED),
    ("fcntl", (0, 8), REFUSED),
    ("fcntl", (0, 15), REFUSED),
    ("fcntl", (0, 1024), REFUSED),
    ("prlimit64", (0,), ALLOWED),
    ("prlimit64", (ME,), ALLOWED),
    ("prlimit64", (77,), REFUSED),
    ("setpriority", (0, 0), ALLOWED),
    ("setpriority", (2, 0), REFUSED),
    ("ioprio_set", (1, ME), ALLOWED),
    ("ioprio_set", (3, 0), REFUSED),
    ("mq_timedreceive", (), REFUSED),
    ("openat", (0, 0, os.O_RDONLY), ALLOWED),
]


@pytest.mark.contract("trust.preview.foreign-calls")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("call", "arguments", "expected"), PREVIEW_CASES)
def test_the_filter_of_a_preview_answers_each_call_as_meant(machine, call, arguments, expected):
    """The wire, 2: the filter, for machines that are not this one too."""
    architecture, column = MACHINES[machine]
    number = NUMBERS[call][column]
    if number is not None:
        assert answer(build_preview_filter(machine, ME), architecture, number, *arguments) == expected


def test_where_landlock_cannot_forbid_to_cut_files_the_filter_of_a_preview_does():
    """Landlock has that right since its third version."""
    architecture, column = MACHINES["x86_64"]
    program = build_preview_filter("x86_64", ME, truncation=False)
    assert answer(program, architecture, NUMBERS["truncate"][column]) == REFUSED
    assert answer(program, architecture, NUMBERS["open"][column], 0, os.O_TRUNC) == REFUSED
    assert build_preview_filter("sparc", ME) is None


def test_the_numbers_of_the_clock_and_of_the_names_of_the_machine_are_those_of_the_kernel():
    """On x86-64 the filter once refused to name the machine where it meant the clock."""
    assert [NUMBERS[name] for name in ("settimeofday", "sethostname", "setdomainname")] == [
        (164, 170),
        (170, 161),
        (171, 162),
    ]


def test_a_filter_refuses_other_architectures_and_the_other_numbers_of_this_one():
    """The 32-bit calls have other numbers and would pass unseen."""
    program = build_filter("x86_64", namespaces=True)
    assert answer(program, 0x40000003, 21) == REFUSED
    assert answer(program, MACHINES["x86_64"][0], 0x40000000 + 165) == REFUSED
    assert build_filter("sparc", namespaces=True) is None


def test_where_landlock_cannot_forbid_to_cut_files_the_filter_does():
    """Landlock has that right since its third version."""
    architecture, column = MACHINES["x86_64"]
    program = build_filter("x86_64", namespaces=False, truncation=False)
    openat, truncate = NUMBERS["openat"][column], NUMBERS["truncate"][column]
    assert answer(program, architecture, truncate) == REFUSED
    assert answer(program, architecture, openat, 0, 0, os.O_RDONLY | os.O_TRUNC) == REFUSED
    assert answer(program, architecture, openat, 0, 0, os.O_WRONLY | os.O_TRUNC) == ALLOWED
    assert answer(program, architecture, openat, 0, 0, os.O_RDONLY) == ALLOWED
