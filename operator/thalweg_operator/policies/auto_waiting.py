"""What ``waiting: Auto`` decides: whether new pods of a policy get our gate; pure.

A held pod costs kube-scheduler an attempt every ten seconds while anything changes in the cluster. A few cost little,
and everybody sees them. Many are better behind our gate. See docs/decisions/0056.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from flowcore.cluster.cluster import Cluster
from flowcore.model.policies import Policy, WaitingMode
from thalweg_operator.reservations.ledger.ledger import Ledger

#: Numbers of waiting pods from which on new pods are gated, and below which they are not. So held pods cost
#: kube-scheduler nine attempts a second: 2 % of its time on 1,000 nodes, 7 % on 5,000 where rules make them dear.
GATE_FROM, HOLD_BELOW = 100, 50


def decides(policy: Policy) -> bool:
    """Whether there is anything to decide for a policy."""
    return policy.delivery.through_kube_scheduler and policy.waiting is WaitingMode.AUTO and not policy.selects.nothing


def gating(policies: Iterable[Policy], waiting: Counter[str], before: AbstractSet[str]) -> frozenset[str]:
    """Names of the policies whose new pods are gated.

    Args:
        waiting: by policy, how many pods wait for the plan in kube-scheduler's queue or behind our gate.
        before: what was decided before.
    """
    return frozenset(
        policy.name
        for policy in policies
        if decides(policy) and waiting[policy.name] >= (HOLD_BELOW if policy.name in before else GATE_FROM)
    )


def policies_of_waiting(cluster: Cluster, ledger: Ledger) -> Iterator[str]:
    """The policy of each pod without a gang's mark that kube-scheduler could place, and that is held or gated by us.

    "" for all other waiting pods, so that the caller may pause between any two.
    """
    for key, pod in list(cluster.waiting.items()):
        record = ledger.known_record(pod)
        is_kept = pod.gated or (record is not None and record.held_at is not None)
        policy = cluster.policies.of(pod, cluster.namespaces) if is_kept and key not in ledger.reservations else None
        yield policy.name if policy is not None and not pod.names_gang else ""


def describe(policy: Policy, gating_now: AbstractSet[str]) -> tuple[str, str, str]:
    """Status, reason and message of the condition Held."""
    if policy.name in gating_now:
        text = (
            f"New pods get Thalweg's gate: {GATE_FROM} pods waited for the plan, and kube-scheduler would try each of "
            f"them again every ten seconds. No more are gated once fewer than {HOLD_BELOW} wait. Gated pods that a new "
            "node may help are let out, so that cluster autoscalers see them."
        )
        return "False", "ManyWait", text
    text = f"New pods wait in kube-scheduler's queue, not behind a gate: fewer than {GATE_FROM} pods wait for the plan."
    return "True", "FewWait", text
