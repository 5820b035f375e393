"""The annotation that says when a pod's work was last saved."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from flowcore.api.base import to_seconds
from flowcore.model.errors import ModelError
from flowcore.model.policies import CHECKPOINTED_AT

_FIELD = f"annotation {CHECKPOINTED_AT}"
#: No time in the form of RFC 3339 is longer, not even with nanoseconds and a zone.
_MAX_LENGTH = 40
_WithZone = Annotated[datetime, msgspec.Meta(tz=True)]


def parse_checkpoint(text: str) -> float:
    """Seconds since the epoch. Whether that is in the future is for the reader to say who has a clock.

    Raises:
        ModelError: it is no such time.
    """
    if len(text) <= _MAX_LENGTH:
        try:
            return max(0.0, to_seconds(msgspec.convert(text, _WithZone)))
        except (msgspec.ValidationError, OverflowError):
            pass
    raise ModelError(_FIELD, "it is no time in the form of RFC 3339, such as 2026-11-26T14:00:00Z")
