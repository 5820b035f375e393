"""The list of kube-scheduler's defaults, by which pages say what Thalweg does, is still kube-scheduler's."""

from beside_kube_scheduler import stored
from support.minor_versions import EACH_VERSION
from support.scheduler_defaults import scheduler_defaults
from thalweg_controlplane import Oracle


@EACH_VERSION
def test_the_list_is_kube_schedulers(oracle: Oracle) -> None:
    """If it is not: `python tests/record_scheduler_defaults.py`, then rows for what is new, then docs/generate.py."""
    assert stored()[oracle.minor_version] == scheduler_defaults(oracle)
