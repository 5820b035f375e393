"""What gangs ask of tiers, as topologies of nodes.

As Volcano reads it (pkg/scheduler/framework/session.go, adjustNetworkTopologySpec): all nodes together are a HyperNode
above all others. So a limit of that tier or above limits nothing, and a gang with a limit that allows less is placed as
near as there is room within it. Where there are no HyperNodes, or the operator may not read them, no limit limits
anything: gangs that ran before go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from flowcore.api.annotation_texts import shortened
from flowcore.cluster.gang_specs.gang_spec_resolution import ResolvedGangSpec
from flowcore.model.gang_spec import GangSpec
from flowcore.model.hyper_nodes import TierLimit, tier_key
from flowcore.model.selectors import TOPOLOGY_SEPARATOR


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers of a cluster.

    Attributes:
        numbers: those that count, from the lowest on.
        by_name: those that have a name.
        highest: of any HyperNode, also of one that does not count; 0: there is none.
    """

    numbers: tuple[int, ...] = ()
    by_name: Mapping[str, int] = field(default_factory=dict)
    highest: int = 0

    def applied(self, resolved: ResolvedGangSpec, shown: str) -> ResolvedGangSpec:
        """The requirements of a gang, with what it asks of tiers as topologies.

        Args:
            shown: the gang, for reasons.
        """
        spec = resolved.spec
        if resolved.unschedulable_reason or (spec.limit is None and not spec.sub_groups):
            return resolved
        try:
            spec = self._with_slices(self._with_levels(spec))
        except _NoSuchTierError as error:
            return replace(resolved, unschedulable_reason=f"{shown}: {error}")
        return replace(resolved, spec=spec)

    def _with_levels(self, spec: GangSpec) -> GangSpec:
        limit = spec.limit
        if limit is None:
            return spec
        highest = self._highest(limit)
        near = [tier for tier in reversed(self.numbers) if highest is None or tier < highest]
        required = [spec.topology_key, "" if highest is None else tier_key(highest)]
        return msgspec.structs.replace(
            spec,
            topology_key=TOPOLOGY_SEPARATOR.join(filter(None, required)),
            preferred=spec.preferred or tuple(map(tier_key, near)),
            limit=None,
        )

    def _with_slices(self, spec: GangSpec) -> GangSpec:
        """Sub-groups with their topologies, if any has one; slices that annotations of ours say go before them."""
        groups = []
        for group in () if spec.slice_size else spec.sub_groups:
            highest = self._highest(group.limit)
            groups.append(msgspec.structs.replace(group, key="" if highest is None else tier_key(highest)))
        return msgspec.structs.replace(spec, sub_groups=tuple(groups) if any(group.key for group in groups) else ())

    def _highest(self, limit: TierLimit) -> int | None:
        """The tier in one HyperNode of which pods must be; None: in none.

        Raises:
            _NoSuchTierError: there is no such HyperNode.
        """
        if not limit.is_hard or not self.numbers:
            return None
        highest = limit.tier
        if limit.tier_name:
            highest = self.by_name.get(limit.tier_name)
            if highest is None:
                raise _NoSuchTierError(f"no HyperNode has the tierName {shortened(limit.tier_name)}")
        if highest is None or highest > self.highest:
            return None
        allowed = [tier for tier in self.numbers if tier <= highest]
        if not allowed:
            raise _NoSuchTierError(f"no HyperNode has tier {highest} or a lower one")
        return allowed[-1]


class _NoSuchTierError(ValueError):
    pass
