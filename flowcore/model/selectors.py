"""Requirements on labels and node fields.

Source: apimachinery ``pkg/labels/selector.go``, component-helpers
``scheduling/corev1/nodeaffinity/nodeaffinity.go``. A term that cannot be parsed matches nothing, as
kube-scheduler has it ("ignore parsing errors for backwards compatibility").
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping

import msgspec

#: Label key -> value, sorted by key: hashable and shared between objects.
Labels = tuple[tuple[str, str], ...]


def value_of(labels: Labels, key: str) -> str | None:
    """The value of one label, None where it is not there; no dict is built for it."""
    position = bisect_left(labels, (key,))
    return labels[position][1] if position < len(labels) and labels[position][0] == key else None


#: Between the keys of a topology of several labels, and between the values of one of its domains: none of them has it.
TOPOLOGY_SEPARATOR = ", "


def domain_value(labels: Labels, topology_key: str) -> str | None:
    """The domain of a topology that a node with these labels is in; None where it lacks a label of the topology.

    Args:
        topology_key: a label, or several of them with ``TOPOLOGY_SEPARATOR`` between them: then all values count.
    """
    if TOPOLOGY_SEPARATOR not in topology_key:
        return value_of(labels, topology_key)
    values = [value_of(labels, key) for key in topology_key.split(TOPOLOGY_SEPARATOR)]
    known = [value for value in values if value is not None]
    return TOPOLOGY_SEPARATOR.join(known) if len(known) == len(values) else None


_INT64 = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One key, an operator (In, NotIn, Exists, DoesNotExist, Gt, Lt) and its values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def accepts(self, value: str | None) -> bool:
        """Whether an object whose value for the key is ``value`` (None: it has none) meets it."""
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                actual, bound = parse_int64(value), parse_int64(self.values[0] if len(self.values) == 1 else None)
                if actual is None or bound is None:
                    return False
                return actual > bound if self.operator == "Gt" else actual < bound
            case _:
                return False

    @property
    def is_valid(self) -> bool:
        """Whether Kubernetes would accept it: a known operator with as many values as it takes."""
        match self.operator:
            case "In" | "NotIn":
                shaped = len(self.values) > 0
            case "Exists" | "DoesNotExist":
                shaped = not self.values
            case "Gt" | "Lt":
                shaped = len(self.values) == 1 and parse_int64(self.values[0]) is not None
            case _:
                shaped = False
        return shaped and is_label_key(self.key) and all(map(is_label_value, self.values))

    @property
    def text(self) -> str:
        """As kubectl writes it: app=web, app in (web,db), !app; Gt and Lt as > and <."""
        values = ",".join(self.values)
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={values}"
            case "NotIn" if len(self.values) == 1:
                return f"{self.key}!={values}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({values})"
            case "DoesNotExist":
                return f"!{self.key}"
            case "Exists":
                return self.key
            case "Gt":
                return f"{self.key}>{values}"
            case _:
                return f"{self.key}<{values}"


def parse_int64(text: str | None) -> int | None:
    """Go's strconv.ParseInt(text, 10, 64), None where it fails."""
    if text is None or _INT64.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def is_label_value(text: str) -> bool:
    """Whether Kubernetes accepts it as a label's value."""
    return _LABEL_VALUE.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Whether it is one (RFC 1123, at most 253 characters), as names of most objects are."""
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Whether Kubernetes accepts it as a label's key: a name, or a DNS prefix, a slash and a name."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return _LABEL_NAME.fullmatch(name) is not None


class NodeSelectorTerm(msgspec.Struct, frozen=True, gc=False):
    """A node matches when it meets all expressions (labels) and all fields (metadata.name)."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @property
    def selects_nothing(self) -> bool:
        """True for an empty term and for one that Kubernetes cannot parse."""
        if not self.expressions and not self.fields:
            return True
        return not (
            all(r.is_valid for r in self.expressions)
            and all(r.operator in ("In", "NotIn") and len(r.values) == 1 for r in self.fields)
        )


class LabelSelector(msgspec.Struct, frozen=True, gc=False):
    """metav1.LabelSelector: all requirements hold; an empty one selects everything."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether Kubernetes can parse it (LabelSelectorAsSelector)."""
        return all(r.is_valid and r.operator not in ("Gt", "Lt") for r in self.requirements)

    @property
    def text(self) -> str:
        """As kubectl writes it, its requirements behind one another: app=web,tier in (a,b)."""
        return ",".join(requirement.text for requirement in self.requirements)

    def matches(self, labels: Labels) -> bool:
        """Whether an object with these labels is selected."""
        return self.selects(dict(labels))

    def selects(self, values: Mapping[str, str]) -> bool:
        """The same for labels by key: a caller with many selectors makes the mapping once."""
        return all(r.accepts(values.get(r.key)) for r in self.requirements)
