"""Versions of kube-scheduler that tests compare with, and how much with each: few rules differ."""

from typing import Final

import pytest
from thalweg_controlplane import Oracle
from thalweg_controlplane.building.build import MINOR_VERSION

VERSIONS: Final = (MINOR_VERSION, "1.37")
#: A test so marked asks the oracle of each of these.
EACH_VERSION: Final = pytest.mark.minor_versions(*VERSIONS)
#: The part of what is compared with the default version that is compared with another.
_PART: Final = 5


def share(oracle: Oracle, count: int) -> int:
    """How much of ``count`` is compared with the version of an oracle."""
    return count if oracle.minor_version == MINOR_VERSION else count // _PART
