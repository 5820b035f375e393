"""HyperNodes of Volcano, and what its PodGroups say of their tiers."""

from __future__ import annotations

from typing import Final

from flowcore.api.annotation_texts import annotation, shortened
from flowcore.api.base import Wire, WireMeta
from flowcore.api.selectors import WireLabelSelector, to_label_selector
from flowcore.model.errors import ModelError
from flowcore.model.hyper_nodes import HyperNode, NodeMembers, SubGroup, TierLimit
from flowcore.model.name_patterns import name_pattern
from flowcore.model.selectors import LabelSelector

#: Most members of a HyperNode that select nodes by a pattern or by labels: each is compared with every node.
MAX_SELECTORS: Final = 64
#: Most entries of a PodGroup's subGroupPolicy, and labels and values that one of them names.
MAX_SUB_GROUPS: Final = 16
_MAX_LABELS: Final = 8
MAX_VALUES: Final = 64
#: Most problems of one object that are told.
_MAX_TOLD: Final = 3


class _WireExact(Wire):
    name: str = ""


class _WireRegex(Wire):
    pattern: str = ""


class _WireMemberSelector(Wire):
    exact_match: _WireExact | None = None
    regex_match: _WireRegex | None = None
    label_match: WireLabelSelector | None = None


class _WireMember(Wire):
    type: str = ""
    selector: _WireMemberSelector | None = None


class _WireHyperNodeSpec(Wire):
    tier: int = 0
    tier_name: str = ""
    members: list[_WireMember] | None = None


class WireHyperNode(Wire):
    metadata: WireMeta
    spec: _WireHyperNodeSpec | None = None


def to_hyper_node(wire: WireHyperNode) -> HyperNode:
    """A HyperNode. A member that cannot be read does not count, and ``problem`` names it."""
    spec = wire.spec or _WireHyperNodeSpec()
    nodes, hyper_nodes, problems = list[NodeMembers](), dict[str, None](), list[str]()
    for index, member in enumerate(spec.members or ()):
        field = f"spec.members[{index}]"
        try:
            if member.type == "HyperNode":
                hyper_nodes[_named_hyper_node(member, field)] = None
            else:
                nodes.append(_to_nodes(member, field))
        except ModelError as error:
            problems.append(str(error))
    selecting = [member for member in nodes if not member.name]
    if len(selecting) > MAX_SELECTORS:
        problems.append(
            f"spec.members: {len(selecting)} members select by pattern or labels, {MAX_SELECTORS} are allowed"
        )
        nodes = [*(member for member in nodes if member.name), *selecting[:MAX_SELECTORS]]
    told = problems[:_MAX_TOLD]
    if len(problems) > len(told):
        told.append(f"and {len(problems) - len(told)} more")
    return HyperNode(wire.metadata.name, spec.tier, spec.tier_name, tuple(nodes), tuple(hyper_nodes), "; ".join(told))


def _named_hyper_node(member: _WireMember, field: str) -> str:
    exact = member.selector.exact_match if member.selector is not None else None
    if exact is None or not exact.name:
        raise ModelError(f"{field}.selector", "a member of type HyperNode needs exactMatch")
    return exact.name


def _to_nodes(member: _WireMember, field: str) -> NodeMembers:
    if member.type != "Node":
        raise ModelError(f"{field}.type", f'"{shortened(member.type)}" is neither Node nor HyperNode')
    selector = member.selector or _WireMemberSelector()
    if selector.exact_match is not None and selector.exact_match.name:
        return NodeMembers(name=selector.exact_match.name)
    if selector.regex_match is not None:
        pattern = selector.regex_match.pattern
        try:
            name_pattern(pattern)
        except ValueError as error:
            raise ModelError(f"{field}.selector.regexMatch.pattern", f'"{shortened(pattern)}": {error}') from None
        return NodeMembers(pattern=pattern)
    labels = to_label_selector(selector.label_match or WireLabelSelector())
    if not labels.requirements:
        raise ModelError(f"{field}.selector", "it selects no nodes")
    if not labels.is_valid:
        raise ModelError(f"{field}.selector.labelMatch", "it is no selector of labels")
    return NodeMembers(selector=labels)


# --- PodGroups of Volcano ---

#: Annotations of Volcano on pods; its controller copies them to the PodGroups that it makes.
TIER_MODE: Final = "volcano.sh/network-topology-mode"
HIGHEST_TIER: Final = "volcano.sh/network-topology-highest-tier"
_MODES: Final = ("hard", "soft")
#: Characters of the largest tier in an annotation.
_MAX_DIGITS: Final = 9


class WireTierLimit(Wire):
    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class WireSubGroup(Wire):
    network_topology: WireTierLimit | None = None
    label_selector: WireLabelSelector | None = None
    match_label_keys: list[str] | None = None


def to_tier_limit(wire: WireTierLimit, field: str) -> TierLimit:
    """What a PodGroup says of tiers.

    Raises:
        ModelError: the mode is unknown, or the tier is named twice.
    """
    if wire.mode not in _MODES:
        raise ModelError(f"{field}.mode", f'"{shortened(wire.mode)}" is neither hard nor soft')
    if wire.highest_tier_allowed is not None and wire.highest_tier_name:
        raise ModelError(field, "it has highestTierAllowed and highestTierName")
    return TierLimit(wire.mode == "hard", wire.highest_tier_allowed, wire.highest_tier_name)


def to_sub_groups(policies: list[WireSubGroup], field: str) -> tuple[SubGroup, ...]:
    """How pods of a PodGroup are split into slices. Entries without ``matchLabelKeys`` split nothing, as in Volcano.

    Raises:
        ModelError: a limit or a selector cannot be read, or they are too many: each is compared with each pod.
    """
    if len(policies) > MAX_SUB_GROUPS:
        raise ModelError(field, f"it has {len(policies)} entries, {MAX_SUB_GROUPS} are allowed")
    groups = list[SubGroup]()
    for index, policy in enumerate(policies):
        path, keys = f"{field}[{index}]", tuple(policy.match_label_keys or ())
        selector = LabelSelector() if policy.label_selector is None else to_label_selector(policy.label_selector)
        if not selector.is_valid:
            raise ModelError(f"{path}.labelSelector", "it is no selector of labels")
        if max(len(keys), len(selector.requirements)) > _MAX_LABELS:
            raise ModelError(path, f"it names more than {_MAX_LABELS} labels")
        if sum(len(requirement.values) for requirement in selector.requirements) > MAX_VALUES:
            raise ModelError(f"{path}.labelSelector", f"it names more than {MAX_VALUES} values")
        limit = TierLimit(is_hard=False)
        if policy.network_topology is not None:
            limit = to_tier_limit(policy.network_topology, f"{path}.networkTopology")
        if keys:
            groups.append(SubGroup(selector, keys, limit))
    return tuple(groups)


def tier_limit_of(mode: str | None, tier: str | None) -> TierLimit | None:
    """What annotations say of tiers; None: nothing.

    Raises:
        ModelError: one of them cannot be read.
    """
    if mode is None and tier is None:
        return None
    said = "hard" if mode is None else mode.lower()
    if said not in _MODES:
        raise ModelError(annotation(TIER_MODE), f'"{shortened(mode or "")}" is neither hard nor soft')
    if tier is not None and not (tier.isascii() and tier.isdecimal() and len(tier) <= _MAX_DIGITS):
        raise ModelError(annotation(HIGHEST_TIER), f'"{shortened(tier)}" is no tier')
    return TierLimit(said == "hard", None if tier is None else int(tier))
