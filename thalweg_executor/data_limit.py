"""Memory of children: together they may use what their parent may still use."""

from __future__ import annotations

import resource
from pathlib import Path

_STATM = Path("/proc/self/statm")
#: Place of data and stack, in pages.
_DATA_AT = 5


def share_data_limit(children: int) -> None:
    """Leaves this process, one of so many children, its share of what is left of the parent's data limit."""
    limit, most = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        return
    used = int(_STATM.read_text().split()[_DATA_AT]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + max(0, limit - used) // children, most))
