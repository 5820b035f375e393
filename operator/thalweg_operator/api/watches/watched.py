"""The reflectors of all watched kinds (``flowcore.api.kinds``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from flowcore.api import Interner
from flowcore.api.kinds import (
    COMPOSITE_POD_GROUP,
    DISRUPTION_BUDGET,
    NAMESPACE,
    NODE,
    NODE_TOPOLOGY,
    POD,
    POD_GROUPS,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    ObjectKind,
)
from flowcore.cluster.kinds import STORES
from flowcore.model.gang_spec import GangSource
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.watches import sinks
from thalweg_operator.api.watches.reflector import Reflector, Sink
from thalweg_operator.metrics import Metrics
from thalweg_operator.shell import Shell

T = TypeVar("T")

#: Kinds that only gangs need, pods that need one NUMA zone, or pods that claim devices. While their API fails, others
#: are still planned.
OPTIONAL_KINDS: Final = frozenset(
    (
        NODE_TOPOLOGY.plural,
        COMPOSITE_POD_GROUP.plural,
        RESOURCE_SLICE.plural,
        RESOURCE_CLAIM.plural,
        *(f"{kind.plural}.{kind.group}" for kind in POD_GROUPS.values()),
    )
)

#: Kubernetes' own PodGroups.
NATIVE_POD_GROUPS: Final = f"{POD_GROUPS[GangSource.NATIVE].plural}.{GangSource.NATIVE.value}"
#: While these are not watched no pod is evicted for room, and all else goes on.
DISRUPTION_BUDGETS: Final = DISRUPTION_BUDGET.plural
#: Kinds whose rights are files of their own (rights/). A cluster may do without them.
REFUSABLE_KINDS: Final = frozenset((DISRUPTION_BUDGETS, RESOURCE_SLICE.plural, RESOURCE_CLAIM.plural))


def make_reflectors(
    shell: Shell, api_client: ApiClient, metrics: Metrics, bad_input: BadInput
) -> dict[str, Reflector[Any]]:
    """Reflectors by the name of their kind in metrics and log lines. Their sinks feed the shell."""
    intern = Interner()
    reflectors: dict[str, Reflector[Any]] = {}

    def add(kind: ObjectKind, name: str, decode: Callable[[bytes | msgspec.Raw], T | None], sink: Sink[T]) -> None:
        path, *older_paths = kind.paths
        reflectors[name] = Reflector(
            name,
            path,
            api_client,
            decode,
            sink,
            metrics,
            bad_input,
            api_client.outages,
            may_be_absent=not kind.is_core,
            older=older_paths,
        )

    add(NODE, NODE.plural, sinks.node_decoder(intern), sinks.NodeSink(shell))
    add(POD, POD.plural, sinks.pod_decoder(intern, bad_input), sinks.PodSink(shell, bad_input))
    add(NAMESPACE, NAMESPACE.plural, sinks.namespace_decoder(), sinks.NamespaceSink(shell))
    for store in STORES:
        for kind in store.kinds:
            name = f"{kind.plural}.{kind.group}" if kind in POD_GROUPS.values() else kind.plural
            add(kind, name, sinks.decoder(kind, intern, bad_input), sinks.ObjectSink(shell, kind, store))
    return reflectors
