"""``thalweg run``: what is refused before anything starts."""

import click
import pytest
from support.cli import thalweg
from thalweg.main import main

from flowcore.cluster.usage_samples import STALE_AFTER
from flowcore.model.device_gates import ON_SINCE

URL = "http://prometheus:9090"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--prometheus-query", "gpu=up"], '"gpu=up" is not NAME=PROMQL with one of the names cpu, memory, bandwidth'),
        (["--prometheus-query", "bandwidth"], '"bandwidth" is not NAME=PROMQL'),
        (["--prometheus-query", "bandwidth=a", "--prometheus-query", "bandwidth=b"], "bandwidth is given twice"),
        (["--prometheus-url", URL, "--prometheus-query", "cpu=a"], "give cpu and memory, or none of the two"),
        (["--prometheus-query", "bandwidth=a"], "--prometheus-url and --prometheus-query need each other"),
        (["--prometheus-url", URL], "--prometheus-url and --prometheus-query need each other"),
        (["--prometheus-url", "prometheus", "--prometheus-query", "bandwidth=a"], '"prometheus" is not a URL'),
        (["--audit-interval", "-1"], "-1.0 is not in the range 0<=x<=604800"),
        (["--usage-interval", "91"], "91.0 is not in the range 1<=x<=90"),
    ],
)
def test_intervals_and_queries_that_make_no_sense(options: list[str], problem: str) -> None:
    """One sentence that names the option and says what is wrong."""
    done = thalweg("run", *options)
    assert done.returncode == 2
    assert problem in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("DRATaints=false", f'"DRATaints" is not one of the gates {", ".join(ON_SINCE)}'),
        ("DRADeviceTaints=off", '"DRADeviceTaints=off" is not DRADeviceTaints=true or DRADeviceTaints=false'),
        ("DRADeviceTaints", '"DRADeviceTaints" is not DRADeviceTaints=true'),
    ],
)
def test_gates_that_make_no_sense(value: str, problem: str) -> None:
    """One sentence that names the option and says what would do."""
    done = thalweg("run", "--feature-gates", value)
    assert done.returncode == 2
    assert "--feature-gates" in done.stderr
    assert problem in " ".join(done.stderr.split())


def test_gates_as_kube_scheduler_takes_them() -> None:
    """Several with commas between."""
    context = main.commands["run"].make_context("run", ["--feature-gates=DRADeviceTaints=false, DRAAdminAccess=True"])
    assert context.params["feature_gates"] == {"DRADeviceTaints": False, "DRAAdminAccess": True}
    assert main.commands["run"].make_context("run", []).params["feature_gates"] == {}


def test_a_sample_counts_until_the_next_poll() -> None:
    """The longest interval is half of the time that a sample counts."""
    (interval,) = (each for each in main.commands["run"].params if each.name == "usage_interval")
    assert isinstance(interval.type, click.FloatRange)
    assert interval.type.max == STALE_AFTER / 2
    assert f"counts for {STALE_AFTER:g} seconds" in (interval.help or "")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("4GiB", '"4GiB" is not a quantity'),
        ("1Mi", '"1Mi" is too little: give at least 256Mi, or 0 for no limit'),
        ("-1Gi", '"-1Gi" is too little'),
    ],
)
def test_a_memory_limit_that_makes_no_sense(value: str, problem: str) -> None:
    """One line that names the option and says what would do."""
    done = thalweg("run", "--worker-memory", value)
    assert done.returncode == 2
    assert "--worker-memory" in done.stderr
    assert problem in " ".join(done.stderr.split())
