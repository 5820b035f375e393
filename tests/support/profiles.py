"""How much hypothesis draws, and whether every run draws the same.

`derandomized` is the default: every run draws the same examples, so a failure is everybody's. `explore` draws others in
each run, ten times as many, and remembers failures in `.hypothesis`:

    python -m pytest --hypothesis-profile=explore -m "hypothesis and not slow" tests/core tests/operator

`HYPOTHESIS_PROFILE=explore` in the environment does the same. A failure there prints a line `@reproduce_failure(...)`.
"""

import os
import random

from hypothesis import HealthCheck, settings

DEFAULT, EXPLORE = "derandomized", "explore"
_EXPLORE_FACTOR = 10
_DEFAULT_EXAMPLES = 100
_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def register_profiles() -> None:
    """Registers both profiles and loads the one that the environment names."""
    settings.register_profile(
        DEFAULT, derandomize=True, deadline=None, database=None, print_blob=False, suppress_health_check=_CHECKS
    )
    settings.register_profile(
        EXPLORE,
        derandomize=False,
        deadline=None,
        print_blob=True,
        max_examples=_EXPLORE_FACTOR * _DEFAULT_EXAMPLES,
        suppress_health_check=_CHECKS,
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", DEFAULT))


def is_exploring() -> bool:
    """Whether this run draws other examples than the last one."""
    return settings.get_current_profile_name() == EXPLORE


def examples(count: int) -> int:
    """How many examples a test draws that wants `count` in the default run."""
    return count * _EXPLORE_FACTOR if is_exploring() else count


def batch_seed(batch: int) -> int:
    """The seed of one batch of a test that draws until it has enough."""
    return random.getrandbits(32) if is_exploring() else batch
