"""Gauges that are read when they are asked for: the size of the snapshot, its age, and who leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thalweg_operator.api.leadership.leader_election import LeaderElector
from thalweg_operator.api.watches.reflector import Reflector
from thalweg_operator.metrics import Metrics
from thalweg_operator.shell import Shell


def set_gauges(
    metrics: Metrics, shell: Shell, reflectors: Mapping[str, Reflector[Any]], elector: LeaderElector
) -> None:
    """Ties the gauges to what they show."""
    cluster, ledger = shell.cluster, shell.ledger
    for kind, reflector in reflectors.items():
        metrics.watch_age.labels(kind).set_function(reflector.age)
    metrics.nodes.set_function(lambda: len(cluster.nodes))
    metrics.pods.set_function(lambda: len(cluster.pods))
    metrics.gated_pods.set_function(lambda: sum(pod.gated for pod in cluster.waiting.values()))
    metrics.reservations.set_function(lambda: len(ledger.reservations))
    metrics.leader.set_function(lambda: float(elector.may_write))
