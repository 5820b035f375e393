"""kopf serves FlowSchedulingPolicy: each event goes to the store, and kopf's startup starts everything else.

``on.event`` writes nothing to the objects: no finalizer that could hang an uninstall, no annotation.
After a watch expired kopf lists again but reports no deletions for what vanished meanwhile; ``resync`` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import kopf
import msgspec
import structlog

from thalweg_operator.connection import Connection
from thalweg_operator.errors import ConnectionLost, OperatorError, Refused
from thalweg_operator.names import GROUP, PLURAL, POLICIES_PATH, VERSION
from thalweg_operator.policies import PolicyStore

_log = structlog.get_logger()
#: Seconds between two lists of all policies.
_RESYNC = 10.0


class _Meta(msgspec.Struct):
    name: str
    uid: str = ""
    generation: int = 0


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class _List(msgspec.Struct):
    items: list[_Object]


class _Forever:
    """Back-offs of kopf's requests: it must outlive an API server that is away, however long."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.1, 0.3, 1.0, 2.0)
        while True:
            yield 5.0


async def resync(connection: Connection, store: PolicyStore) -> bool:
    """Makes the store equal to what the API server has; False where the CRD is not installed.

    Raises:
        OperatorError: the API server could not be asked.
    """
    before = store.standings  # what comes while the list is on its way is newer than the list
    try:
        raw = await connection.request("GET", POLICIES_PATH)
    except Refused as error:
        if error.status != 404:
            raise
        for standing in before:
            store.forget(standing.name, standing.uid)
        return False
    found = msgspec.json.decode(raw, type=_List).items
    for each in found:
        _offer(store, each.metadata.name, each.metadata.uid, each.metadata.generation, each.spec)
    uids = {each.metadata.uid for each in found}
    for standing in before:
        if standing.uid not in uids:
            store.forget(standing.name, standing.uid)
    return True


async def keep_resynced(connection: Connection, store: PolicyStore) -> None:
    """``resync`` now and then, until cancelled; says when the CRD comes or goes.

    kopf looks at the API server's discovery once when a CRD changes, and never again; where discovery was not updated
    yet at that moment, kopf does not serve the policies, and this is the only thing that sees them.
    """
    installed: bool | None = None
    while True:
        try:
            present = await resync(connection, store)
            if present != installed:
                if present:
                    _log.info("FlowSchedulingPolicy is served", policies=len(store.standings))
                else:
                    _log.warning(
                        "FlowSchedulingPolicy is not installed; the built-in default policy is in force until it is",
                        hint="kubectl apply -f crds/",
                    )
                installed = present
        except (Refused, ConnectionLost) as error:
            _log.warning("policies not listed", problem=str(error))
        await asyncio.sleep(_RESYNC)


def _offer(store: PolicyStore, name: str, uid: str, generation: int, spec: Mapping[str, Any]) -> None:
    standing = store.offer(name, uid, generation, spec)
    if standing.problem:
        _log.warning("policy not accepted", policy=name, generation=generation, problem=standing.problem)


async def serve(
    connection: Connection,
    store: PolicyStore,
    *,
    start: Callable[[], Awaitable[None]],
    finish: Callable[[], Awaitable[None]],
    stop: asyncio.Event,
) -> None:
    """Runs kopf until ``stop`` is set or a signal comes.

    Args:
        start: called once from kopf's startup; reflectors and the round loop begin there.
        finish: called from its cleanup.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        configuration = connection.configuration
        bearer = (await configuration.auth_settings()).get("BearerToken")
        scheme, _separator, token = bearer["value"].partition(" ") if bearer else ("", "", "")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert or None,
            insecure=not configuration.verify_ssl,
            scheme=scheme or None,
            token=token or None,
            certificate_path=configuration.cert_file or None,
            private_key_path=configuration.key_file or None,
        )

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.networking.error_backoffs = _Forever()
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 360
        await start()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await finish()
        stop.set()  # also after a signal: kopf's own task that waits for it would hold the end up for five seconds

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def policy(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's name
        metadata = body.metadata
        if type == "DELETED":
            store.forget(str(metadata["name"]), str(metadata["uid"]))
        else:
            generation = int(metadata.get("generation") or 0)
            _offer(store, str(metadata["name"]), str(metadata["uid"]), generation, dict(body.get("spec", {})))

    for noisy in ("kopf", "kopf.objects", "kopf.activities"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        await kopf.operator(registry=registry, clusterwide=True, standalone=True, stop_flag=stop)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        raise OperatorError(f"kopf stopped: {error}") from error
