"""How much hypothesis draws, and whether every run draws the same.

`quick` is the default tier's: few examples of each property. `full` is the slow tier's: all of them. Both draw the same
in every run, so a failure is everybody's. `explore` draws others in each run, ten times as many as `full`, and
remembers failures in `.hypothesis`:

    python -m pytest --hypothesis-profile=explore -m "hypothesis and not slow" tests/core tests/operator

`HYPOTHESIS_PROFILE` in the environment names a profile too. A failure of `explore` prints a line
`@reproduce_failure(...)`.
"""

import os
import random

from hypothesis import HealthCheck, settings

QUICK, FULL, EXPLORE = "quick", "full", "explore"
_QUICK_EXAMPLES, _FULL_EXAMPLES, _EXPLORE_FACTOR = 5, 100, 10
_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def register_profiles(default: str) -> None:
    """Registers all profiles and loads the one that the environment names, or else the default."""
    same = settings(deadline=None, derandomize=True, database=None, print_blob=False, suppress_health_check=_CHECKS)
    settings.register_profile(QUICK, same, max_examples=_QUICK_EXAMPLES)
    settings.register_profile(FULL, same, max_examples=_FULL_EXAMPLES)
    settings.register_profile(
        EXPLORE,
        derandomize=False,
        deadline=None,
        print_blob=True,
        max_examples=_EXPLORE_FACTOR * _FULL_EXAMPLES,
        suppress_health_check=_CHECKS,
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", default))


def is_exploring() -> bool:
    """Whether this run draws other examples than the last one."""
    return settings.get_current_profile_name() == EXPLORE


def is_quick() -> bool:
    """Whether this run draws few examples."""
    return settings.get_current_profile_name() == QUICK


def examples(count: int, quick: int = _QUICK_EXAMPLES) -> int:
    """How many examples a test draws that wants `count` in the slow tier; `quick`: in the default tier, at most."""
    if is_quick():
        return min(count, quick)
    return count * _EXPLORE_FACTOR if is_exploring() else count


def at_least(count: int) -> int:
    """How much a test compares that draws until it has enough."""
    return count * _EXPLORE_FACTOR if is_exploring() else count


def batch_seed(batch: int) -> int:
    """The seed of one batch of a test that draws until it has enough."""
    return random.getrandbits(32) if is_exploring() else batch
