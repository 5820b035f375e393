"""The commands of bench/ work: each runs at a small size, as long as it takes to see that."""

import subprocess
import sys
from pathlib import Path

import pytest
from harness.figures.measurements import MEASUREMENTS, Measurement
from harness.figures.results import Results
from support.repository import ROOT

BENCH = ROOT / "bench"
#: Commands that the performance page does not show -> arguments of a small run.
OTHERS = {
    "hardening.py": ("--only", "gangs"),
    "small_rounds.py": ("--draws", "10"),
    "waiting_order.py": ("--hours", "0.05", "--seeds", "1", "--loads", "1.2"),
    "admission.py": ("--writes", "20", "--runs", "1"),
    "devices.py": ("--nodes", "50", "--pods", "20", "-n", "1"),
    "claims.py": ("--nodes", "20", "--pods", "40", "--warm-up", "100"),
    "eviction_methods.py": ("--only", "small", "--draws", "3"),
    "methods.py": ("--only", "tiny: none", "--budget", "0.1"),
    "cycle.py": ("--nodes", "50", "--pods", "20", "--shapes", "spread", "--warm-up", "100"),
    "freed_room.py": ("--waiting", "1", "--nodes", "20", "--times", "2", "--burst", "5", "--warm-up", "100"),
    "two_planners.py": ("--old", sys.executable, "--new", sys.executable, "--only", "moves, urgent gang, seed 1"),
}
#: It runs those that the page shows.
TOGETHER = {"performance.py"}
#: They read the openb trace, which is not here.
WITH_TRACE = {"audits.py", "openb.py", "shared_gpus.py"}
_TRIALS = {(each.script, each.trial): each for each in reversed(MEASUREMENTS) if not each.needs_openb}
#: One for each trial: that of 5,000 nodes is that of 1,000.
SHOWN = list(_TRIALS.values())[::-1]


def test_no_command_is_left_out() -> None:
    """Each command of bench/ has a small run below, but those that read the openb trace."""
    commands = {path.name for path in BENCH.glob("*.py") if "__main__" in path.read_text()}
    measured = {each.script for each in MEASUREMENTS}
    assert commands == measured | OTHERS.keys() | TOGETHER | WITH_TRACE
    assert not measured & OTHERS.keys()


def run(script: str, *arguments: str | Path) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run([sys.executable, BENCH / script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("measurement", SHOWN, ids=lambda each: each.name)
def test_the_page_can_be_measured(measurement: Measurement, tmp_path: Path) -> None:
    """The command ends well, and what it prints is kept: conditions and at least one figure."""
    results = Results(tmp_path, trial=True)
    results.measure(measurement, 1, None)
    (kept,) = results.runs(measurement)
    assert kept.pop("conditions")
    assert any(kept.values()), kept


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("script", OTHERS)
def test_other_commands(script: str) -> None:
    """The command ends well and prints something."""
    assert run(script, *OTHERS[script])
