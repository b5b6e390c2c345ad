"""Ways out of an image, written in both languages: what evaluated code could try against its confinement.

Each attempt is an expression that returns evidence of success, or nothing, or fails. Words with a $ are
filled in by the arena, which also looks for evidence from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PYTHON_PRELUDE = """
import ctypes, os, resource, socket
_libc = ctypes.CDLL(None, use_errno=True)

def _call(name, *words):
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    result = getattr(_libc, name)(*words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return f"{name} succeeded"

def _read(path):
    with open(path, errors="replace") as file:
        return $mark in file.read() and f"read {path}"

def _write(path):
    with open(path, "a") as file:
        file.write("escaped")
    return f"wrote {path}"

def _send(family, kind, address):
    with socket.socket(family, kind) as plug:
        plug.settimeout(2)
        plug.connect(address)
        plug.send(b"escaped")

def _open(path):
    os.close(os.open(path, os.O_WRONLY))
    return f"opened {path}"

def _make(path, mode):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, mode))

def _attempt(action):
    try:
        evidence = action()
    except BaseException as error:
        return f"refused: {error}"
    return f"ESCAPED: {evidence}" if evidence else "refused"
"""

LISP_PRELUDE = """
(defun native (path) (sb-ext:parse-native-namestring path))
(defun %read (path)
  (with-open-file (stream (native path) :external-format :latin-1)
    (let* ((text (make-string 65536)) (end (read-sequence text stream)))
      (and (search $mark text :end2 end) (format nil "read ~a" path)))))
(defun %write (path)
  (with-open-file (stream (native path) :direction :output :if-exists :append :if-does-not-exist :create)
    (write-string "escaped" stream))
  (format nil "wrote ~a" path))
(defun %open (path)
  (sb-posix:close (sb-posix:open path sb-posix:o-wronly))
  (format nil "opened ~a" path))
(defun entries (path)
  (let ((directory (sb-posix:opendir path)))
    (unwind-protect (loop for entry = (sb-posix:readdir directory)
                          until (sb-alien:null-alien entry) collect (sb-posix:dirent-name entry))
      (sb-posix:closedir directory))))
(defun %send (class type &rest address)
  (let ((plug (make-instance class :type type)))
    (unwind-protect (progn (apply #'sb-bsd-sockets:socket-connect plug address)
                           (sb-bsd-sockets:socket-send plug "escaped" nil) nil)
      (sb-bsd-sockets:socket-close plug))))
(defun done (what result)
  (when (minusp result) (error "~a: ~a" what (sb-int:strerror (sb-alien:get-errno))))
  (format nil "~a succeeded" what))
(defmacro libc (name types &rest words)
  `(done ,name (sb-alien:alien-funcall
                (sb-alien:extern-alien ,name (function sb-alien:int ,@types)) ,@words)))
(defun system-call (number &optional (a 0) (b 0) (c 0) (d 0) (e 0))
  (done number (sb-alien:alien-funcall
                (sb-alien:extern-alien "syscall" (function sb-alien:long sb-alien:long sb-alien:long
                                                           sb-alien:long sb-alien:long sb-alien:long
                                                           sb-alien:long))
                number a b c d e)))
(defun %trace (request process)
  (libc "ptrace" (sb-alien:long sb-alien:long sb-alien:long sb-alien:long) request process 0 0))
(defun words-at (function bits &rest values)
  (let ((words (make-array (length values) :element-type `(unsigned-byte ,bits) :initial-contents values)))
    (sb-sys:with-pinned-objects (words)
      (funcall function (sb-sys:sap-int (sb-sys:vector-sap words))))))
(defmacro attempt (form)
  `(handler-case (let ((evidence ,form)) (if evidence (format nil "ESCAPED: ~a" evidence) "refused"))
     (serious-condition (condition) (format nil "refused: ~a" condition))))
"""


class Freely(StrEnum):
    """Whether an attempt succeeds when nothing confines the image."""

    YES = "yes"
    AS_ROOT = "as root"
    DEPENDS = "depends on the kernel, or an image holds itself back"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way out."""

    name: str
    python: str
    lisp: str
    freely: Freely = Freely.YES


ATTEMPTS = (
    Attempt("read a file outside", "_read($secret)", "(%read $secret)"),
    Attempt("write a file outside", "_write($written)", "(%write $written)"),
    Attempt(
        "list the home directory",
        "$entry in os.listdir($home) and 'saw ' + $entry",
        "(find $entry (entries $home) :test #'string=)",
    ),
    Attempt(
        "change the mode of a file outside",
        "os.chmod($modes, 0o666)",
        "(progn (sb-posix:chmod $modes #o666) nil)",
    ),
    Attempt(
        "read through a symbolic link",
        "(os.symlink($secret, $link), _read($link))[1]",
        "(progn (sb-posix:symlink $secret $link) (%read $link))",
    ),
    Attempt(
        "write through a symbolic link",
        "(os.symlink($through, $link2), _write($link2))[1]",
        "(progn (sb-posix:symlink $through $link2) (%write $link2))",
    ),
    Attempt(
        "read through a hard link",
        "(os.link($secret, $hard), _read($hard))[1]",
        "(progn (sb-posix:link $secret $hard) (%read $hard))",
    ),
    Attempt("read through the root of another process", "_read($root)", "(%read $root)", Freely.DEPENDS),
    Attempt("read through /proc/1/root", "_read($root1)", "(%read $root1)", Freely.DEPENDS),
    Attempt(
        "read a secret of the environment",
        "$mark in str(os.environ) and 'saw it'",
        '(and (search $mark (format nil "~s" (sb-ext:posix-environ))) "saw it")',
        Freely.DEPENDS,
    ),
    Attempt("read the environment of another process", "_read($environ)", "(%read $environ)", Freely.DEPENDS),
    Attempt("see a process of the host", "_read($cmdline)", "(%read $cmdline)"),
    Attempt(
        "connect by TCP",
        "_send(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', $tcp))",
        "(%send 'sb-bsd-sockets:inet-socket :stream #(127 0 0 1) $tcp)",
    ),
    Attempt(
        "send by UDP",
        "_send(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', $udp))",
        "(%send 'sb-bsd-sockets:inet-socket :datagram #(127 0 0 1) $udp)",
    ),
    Attempt(
        "connect to a unix socket",
        "_send(socket.AF_UNIX, socket.SOCK_STREAM, $unix)",
        "(%send 'sb-bsd-sockets:local-socket :stream $unix)",
    ),
    Attempt(
        "connect to an abstract unix socket",
        "_send(socket.AF_UNIX, socket.SOCK_STREAM, '\\0' + $abstract)",
        "(%send 'sb-bsd-sockets:local-abstract-socket :stream $abstract)",
    ),
    Attempt("write .git/config", "_write($config)", "(%write $config)"),
    Attempt(
        "put another .git in its place",
        "(os.rename($git, $git + '-old'), os.mkdir($git), _write($config))[2]",
        '(progn (sb-posix:rename $git (concatenate \'string $git "-old")) '
        "(sb-posix:mkdir $git #o755) (%write $config))",
    ),
    Attempt(
        "make a setuid file by changing its mode",
        "(_make($suid, 0o755), os.chmod($suid, 0o4755))[1]",
        "(progn (%write $suid) (sb-posix:chmod $suid #o4755) nil)",
    ),
    Attempt(
        "make a setuid file by opening it",
        "_make($suid2, 0o4755)",
        "(let ((flags (logior sb-posix:o-creat sb-posix:o-wronly)))"
        " (sb-posix:close (sb-posix:open $suid2 flags #o4755)) nil)",
    ),
    Attempt(
        "mount",
        "(_call('mount', b'none', $point.encode(), b'tmpfs', 0, None),"
        " _call('umount2', $point.encode(), 2))[0]",
        '(prog1 (libc "mount" (sb-alien:c-string sb-alien:c-string sb-alien:c-string sb-alien:unsigned-long '
        'sb-alien:unsigned-long) "none" $point "tmpfs" 0 0) '
        '(libc "umount2" (sb-alien:c-string sb-alien:int) $point 2))',
        Freely.AS_ROOT,
    ),
    Attempt(
        "change a setting of the kernel",
        "[_open('/proc/sys/kernel/core_pattern'), _open('/proc/sys/vm/overcommit_memory')]",
        '(list (%open "/proc/sys/kernel/core_pattern") (%open "/proc/sys/vm/overcommit_memory"))',
        Freely.AS_ROOT,
    ),
    Attempt(
        "press a key of the kernel",
        "_open('/proc/sysrq-trigger')",
        '(%open "/proc/sysrq-trigger")',
        Freely.DEPENDS,
    ),
    Attempt("chroot", "_call('chroot', b'/')", '(libc "chroot" (sb-alien:c-string) "/")', Freely.AS_ROOT),
    Attempt(
        "trace a process of the host",
        "(_call('ptrace', 0x4206, $traced, 0, 0), _call('ptrace', 0x4207, $traced, 0, 0),"
        " os.waitpid($traced, 0x40000000), _call('ptrace', 17, $traced, 0, 0))[0]",
        "(prog1 (%trace #x4206 $traced) (%trace #x4207 $traced)"
        " (sb-posix:waitpid $traced #x40000000) (%trace 17 $traced))",
        Freely.DEPENDS,
    ),
    Attempt(
        "limit a process of the host",
        "resource.prlimit($traced, resource.RLIMIT_NOFILE, (64, 64)) and None",
        "(words-at (lambda (place) (system-call $prlimit64 $traced 7 place 0) nil) 64 64 64)",
    ),
    Attempt(
        "raise its own limits",
        "(resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)), 'unlimited')[1]",
        "(let ((none (1- (expt 2 64))))"
        " (words-at (lambda (place) (system-call $prlimit64 0 2 place 0)) 64 none none))",
        Freely.DEPENDS,
    ),
    Attempt(
        "reach the user's keys",
        "_call('syscall', $keyctl, 0, -4, 1)",
        "(system-call $keyctl 0 -4 1)",
        Freely.DEPENDS,
    ),
    Attempt(
        "load a program into the kernel",
        "_call('syscall', $bpf, 0, (ctypes.c_uint32 * 4)(2, 4, 4, 1), 16)",
        "(words-at (lambda (place) (system-call $bpf 0 place 16)) 32 2 4 4 1)",
        Freely.DEPENDS,
    ),
    Attempt(
        "handle page faults",
        "_call('syscall', $userfaultfd, 1)",
        "(system-call $userfaultfd 1)",
        Freely.DEPENDS,
    ),
    # Last, since these end what others look at, and give up what others need.
    Attempt(
        "end a process of the host",
        "os.kill($victim, 15)",
        "(progn (sb-posix:kill $victim 15) nil)",
        Freely.DEPENDS,
    ),
    Attempt(
        "make a user namespace",
        "_call('unshare', 0x10000000)",
        '(libc "unshare" (sb-alien:int) #x10000000)',
        Freely.DEPENDS,
    ),
)
