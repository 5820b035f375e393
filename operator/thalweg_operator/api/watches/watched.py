"""The reflectors of all watched kinds (``flowcore.api.kinds``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from flowcore.api import Interner
from flowcore.api.kinds import (
    DEVICE_TAINT_RULE,
    DISRUPTION_BUDGET,
    HYPER_NODE,
    NAMESPACE,
    NODE,
    NODE_TOPOLOGY,
    POD,
    POD_GROUPS,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    SERVICE,
    ObjectKind,
)
from flowcore.cluster.kinds import FOLLOWED_STORES, STORES
from flowcore.model.gang_spec import GangSource
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.watches import sinks
from thalweg_operator.api.watches.reflector import Reflector, Sink
from thalweg_operator.metrics import Metrics
from thalweg_operator.shell import Shell

T = TypeVar("T")

#: What is read of devices and of those who have them; DeviceTaintRules are beside it, since few clusters have any.
CLAIMED_DEVICES: Final = (RESOURCE_SLICE, RESOURCE_CLAIM)
#: Kinds that only gangs need, pods that need one NUMA zone, pods that claim devices, or the default spread of pods
#: without a controller. While their API fails, others are still planned.
OPTIONAL_KINDS: Final = frozenset(
    (
        SERVICE.plural,
        NODE_TOPOLOGY.plural,
        HYPER_NODE.plural,
        *(kind.plural for kind in CLAIMED_DEVICES),
        DEVICE_TAINT_RULE.plural,
        *(f"{kind.plural}.{kind.group}" for kind in POD_GROUPS.values()),
    )
)

#: Kubernetes' own PodGroups.
NATIVE_POD_GROUPS: Final = f"{POD_GROUPS[GangSource.NATIVE].plural}.{GangSource.NATIVE.value}"
#: While these are not watched no pod is evicted for room, and all else goes on.
DISRUPTION_BUDGETS: Final = DISRUPTION_BUDGET.plural
#: Kinds that the account may have no right to: those of files of their own (rights/), and what was added to a file
#: later, since an upgrade of the operator alone leaves the roles as they were.
REFUSABLE_KINDS: Final = frozenset(
    (
        DISRUPTION_BUDGETS,
        *(kind.plural for kind in CLAIMED_DEVICES),
        DEVICE_TAINT_RULE.plural,
        HYPER_NODE.plural,
        SERVICE.plural,
    )
)


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
    for store in (store for store in STORES if store not in FOLLOWED_STORES):
        for kind in store.kinds:
            name = f"{kind.plural}.{kind.group}" if kind in POD_GROUPS.values() else kind.plural
            add(kind, name, sinks.decoder(kind, intern, bad_input), sinks.ObjectSink(shell, kind, store))
    return reflectors
