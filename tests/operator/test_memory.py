"""What comes and goes leaves nothing behind, whatever its names are."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.churn import ChurningCluster, InProcessWorker
from support.leaks import grown_containers, nbytes, tracked_objects

TESTS = Path(__file__).parents[1]


async def test_all_records_return_to_where_they_began() -> None:
    """750 pods and 180 nodes with labels, resources, selectors and names of their own come and go.

    No container that can be reached from the operator's parts or the worker's replica has more entries than before,
    and all of them together hold as many bytes, within 10 %.
    """
    churn = ChurningCluster(InProcessWorker())
    await churn.churn_once(pods=100, nodes=25)
    await churn.settle()
    before, bytes_before = tracked_objects(**churn.parts), nbytes(**churn.parts)
    for _ in range(15):
        await churn.churn_once(pods=50, nodes=12)
    assert nbytes(**churn.parts) < 2**26, "not even while they come and go is much held"
    await churn.settle()
    assert not grown_containers(before, tracked_objects(**churn.parts))
    assert nbytes(**churn.parts) <= 1.1 * bytes_before


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_resident_memory_returns_to_where_it_began() -> None:
    """15,000 pods and 7,500 nodes come and go in front of the operator's parts and a real worker process.

    Neither process grows by 10 % after a warm-up, in which libraries are loaded and caches made.
    """
    done = subprocess.run(
        [sys.executable, "-m", "support.churn", "15000"], cwd=TESTS, capture_output=True, text=True, check=True
    )
    first, last = [[int(each) for each in line.split()] for line in done.stdout.splitlines()]
    for name, before, after in zip(("operator", "worker"), first, last, strict=True):
        assert after <= 1.1 * before, f"{name}: {before} bytes, then {after}"
