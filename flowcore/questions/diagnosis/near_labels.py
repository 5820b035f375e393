"""Labels that a pod asks of its node and no node has, and the nearest ones that nodes have: mostly typing errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice

import msgspec

from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.selectors import NodeSelectorTerm
from flowcore.questions.diagnosis.lists import listed

#: How near two values and two keys must be, as difflib counts: keys have long parts in common anyway.
_NEAR_VALUE, _NEAR_KEY = 0.6, 0.85
#: Most labels in an answer: a pod may ask for thousands, and each is compared with the labels of all nodes.
_MOST = 4


class MissingLabel(msgspec.Struct, frozen=True):
    """A label that is asked for and that no node has.

    Attributes:
        label, value: what the pod asks for.
        near_label, near_value: the nearest one that nodes have; "": none is near.
        nodes: how many nodes have that.
        known: values of the same label that nodes have.
    """

    label: str
    value: str
    near_label: str = ""
    near_value: str = ""
    nodes: int = 0
    known: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A sentence."""
        missing = f"No node has {self.label}={self.value}"
        if self.near_label:
            have = "1 node has" if self.nodes == 1 else f"{self.nodes} nodes have"
            return f"{missing}; {have} {self.near_label}={self.near_value}."
        if self.known:
            return f"{missing}; of this label there {'is' if len(self.known) == 1 else 'are'} {listed(self.known)}."
        return f"No node has the label {self.label}."


def missing_labels(pod_class: PodClass, nodes: Sequence[Node]) -> list[MissingLabel]:
    """What a pod asks for and no node has, in the order in which it asks; the first ``_MOST`` of these.

    One term of its node affinity suffices. So what they ask for counts only if each of them asks for such a label.
    """
    terms = [list(_single_values(term)) for term in pod_class.required_affinity or ()]
    if not pod_class.node_selector and not any(terms):
        return []
    have = Counter(label for node in nodes for label in node.labels)
    asked = dict.fromkeys(pod_class.node_selector)
    if all(any(label not in have for label in term) for term in terms):
        asked |= dict.fromkeys(label for term in terms for label in term)
    missing = (label for label in asked if label not in have)
    return [_nearest(*label, have) for label in islice(missing, _MOST)]


def _single_values(term: NodeSelectorTerm) -> Iterator[tuple[str, str]]:
    for expression in term.expressions:
        if expression.operator == "In" and len(expression.values) == 1:
            yield expression.key, expression.values[0]


def _nearest(label: str, value: str, have: Counter[tuple[str, str]]) -> MissingLabel:
    known = sorted({known_value for key, known_value in have if key == label})
    if near := get_close_matches(value, known, 1, _NEAR_VALUE):
        return MissingLabel(label, value, label, near[0], have[label, near[0]])
    if not known:
        keys = sorted({key for key, known_value in have if known_value == value})
        if near := get_close_matches(label, keys, 1, _NEAR_KEY):
            return MissingLabel(label, value, near[0], value, have[near[0], value])
    return MissingLabel(label, value, known=tuple(known))
