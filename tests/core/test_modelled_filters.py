"""A filter that reads running pods: the engine knows what the pods of the same round change of its verdicts."""

import pytest
from support.named_objects import resolved

from flowcore.rules.filters import (
    dynamic_resources,
    inter_pod_affinity,
    node_ports,
    node_resource_topology,
    node_resources_fit,
    pod_topology_spread,
    policy_constraints,
    volume_filters,
    volume_zone,
)
from flowcore.rules.filters.registry import IN_ORDER, ROUND_INVARIANT

_PLACEMENTS = "flowcore.planning.problem.placements"
_COUNTED = "flowcore.rules.topology.round_constraints.domain_counts.DomainCounts"
#: Filter and its part -> what counts the placements of a round for it, and what it allows then.
MODELLED_BY: dict[tuple[str, str], tuple[str, str]] = {
    (node_ports.NAME, ""): (
        f"{_PLACEMENTS}.plans.Plan.place",
        f"{_PLACEMENTS}.plans.Plan.fit_counts_at",
    ),
    (node_resources_fit.NAME, ""): (
        f"{_PLACEMENTS}.plans.Plan.place",
        f"{_PLACEMENTS}.plans.Plan.fit_counts_at",
    ),
    (node_resource_topology.NAME, ""): (
        f"{_PLACEMENTS}.zone_room.ZoneRoom.take",
        f"{_PLACEMENTS}.zone_room.ZoneRoom.limit",
    ),
    (dynamic_resources.NAME, ""): (
        f"{_PLACEMENTS}.device_room.DeviceRoom.take",
        f"{_PLACEMENTS}.device_room.DeviceRoom.limit",
    ),
    (dynamic_resources.NAME, "errors"): (
        f"{_PLACEMENTS}.device_room.DeviceRoom.take",
        f"{_PLACEMENTS}.device_room.DeviceRoom.limit",
    ),
    (dynamic_resources.NAME, "numbers"): (
        f"{_PLACEMENTS}.plans.Plan.place",
        f"{_PLACEMENTS}.plans.Plan.fit_counts_at",
    ),
    (pod_topology_spread.NAME, ""): (f"{_COUNTED}.increment", f"{_COUNTED}.max_pods"),
    (inter_pod_affinity.NAME, "own terms"): (f"{_COUNTED}.increment", f"{_COUNTED}.max_pods"),
    (inter_pod_affinity.NAME, "running pods' terms"): (f"{_COUNTED}.increment", f"{_COUNTED}.max_pods"),
    (policy_constraints.NAME, "limits"): (f"{_COUNTED}.increment", f"{_COUNTED}.max_pods"),
}
_OF_ROOM = (f"{_PLACEMENTS}.volume_room.VolumeRoom.take", f"{_PLACEMENTS}.volume_room.VolumeRoom.limit")
MODELLED_BY |= {(name, ""): _OF_ROOM for name in volume_filters.NAMES if name != volume_zone.NAME}
#: Filters that read what no placement changes: the zones of volumes that are bound.
NOT_MODELLED = {(volume_zone.NAME, "")}


def test_every_filter_that_reads_pods_is_modelled() -> None:
    """A filter whose verdicts a placement may change has a line above."""
    reads_pods = {(each.name, each.part) for each in IN_ORDER if each.state is not None}
    assert set(MODELLED_BY) | NOT_MODELLED == reads_pods
    assert not set(MODELLED_BY) & NOT_MODELLED


def test_every_filter_is_invariant_or_modelled() -> None:
    """Nothing but these two keeps a filter while a round places pods."""
    invariant = {(each.name, each.part) for each in ROUND_INVARIANT}
    assert {(each.name, each.part) for each in IN_ORDER} - invariant <= set(MODELLED_BY)


@pytest.mark.parametrize("name", sorted({name for names in MODELLED_BY.values() for name in names}))
def test_what_models_a_filter_exists(name: str) -> None:
    """Under the name above."""
    assert callable(resolved(name))
