"""Watches the Lease while this process is a standby, so that a released lease is taken at once.

The watch decides nothing: each event makes the elector read the lease (``LeaderElector.trigger``). Without the watch
the elector reads it every two seconds.
"""

from __future__ import annotations

import asyncio
from typing import Final

from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.leadership.leader_election import LeaderElector
from thalweg_operator.api.rate_limiter import RateLimiter
from thalweg_operator.errors import ConnectionLost, Refused

_BACKOFF: Final = Backoff(first=0.5, longest=30.0)
#: Seconds that the server keeps a watch open, and seconds without an event after which its connection counts as lost.
_SERVED, _SILENCE = 300, 60.0
#: Attempts of the elector: per second in the long run, and at once, however often the lease is written.
_PER_SECOND, _AT_ONCE = 2.0, 3
_TOPIC: Final = "watch of the lease"


async def watch_lease(elector: LeaderElector) -> None:
    """Triggers the elector at each change of its lease, until it holds the lease."""
    api_client = elector.api_client
    namespace, name = elector.lease.namespace, elector.lease.name
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    # Without a resourceVersion the watch begins with the lease as it is.
    params = {"watch": "1", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": str(_SERVED)}
    failures, pace = 0, RateLimiter(_PER_SECOND, _AT_ONCE)
    while not elector.held.is_set():
        try:
            async with api_client.stream(path, params, _SILENCE) as content:
                async for _ in content:  # a line for each event
                    failures = 0
                    api_client.outages.recovered(_TOPIC)
                    elector.trigger()
                    if elector.held.is_set():
                        return
                    await pace.wait()
        except Refused as error:
            api_client.outages.failed(_TOPIC, str(error.status), error.reason)
        except ConnectionLost:
            pass  # the client logs it
        except ValueError as error:
            api_client.outages.failed(_TOPIC, "not understood", f"a line without an end: {error}")
        failures += 1
        await asyncio.sleep(_BACKOFF.pause(failures))
