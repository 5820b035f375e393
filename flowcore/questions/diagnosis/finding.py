"""What a diagnosis works with, and what it finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowcore.cluster.arrays.node_matching import tolerates
from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.model.amount_text import counted
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.planning.problem.result import Unplaced
from flowcore.questions.diagnosis.answers import WhyKind
from flowcore.questions.diagnosis.lists import listed
from flowcore.questions.scenario import GovernedScenario, Scenario, ScenarioPlan
from flowcore.questions.scenario.context import AnswerContext
from flowcore.rules.filters import Verdicts, node_unschedulable, run_filters, taint_toleration

#: Nodes that are named one by one.
_FEW = 3
#: Most reasons of other nodes; the nodes of the rest are counted.
_MANY = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a pod waits: the fields of a WhyAnswer.

    Attributes:
        details: sentences with the numbers of the plan, for programs.
    """

    kind: WhyKind
    text: str
    evidence: tuple[str, ...] = ()
    next: str = ""
    details: tuple[str, ...] = ()


class Occupant(NamedTuple):
    """A pod that a node has after a plan.

    Attributes:
        key: ``namespace/name``.
    """

    key: str
    node: str
    pod_class: PodClass
    signature: PodSignature


class UnplacedCase:
    """A pod that a plan leaves, and what the plan was made from."""

    def __init__(
        self,
        scenario: Scenario,
        governed: GovernedScenario,
        plan: ScenarioPlan,
        unplaced: Unplaced,
        context: AnswerContext,
    ) -> None:
        self.scenario, self.governed, self.plan, self.unplaced = scenario, governed, plan, unplaced
        self.context = context

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.unplaced.pod.key

    @property
    def policy(self) -> Policy:
        """The policy that governs the pod, as it was planned with: with the network that its cost model draws."""
        return self.plan.policies[self.unplaced.pod.policy]

    def verdicts(self, snapshot: Snapshot) -> Verdicts:
        """Verdicts of all filters on the pod in a snapshot."""
        return run_filters(self.unplaced.pod.pod_class, snapshot, self.unplaced.pod.signature)

    @cached_property
    def before(self) -> Verdicts:
        """Before any waiting pod is placed."""
        return self.verdicts(self.plan.before)

    @cached_property
    def after(self) -> Verdicts:
        """Beside all that the plan places."""
        return self.verdicts(self.plan.result.after)

    @cached_property
    def occupants(self) -> tuple[Occupant, ...]:
        """The pods on nodes that are known, after the plan, and those for which room is kept there."""
        result = self.plan.result
        gone = {each.pod.key: each.to for each in result.evictions if not each.gain}
        cluster = self.scenario.cluster
        stay = [
            Occupant(pod.key, gone.get(pod.key, pod.node_name), pod.pod_class, cluster.counted_signature(pod))
            for pod in self.scenario.running()
        ]
        come = [Occupant(each.pod.key, each.node, each.pod.pod_class, each.pod.signature) for each in result.placements]
        kept = [
            Occupant(key, room.node, cluster.pods[key].pod_class, cluster.counted_signature(cluster.pods[key]))
            for key, room in self.plan.awaiting.items()
        ]
        return tuple(each for each in (*stay, *come, *kept) if each.node in result.after.table.index)

    def most_open_nodes(self, name: str) -> set[str]:
        """The nodes that a filter rejects and nothing else does; where there are none, all that it rejects."""
        verdicts = self.after
        own = verdicts.rejected_by((name,))
        alone = own & ~verdicts.rejected_by({each for each, _ in verdicts.by_filter} - {name})
        nodes = verdicts.table.nodes
        return {nodes[row].name for row in np.flatnonzero(alone if alone.any() else own).tolist()}

    def reasons_of(self, rows: Int64s, *without: str) -> str:
        """What keeps the pod from some nodes, by name where they are few: "n1 (Insufficient cpu)", "5 nodes (...)".

        Args:
            without: names of filters that do not count.
        """
        if not len(rows):
            return "no node"
        nodes = self.after.table.nodes
        why = {int(row): self._reason_of(int(row), without) for row in rows.tolist()}
        if len(why) <= _FEW:
            return listed([f"{nodes[row].name} ({text})" if text else nodes[row].name for row, text in why.items()])
        counts = Counter(text for text in why.values() if text)
        texts = [f"{counted(count, 'node')} ({text})" for text, count in counts.most_common(_MANY)]
        if more := counts.total() - sum(count for _, count in counts.most_common(_MANY)):
            texts.append(f"{counted(more, 'node')} for other reasons")
        return ", ".join(texts) or counted(len(why), "node")

    def untolerated_taint(self, row: int) -> str:
        """The first taint that keeps the pod off the node of a row, as ``key:effect``."""
        known, taints = self.unplaced.pod.pod_class.tolerations, self.after.table.nodes[row].taints
        untolerated = (each for each in taints if each.keeps_out and not tolerates(known, each))
        return next((f"{taint.key}:{taint.effect}" for taint in untolerated), "not tolerated")

    def _reason_of(self, row: int, without: tuple[str, ...]) -> str:
        for name, rejections in self.after.by_filter:
            reasons = [each.reason for each in rejections if each.nodes[row]] if name not in without else []
            if reasons and name == node_unschedulable.NAME:
                return "cordoned"
            if reasons and name == taint_toleration.NAME:
                return f"taint {self.untolerated_taint(row)}"
            if reasons:
                return (
                    ", ".join(each.removeprefix("node(s) ") for each in reasons) or self.after.table.nodes[row].problem
                )
        return ""
