"""Let the parent hear of every call that is about to change a file, before user code exists.

The filter comes from the parent, which alone knows what it stops. Its descriptor is sent to the parent and
not kept, so that evaluated code cannot answer in its place.
"""

import _socket
import ctypes
import os
import struct
import sys
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from .landlock import NO_NEW_PRIVILEGES, prctl
from .protocol import send_with

_T = TypeVar("_T")
_SET_FILTER = 1
# SECCOMP_FILTER_FLAG_NEW_LISTENER. With WAIT_KILLABLE_RECV, since Linux 5.19, a signal does not restart the
# call while it is examined.
_FLAGS = (1 << 3 | 1 << 5, 1 << 3)
# Seconds until there is room for the descriptor. The parent waits longer.
_PATIENCE = 20.0


def restarted(fork: Callable[[], _T]) -> Callable[[], _T]:
    """Return a fork that is retried after a signal handler interrupted it.

    A fork is counted before it happens, and until then a signal ends it with EINTR, which no program expects.
    """

    @wraps(fork)
    def forked() -> _T:
        while True:
            try:
                return fork()
            except InterruptedError:
                continue

    return forked


def install(call: int, instructions: list[int]) -> int:
    """Install the filter in this process and all its future children. Return the listener's descriptor."""
    code = ctypes.create_string_buffer(struct.pack(f"={len(instructions)}Q", *instructions))
    program = struct.pack("@HP", len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if prctl(NO_NEW_PRIVILEGES, ctypes.c_ulong(1), zero, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs is refused")
    for flags in _FLAGS:
        descriptor = libc.syscall(call, _SET_FILTER, ctypes.c_ulong(flags), ctypes.c_char_p(program))
        if descriptor >= 0:
            os.fork, os.forkpty = restarted(os.fork), restarted(os.forkpty)
            return int(descriptor)
    error = ctypes.get_errno()
    raise OSError(error, os.strerror(error))


def send(connection: int, frame: bytes, descriptor: int) -> None:
    """Send a frame together with a descriptor, and close that. End the process where it cannot be sent.

    Without its listener the filter makes every stopped call fail, so nothing works any more.
    """
    plug = _socket.socket(fileno=os.dup(connection))
    try:
        send_with(plug, frame, descriptor, seconds=_PATIENCE)
    except OSError as error:
        sys.stderr.write(f"the descriptor for changes of files cannot be sent: {error}\n")
        sys.stderr.flush()
        os._exit(1)
    finally:
        plug.close()
        os.close(descriptor)
