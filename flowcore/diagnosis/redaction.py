"""Texts of plans for an asker who may not see every pod and node."""

from __future__ import annotations

import re

from flowcore.scenario import Scenario
from flowcore.scenario.context import AnswerContext

#: A name of Kubernetes, or two with a slash between.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")


def redacted(text: str, scenario: Scenario, context: AnswerContext) -> str:
    """The text without the names of objects that the asker may not read."""
    known = {pod.namespace for pod in scenario.cluster.pods.values()} | scenario.cluster.namespaces.keys()
    hidden = {namespace for namespace in known if not context.sees(namespace)}
    if context.nodes and not hidden:
        return text

    def hide(found: re.Match[str]) -> str:
        name = found[0]
        namespace, slash, _ = name.partition("/")
        if slash and namespace in hidden:
            return context.name(name) if name in scenario.cluster.pods else "(of another namespace)"
        return context.node(name) if name in scenario.cluster.nodes else name

    return _NAME.sub(hide, text)
