"""An extender that names the first node of each question, and does nothing else: what one answer costs at least.

`python first_node.py HOST:PORT`
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            question = json.loads(await reader.readexactly(length))
            named = (question.get("NodeNames") or question.get("nodenames") or [])[:1]
            body = json.dumps({"NodeNames": named, "FailedNodes": {}, "Error": ""}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)
            await writer.drain()
    writer.close()


async def _serve(host: str, port: int) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with await asyncio.start_server(_answer, host, port, limit=2**24):
        await ended.wait()


def main() -> None:
    """Serves until told to end."""
    host, _, port = sys.argv[1].rpartition(":")
    asyncio.run(_serve(host, int(port)))


if __name__ == "__main__":
    main()
