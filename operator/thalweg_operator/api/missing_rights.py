"""Logs which rights the account lacks for writes: once for each right, however many pods need it.

Who sent a write tells the pod. The log tells the administrator. The reflectors log kinds that may not be listed.
"""

from __future__ import annotations

import re

from thalweg_operator.api.outages import Outages
from thalweg_operator.errors import Refused

#: The API server's authorizer (apiserver/pkg/endpoints/handlers/responsewriters/errors.go). Admission has other words.
_REFUSAL = re.compile(r'cannot (\w+) resource "([^"]+)" in API group')


class MissingRights:
    """What was refused for want of a right, and was not accepted since."""

    def __init__(self) -> None:
        #: By method and kind of path, as ``_kind`` makes it.
        self._missing: dict[tuple[str, str], str] = {}

    def refused(self, method: str, path: str, error: Refused, outages: Outages) -> None:
        """A write was refused, perhaps for another reason."""
        refusal = _REFUSAL.search(error.reason) if error.status == 403 else None
        if refusal is not None:
            topic = f"right to {refusal[1]} {refusal[2]}"
            self._missing[method, _kind(path)] = topic
            outages.failed(topic, "403", error.reason)

    def accepted(self, method: str, path: str, outages: Outages) -> None:
        """A write was carried out."""
        if self._missing:
            topic = self._missing.pop((method, _kind(path)), None)
            if topic is not None:
                outages.recovered(topic)


def _kind(path: str) -> str:
    """Resource and subresource of a path: ``pods/binding`` of ``/api/v1/namespaces/a/pods/b/binding``."""
    parts = path.split("/")[2 if path.startswith("/api/") else 3 :][1:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return "/".join([*parts[:1], *parts[2:]])
