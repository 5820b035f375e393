"""A scenario as a saved state (flowcore/cluster/saved_state.py), and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flowcore.cluster.saved_state import BesideCluster, put_lines, to_lines
from flowcore.questions.scenario.scenario import Scenario


def state_of(scenario: Scenario) -> Iterator[bytes]:
    """The lines of a scenario's state, each with its line break."""
    beside = BesideCluster(
        complete=scenario.complete,
        awaiting=scenario.awaiting,
        loads=scenario.loads,
        foreseen=scenario.foreseen,
        node_samples=scenario.node_samples,
        pod_samples=scenario.pod_samples,
        held=scenario.held,
        regret=scenario.regret,
    )
    return to_lines(scenario.cluster, beside, scenario.moment, scenario.policies.values())


def read_state(lines: Iterable[str], scenario: Scenario | None = None) -> Scenario:
    """The scenario of a saved state.

    Args:
        scenario: it is put in here; None: into a new one.

    Raises:
        UnreadableState: a line cannot be read, or another version wrote it.
    """
    scenario = scenario or Scenario()
    state = put_lines(lines, scenario.cluster)
    scenario.complete, scenario.moment = state.complete, state.written
    scenario.policies |= {policy.name: policy for policy in state.policies}
    scenario.awaiting |= state.awaiting
    scenario.loads |= state.loads
    scenario.foreseen |= state.foreseen
    scenario.node_samples |= state.node_samples
    scenario.pod_samples |= state.pod_samples
    scenario.held |= state.held
    scenario.regret += state.regret
    return scenario
