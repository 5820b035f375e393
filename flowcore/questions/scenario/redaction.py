"""Texts of plans for an asker who may not see every pod and node."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.scenario import Scenario

#: A name of Kubernetes, or two with a slash between.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")


class Redaction:
    """Takes the names of objects that the asker may not read out of texts.

    Args:
        beside: namespaces that texts may name beside those of the scenario.
    """

    def __init__(self, scenario: Scenario, context: AnswerContext, beside: Iterable[str] = ()) -> None:
        self._pods, self._nodes, self._context = scenario.cluster.pods, scenario.cluster.nodes, context
        known = {pod.namespace for pod in self._pods.values()} | scenario.cluster.namespaces.keys()
        known.update(beside)
        self._hidden = {namespace for namespace in known if not context.sees(namespace)}

    def __call__(self, text: str) -> str:
        """The text without these names."""
        return _NAME.sub(self._hide, text) if self._hidden or not self._context.nodes else text

    def _hide(self, match: re.Match[str]) -> str:
        name = match[0]
        namespace, slash, _ = name.partition("/")
        if slash and namespace in self._hidden:
            return self._context.name(name) if name in self._pods else "(of another namespace)"
        return self._context.node(name) if name in self._nodes else name
