"""A server process with the smallest receiver there can be: it echoes, counts, prints and waits."""

# ruff: noqa: ARG002, T201 - every action takes the same, and printing is the subject

import asyncio
import ctypes
import json
import os
import subprocess
import sys
import threading

from gramercy.mcp.stdio import run_stdio


class Receiver:
    """Does what a frame says."""

    def handle(self, peer, frame, channel=None):
        try:
            message = json.loads(frame)
        except ValueError:
            return b'{"error":{"code":-32700}}'
        if isinstance(message, list):
            return json.dumps([self._echo(part) for part in message]).encode()
        action = getattr(self, f"do_{message.get('method')}", None)
        return json.dumps(self._echo(message)).encode() if action is None else action(message, channel)

    def close(self, peer):
        del peer
        print("closed", file=sys.stderr, flush=True)

    def _echo(self, message):
        return {"id": message.get("id"), "result": message.get("params")}

    def do_size(self, message, channel):
        return json.dumps({"id": message["id"], "result": len(json.dumps(message["params"]))}).encode()

    def do_large(self, message, channel):
        return json.dumps({"id": message["id"], "result": "x" * message["params"]}).encode()

    def do_tell(self, message, channel):
        channel.send(json.dumps({"told": message["params"]}).encode())

    def do_flood(self, message, channel):
        for _ in range(message["params"]):
            channel.send(b'"%s"' % (b"x" * 1_000_000))
        return json.dumps({"id": message["id"], "result": "flooded"}).encode()

    def do_thread(self, message, channel):
        def work():
            for number in range(message["params"]):
                channel.send(json.dumps({"told": number}).encode())

        threading.Thread(target=work).start()

    async def do_wait(self, message, channel):
        try:
            await asyncio.sleep(message["params"])
        except asyncio.CancelledError:
            print("cancelled", file=sys.stderr, flush=True)
            raise
        return json.dumps({"id": message["id"], "result": "waited"}).encode()

    async def do_resist(self, message, channel):
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    async def do_raise(self, message, channel):
        await asyncio.sleep(0)
        raise RuntimeError("nobody should do this")

    def do_print(self, message, channel):
        print("from print")
        print("from the first stdout", file=sys.__stdout__, flush=True)
        os.write(1, b"from a descriptor\n")
        ctypes.CDLL(None).puts(b"from C")
        ctypes.CDLL(None).fflush(None)
        subprocess.run(["echo", "from a child"], check=True, timeout=60)
        read = subprocess.run(["cat"], capture_output=True, check=True, timeout=60).stdout
        return json.dumps({"id": message["id"], "result": read.decode()}).encode()


if "plain" in sys.argv:
    # As if it were not installed.
    sys.modules["uvloop"] = None  # type: ignore[assignment]
run_stdio(Receiver())
