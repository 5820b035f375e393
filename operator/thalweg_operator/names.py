"""Names that users see, in one place."""

from __future__ import annotations

from typing import Final

GROUP: Final = "scheduling.thalweg"
VERSION: Final = "v1alpha1"
KIND: Final = "FlowSchedulingPolicy"
PLURAL: Final = "flowschedulingpolicies"
POLICIES_PATH: Final = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
#: Component that events and requests come from.
COMPONENT: Final = "thalweg"
