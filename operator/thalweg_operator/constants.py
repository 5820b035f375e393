"""Names that users see."""

from __future__ import annotations

from typing import Final

from flowcore.api.kinds import POLICY

POLICIES_PATH: Final = POLICY.paths[0]
#: Source component of Events and of requests.
COMPONENT: Final = "thalweg"
#: Annotation of the leader's own pod: since when it leads.
LEADS_SINCE: Final = "scheduling.thalweg/leads-since"
