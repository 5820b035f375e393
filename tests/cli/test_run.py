"""``thalweg run``: what is refused before anything starts."""

import pytest
from support.cli import thalweg

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
        (["--usage-stale-after", "59"], "--usage-stale-after 59 is less than twice --usage-interval 30"),
        (["--usage-interval", "91"], "--usage-stale-after 180 is less than twice --usage-interval 91"),
    ],
)
def test_options_of_measured_usage_that_make_no_sense(options: list[str], problem: str) -> None:
    """One sentence that names the option and says what is wrong."""
    done = thalweg("run", *options)
    assert done.returncode == 2
    assert problem in " ".join(done.stderr.split())


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
