"""Connect to ports inside a sandbox for the keeper outside, which gets the sockets and copies the bytes.

`… DESCRIPTOR COMMAND…` leaves a dialing process behind, and becomes the command. That process is separate
from the image: a thread there would make copies of the image impossible. Runs standalone, with the standard
library alone.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import time

# A number that identifies the answer, and the port. The answer repeats the number and comes with a socket.
REQUEST, ANSWER = struct.Struct("=IH"), struct.Struct("=I")
LOOPBACK = "127.0.0.1"
LAST_DESCRIPTOR = 1 << 20
# All processes of a user share a limit of descriptors in transit. The keeper closes a connection after five
# seconds. An image that exhausts them for longer must not end this process.
PATIENCE, PAUSE = 4.0, 0.01


def main() -> None:
    """Leave the dialing process behind and run the command."""
    line, command = int(sys.argv[1]), sys.argv[2:]
    child = os.fork()
    if child == 0:
        # A grandchild, adopted by the sandbox's init: the image must not have a child that it never forked.
        if os.fork() == 0:
            _serve(line)
        os._exit(0)
    os.close(line)
    os.waitpid(child, 0)
    os.execvp(command[0], command)  # noqa: S606 - running a command is what this program is for


def _serve(number: int) -> None:
    """Answer requests until the keeper disconnects. Nothing else stays open: not the log, not the mirror."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        os.closerange(3, number)
        os.closerange(number + 1, LAST_DESCRIPTOR)
        with socket.socket(fileno=number) as line:
            while request := line.recv(REQUEST.size):
                _answer(line, request)
    finally:
        os._exit(0)


def _answer(line: socket.socket, request: bytes) -> None:
    number, port = REQUEST.unpack(request)
    with socket.socket() as dialed:
        # The keeper waits for the connection: one that hangs must not delay the others.
        dialed.settimeout(0)
        dialed.connect_ex((LOOPBACK, port))
        until = time.monotonic() + PATIENCE
        while not _sent(line, ANSWER.pack(number), dialed) and time.monotonic() < until:
            time.sleep(PAUSE)


def _sent(line: socket.socket, answer: bytes, dialed: socket.socket) -> bool:
    """Send an answer with its socket. Return whether there was room for one more in transit."""
    try:
        socket.send_fds(line, [answer], [dialed.fileno()])
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
        return False
    return True


if __name__ == "__main__":
    main()
