"""CPU profiles of the API server, by the page that it serves for `go tool pprof`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from harness.pod_watch import login

#: Of a row's begin; a burst of a thousand pods takes about twice as long.
SECONDS = 4


async def profile_api_server(kubeconfig: Path, file: Path) -> None:
    """Writes the profile of the next seconds: `go tool pprof -top FILE`."""
    server, headers, tls = login(kubeconfig)
    async with (
        aiohttp.ClientSession(server, headers=headers) as http,
        http.get("/debug/pprof/profile", params={"seconds": str(SECONDS)}, ssl=tls) as answer,
    ):
        answer.raise_for_status()
        profile = await answer.read()
    await asyncio.to_thread(_write, profile, file)


def _write(profile: bytes, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(profile)
