"""A pod that is bound to its reserved node may not be what was reserved: the binding, or a webhook, has added labels.

Any history of such pods: cluster and ledger count as if they counted anew, and changes told one by one add up.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_cluster.driven_ledger import DrivenLedger
from support.profiles import examples
from support.recount import check_recount, recounted_pods
from thalweg_operator.reservations.ledger.reservation import Owner

from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints, WeightedTerm
from flowcore.model.node_usage import NodeUsage
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature, SpreadMatch
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.selectors import LabelSelector, Requirement

NAMESPACE, APPS, NODES = "ns", ("x", "y", "z"), ("n0", "n1", "n2")
SELECTORS = {app: LabelSelector((Requirement("app", "In", (app,)),)) for app in APPS}
TERMS = {app: AffinityTerm(HOSTNAME, selector, (NAMESPACE,)) for app, selector in SELECTORS.items()}
CONSTRAINTS = (
    None,
    InterPodConstraints(anti_affinity=(TERMS["x"],)),
    InterPodConstraints(anti_affinity=(TERMS["y"],), preferred=(WeightedTerm(5, TERMS["x"]),)),
)
CLASSES = (
    PodClass(requests=(("cpu", 100),)),
    PodClass(requests=(("cpu", 200),), host_ports=(HostPort("TCP", "0.0.0.0", 80),)),  # noqa: S104
)
#: What differs between a pod as it was reserved and as the watch shows it bound.
DIFFERENCES: tuple[dict[str, Any], ...] = (
    {},
    *({"labels": (("app", app), (HOSTNAME, "n0"))} for app in APPS),
    *({"labels": (("app", app),)} for app in APPS),
    *({"constraints": constraints} for constraints in CONSTRAINTS),
    {"usage": (("cpu", 500),)},
    {"pod_class": PodClass(requests=(("cpu", 333),))},
    {"deleting": True},
    {"terminal": True},
    {"uid": "of another pod"},
)


class Step(msgspec.Struct, frozen=True):
    """What happens to one pod. It ``goes on`` by coming, being reserved, and being bound, in this order.

    Attributes:
        node: where it is reserved, or bound without a reservation.
        elsewhere: it is bound to ``node``, wherever it is reserved.
        difference: what is different about it from then on.
    """

    what: str
    name: str
    node: str
    elsewhere: bool
    difference: dict[str, Any]
    owner: Owner
    pod: dict[str, Any]


steps = st.builds(
    Step,
    what=st.sampled_from(
        (*["goes on"] * 8, "is bound", "changes", "goes", "is replaced", "is released", "is released", "is told")
    ),
    name=st.sampled_from(("p", "q", "r", "s")),
    node=st.sampled_from(NODES),
    elsewhere=st.sampled_from((False, False, False, True)),
    difference=st.sampled_from(DIFFERENCES),
    owner=st.sampled_from((Owner.BINDER, Owner.STEERING)),
    pod=st.fixed_dictionaries(
        {
            "labels": st.sampled_from([(("app", app),) for app in APPS]),
            "constraints": st.sampled_from(CONSTRAINTS),
            "pod_class": st.sampled_from(CLASSES),
        }
    ),
)


@dataclass
class History:
    """A ledger, the pods as the API server has them, and what a receiver of changes was told.

    Attributes:
        told: pods by signature and node, summed from the changes.
        usage: of each node, as told last.
        planned: what was counted when the drift began, and what was reserved since: a plan knows both.
    """

    driven: DrivenLedger = field(default_factory=DrivenLedger)
    api: dict[str, Pod] = field(default_factory=dict)
    told: Counter[tuple[PodSignature, str]] = field(default_factory=Counter)
    usage: dict[str, NodeUsage] = field(default_factory=dict)
    planned: Counter[tuple[PodSignature, str]] = field(default_factory=Counter)
    uids: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        for name in NODES:
            self.driven.upsert_node(
                Node(name, labels=((HOSTNAME, name),), allocatable=(("cpu", 100_000), ("pods", 100)))
            )
        self.driven.sync()
        self.tell()

    def happens(self, step: Step) -> None:
        """One step; nothing, where the pod is not in the state for it."""
        driven, pod = self.driven, self.api.get(step.name)
        if step.what == "is told":
            self.tell()
        elif pod is None or step.what == "is replaced":
            self._show(Pod(name=step.name, namespace=NAMESPACE, uid=f"u{next(self.uids)}", **step.pod))
        elif step.what == "goes":
            del self.api[step.name]
            driven.delete_pod(pod.key)
        elif step.what == "is released":  # also after the watch has shown it bound
            driven.release(pod.key, pod.uid)
        elif step.what == "changes":
            self._show(msgspec.structs.replace(pod, **step.difference))
        elif pod.node_name or pod.terminal:
            self._show(pod)
        elif step.what == "goes on" and pod.key not in driven.reservations:
            if driven.reserve(pod, step.node, step.owner):
                self.planned[pod.signature, step.node] += 1
        else:
            reservation = driven.reservations.get(pod.key)
            node = step.node if reservation is None or step.elsewhere else reservation.node
            bound = {"node_name": node, "usage": pod.pod_class.requests}
            self._show(msgspec.structs.replace(pod, **bound | step.difference))

    def _show(self, pod: Pod) -> None:
        self.api[pod.name] = pod
        self.driven.upsert_pod(pod)

    def tell(self) -> None:
        """Changes are taken, as for a round, and the drift begins."""
        changes = self.driven.take_changes()
        for signature, on in changes.pod_deltas:
            for node, by in on.items():
                self.told[signature, node] += by
        self.usage.update({usage.node: usage for usage in changes.usage})
        self.planned = recounted_pods(self.driven.cluster, self.driven.ledger)

    def check_counts(self) -> None:
        """What cluster and ledger count is what is there, and the drift is what no plan knows of it."""
        cluster, ledger = self.driven.cluster, self.driven.ledger
        check_recount(cluster, ledger)
        drift = {(signature, node): count for signature, node, count in ledger.drift.pods.counts()}
        assert drift == changed_counts(recounted_pods(cluster, ledger), self.planned)
        kept = cluster.occupancy.pod_index
        assert answers(kept) == answers(
            PodIndex.of(
                (node, signature)
                for (signature, node), count in recounted_pods(cluster, ledger).items()
                for _ in range(count)
            )
        )

    def check_told(self) -> None:
        """Whoever adds up what was told has what is there."""
        self.tell()
        occupancy = self.driven.cluster.occupancy
        assert changed_counts(self.told, Counter()) == {
            (s, node): count for s, node, count in occupancy.pod_index.counts()
        }
        assert self.usage == {name: occupancy.usage_of(name).to_usage(name) for name in NODES}


def changed_counts(
    now: Counter[tuple[PodSignature, str]], before: Counter[tuple[PodSignature, str]]
) -> dict[tuple[PodSignature, str], int]:
    """How many more or fewer there are now, where the number is another one."""
    return {key: now[key] - before[key] for key in now.keys() | before.keys() if now[key] != before[key]}


def answers(pod_index: PodIndex) -> list[Any]:
    """What rules between pods ask an index: whom a spread counts, and which terms speak of a pod."""
    return [
        [dict(pod_index.matching_pods(SpreadMatch(NAMESPACE, selector)).by_node) for selector in SELECTORS.values()],
        [
            sorted(
                (repr(term), sorted(places.by_node.items())) for term, places in terms.find(NAMESPACE, (("app", app),))
            )
            for terms in (pod_index.anti_affinity, pod_index.preferred)
            for app in APPS
        ],
    ]


@given(st.lists(steps, min_size=20, max_size=60))
@settings(max_examples=examples(150))
def test_a_bound_pod_counts_as_it_is_bound(history: list[Step]) -> None:
    """Whatever differs from the reservation, and whenever this ends."""
    world = History()
    for step in history:
        world.happens(step)
        world.check_counts()
    world.check_told()
