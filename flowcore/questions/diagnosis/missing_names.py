"""Objects that a pod names and that do not exist: its PriorityClass, its resource claims and their templates."""

from __future__ import annotations

from collections.abc import Iterator

from flowcore.api.kinds import PRIORITY_CLASS
from flowcore.model.pods import Pod
from flowcore.questions.diagnosis.lists import listed
from flowcore.questions.diagnosis.missing_storage import MissingObject
from flowcore.questions.scenario import Scenario


def missing_names(scenario: Scenario, pod: Pod) -> list[MissingObject]:
    """What a pod names and what is not there; of a kind without objects nothing is known."""
    return list(_missing(scenario, pod))


def _missing(scenario: Scenario, pod: Pod) -> Iterator[MissingObject]:
    known = {kind for kind, *_ in scenario.named}
    for kind, namespace, name in scenario.names.get(pod.key, ()):
        if kind == PRIORITY_CLASS.kind:
            if classes := sorted(scenario.priority_classes):
                yield MissingObject(
                    f"PriorityClass {name} does not exist, so its priority counts as 0; there "
                    f"{'is' if len(classes) == 1 else 'are'} {listed(classes)}.",
                    f"Create PriorityClass {name}, or name another one: the API server refuses new pods that name it.",
                )
        elif kind in known and (kind, namespace, name) not in scenario.named:
            yield MissingObject(
                f"{kind} {namespace}/{name} does not exist.", f"Create {kind} {name} in namespace {namespace}."
            )
