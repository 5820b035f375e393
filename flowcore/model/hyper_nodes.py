"""HyperNodes of Volcano: nodes near each other in a network, in tiers; and what a gang says of these tiers.

Sources: volcano.sh/apis topology/v1alpha1 hypernode_types.go, scheduling/v1beta1 types.go (NetworkTopologySpec,
SubGroupPolicySpec); volcano's pkg/util/hypernode/member_selector.go, pkg/scheduler/framework/session.go.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flowcore.model.selectors import LabelSelector

#: Begins the keys by which nodes have their HyperNodes. No label has a space in its key, so nobody else can write one.
_TIER: Final = "HyperNode tier "


def tier_key(tier: int) -> str:
    """The topology of a tier: nodes with one value of this key are in one HyperNode of the tier, or of a lower one."""
    return f"{_TIER}{tier}"


def is_tier_key(key: str) -> bool:
    """Whether a key of a node's labels is that of a tier."""
    return key.startswith(_TIER)


class NodeMembers(msgspec.Struct, frozen=True, gc=False):
    """The nodes that one member of a HyperNode selects: by one of the three.

    Attributes:
        name: of one node; "": by another.
        pattern: a regular expression of RE2 that is found in their names; "": by another.
        selector: by their labels, with at least one requirement; None: by another.
    """

    name: str = ""
    pattern: str = ""
    selector: LabelSelector | None = None


class HyperNode(msgspec.Struct, frozen=True, gc=False):
    """Nodes near each other in a network.

    Attributes:
        tier: how far they are from each other; the lower, the nearer.
        tier_name: "": the tier has no name.
        nodes: what selects nodes; members that cannot be read are left out.
        hyper_nodes: names of HyperNodes whose nodes are in it too.
        problem: what of it cannot be read; "": nothing.
    """

    name: str
    tier: int = 0
    tier_name: str = ""
    nodes: tuple[NodeMembers, ...] = ()
    hyper_nodes: tuple[str, ...] = ()
    problem: str = ""


class TierLimit(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a gang says of tiers: ``networkTopology`` of Volcano.

    Attributes:
        is_hard: whether all of its pods must be in one HyperNode of the tier that it names; else they are as near as
            there is room.
        tier: the highest that is allowed; None: none is named by its number.
        tier_name: the same by its name; "": none is named so.
    """

    is_hard: bool
    tier: int | None = None
    tier_name: str = ""

    @property
    def text(self) -> str:
        """As reasons write it."""
        named = self.tier_name or ("" if self.tier is None else str(self.tier))
        return f"{'hard' if self.is_hard else 'soft'}{f' up to tier {named}' if named else ''}"


class SubGroup(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Pods of a gang that are split into slices by their labels: ``subGroupPolicy`` of Volcano.

    Attributes:
        selector: which pods.
        labels: pods with the same values of these labels are one slice; those that lack one are in none.
        limit: for each slice by itself.
        key: the topology of its slices (``flowcore.cluster.hyper_nodes.tier_limits``); "": they have none, or it is not
            known yet.
    """

    selector: LabelSelector
    labels: tuple[str, ...]
    limit: TierLimit
    key: str = ""
