"""Asks the view of an operator that runs as a process of its own."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from support.operator import until


class Viewer:
    """Asks the view with one token."""

    def __init__(self, session: aiohttp.ClientSession, port: int, token: str) -> None:
        self._session, self._base, self._token = session, f"https://127.0.0.1:{port}/api/v1/", token

    async def ask(self, operation: str, body: Any = None, **parameters: str) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        headers = {"Authorization": f"Bearer {self._token}"}
        method = "GET" if body is None else "POST"
        async with self._session.request(
            method, self._base + operation, headers=headers, params=parameters, json=body
        ) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def view_session() -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nobody signed it
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
        yield session


async def answered(viewer: Viewer, operation: str, status: int, within: float = 60.0) -> Any:
    """Waits until an operation answers with a status; its JSON."""
    last: tuple[int, Any] = (0, None)

    async def has_answered() -> bool:
        nonlocal last
        last = await viewer.ask(operation)
        return last[0] == status

    await until(has_answered, within, lambda: f"{operation} to answer {status}; last {last}")
    return last[1]
