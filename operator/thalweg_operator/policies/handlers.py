"""Watches FlowSchedulingPolicy with kopf: each event goes to the store.

``kopf.on.event`` writes nothing to the objects: no finalizer that could block an uninstall, no annotation.

kopf runs in a thread with its own event loop. An answer that it does not understand ends it, and it then cancels every
task of its loop. So it is started again here, and nothing else ends. Meanwhile ``PolicyResync`` lists the policies.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import aiohttp
import kopf

from flowcore.api.policies import GROUP, PLURAL, VERSION
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.rate_limiter import RateLimiter
from thalweg_operator.policies.store import PolicyStore

#: Seconds after which kopf counts as healthy.
_WELL = 60.0
_BACKOFF = Backoff(first=2.0, longest=60.0)
#: Requests per path: sustained rate per second, and burst.
_PER_SECOND, _AT_ONCE = 1.5, 3
#: Seconds between two checks for new credentials.
_LOOK = 5.0

#: Called with name, uid, generation and spec of a policy; the spec is None where the policy is gone.
PolicyEventHandler = Callable[[str, str, int, Mapping[str, Any] | None], object]


async def watch_policies(api_client: ApiClient, store: PolicyStore) -> None:
    """Runs kopf until cancelled. kopf is restarted when it ends and when the credentials change."""
    for name, level in (("kopf", logging.CRITICAL), ("kopf.objects", logging.ERROR)):
        logging.getLogger(name).setLevel(level)  # it logs each failed request; we log each outage once
    loop = asyncio.get_running_loop()

    def seen(name: str, uid: str, generation: int, spec: Mapping[str, Any] | None) -> None:
        if spec is None:
            store.forget(name, uid)
        else:
            store.offer(name, uid, generation, spec)

    failures = 0
    paces: dict[str, RateLimiter] = {}
    while True:
        began, reloads = loop.time(), api_client.credentials.reloads
        kopf_thread = _KopfThread(api_client, paces, lambda *event: loop.call_soon_threadsafe(seen, *event))
        kopf_thread.start()
        try:
            while not kopf_thread.ended.is_set() and api_client.credentials.reloads == reloads:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await kopf_thread.ended.wait()
        finally:
            kopf_thread.stop()
        if kopf_thread.problem:
            failures = 1 if loop.time() - began > _WELL else failures + 1
            api_client.outages.failed("kopf", "ended", f"{kopf_thread.problem}; policies are listed every 10 s")
            await asyncio.sleep(_BACKOFF.pause(failures))


class _EndlessBackoff:
    """Back-offs of kopf's requests: kopf must survive an outage of the API server of any length."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.1, 0.3, 1.0, 2.0)
        while True:
            yield 5.0


class _KopfThread(threading.Thread):
    """One run of kopf.

    Attributes:
        ended: set in the event loop that created the thread.
        problem: why kopf ended by itself; "" where it did not.
    """

    def __init__(
        self, api_client: ApiClient, rate_limiters: dict[str, RateLimiter], on_event: PolicyEventHandler
    ) -> None:
        super().__init__(name="kopf", daemon=True)
        self._api_client, self._rate_limiters, self._on_event = api_client, rate_limiters, on_event
        self._owner, self._loop = asyncio.get_running_loop(), asyncio.new_event_loop()
        self._stop_flag = asyncio.Event()
        self.ended = asyncio.Event()
        self.problem = ""

    def run(self) -> None:
        """Runs kopf until ``stop``."""
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
            self.problem = "" if self._stop_flag.is_set() else "kopf ended by itself"
        except Exception as error:  # noqa: BLE001 - the operator goes on
            self.problem = f"kopf ended: {error!r}"
        with suppress(RuntimeError):  # the owner's loop may be closed
            self._owner.call_soon_threadsafe(self.ended.set)

    def stop(self) -> None:
        """Ends the thread soon. It holds no state and does not block the end of the process."""
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._stop_flag.set)

    async def _serve(self) -> None:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            session = await self._session()
            return kopf.AiohttpSession(server=self._api_client.server, aiohttp_session=session)

        @kopf.on.startup(registry=registry)
        async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
            settings.posting.enabled = False
            settings.process.ultimate_exiting_timeout = None  # it would kill the process
            settings.networking.error_backoffs = _EndlessBackoff()
            settings.watching.server_timeout = 300
            settings.watching.client_timeout = 360

        @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
        async def policy(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's name
            metadata = body.metadata
            spec = None if type == "DELETED" else dict(body.get("spec", {}))
            generation = int(metadata.get("generation") or 0)
            self._on_event(str(metadata["name"]), str(metadata["uid"]), generation, spec)

        await kopf.operator(registry=registry, clusterwide=True, standalone=True, stop_flag=self._stop_flag)

    async def _session(self) -> aiohttp.ClientSession:
        """A session for kopf. Its requests are rate-limited: kopf restarts a watch as soon as it ends."""

        async def turn(
            _session: aiohttp.ClientSession, _context: Any, request: aiohttp.TraceRequestStartParams
        ) -> None:
            await self._rate_limiters.setdefault(request.url.path, RateLimiter(_PER_SECOND, _AT_ONCE)).wait()

        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(turn)
        return await self._api_client.new_session([trace])
