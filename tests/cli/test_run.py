"""``thalweg run``: what is refused before anything starts."""

import pytest
from support.cli import thalweg


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
