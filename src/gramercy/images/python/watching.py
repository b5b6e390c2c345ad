"""Let the parent hear of every call that is about to change a file, before user code exists.

The filter comes from the parent, which alone knows what it stops; its descriptor goes to the parent and is
not kept, so that evaluated code cannot answer in its place.
"""

import _socket
import ctypes
import os
import struct

from .landlock import NO_NEW_PRIVILEGES, prctl

_SET_FILTER = 1
# SECCOMP_FILTER_FLAG_NEW_LISTENER; with WAIT_KILLABLE_RECV, since Linux 5.19, a signal does not begin the
# call anew while it is looked at.
_FLAGS = (1 << 3 | 1 << 5, 1 << 3)


def install(call: int, instructions: list[int]) -> int:
    """Install the filter in this process and all it will start; return the descriptor of its listener."""
    code = ctypes.create_string_buffer(struct.pack(f"={len(instructions)}Q", *instructions))
    program = struct.pack("@HP", len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if prctl(NO_NEW_PRIVILEGES, ctypes.c_ulong(1), zero, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs is refused")
    for flags in _FLAGS:
        descriptor = libc.syscall(call, _SET_FILTER, ctypes.c_ulong(flags), ctypes.c_char_p(program))
        if descriptor >= 0:
            return int(descriptor)
    error = ctypes.get_errno()
    raise OSError(error, os.strerror(error))


def send(connection: int, frame: bytes, descriptor: int) -> None:
    """Send a frame together with a descriptor, and close that."""
    plug = _socket.socket(fileno=os.dup(connection))
    try:
        rights = struct.pack("i", descriptor)
        plug.sendmsg([frame], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    finally:
        plug.close()
        os.close(descriptor)
