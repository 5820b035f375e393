"""What policies are told of rounds in which pods of theirs had no turn."""

from collections.abc import Sequence

from thalweg_operator.planning.reports.round_reports import RoundReports
from thalweg_operator.planning.round_request import PlanningInput
from thalweg_operator.planning.worker.messages import PendingEntry, RoundReply, RoundRequest

from flowcore.cluster.changes import ClusterChanges
from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Policy
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.plan_document import PlanEviction

POLICY = Policy(name="own", precedence=0)


def report(reports: RoundReports, planned: Pod, proposed: Sequence[str], deferred: Sequence[Pod]) -> None:
    """A round plans a pod in vain, and would move these for it."""
    cluster = Cluster()
    given = PlanningInput(1, cluster.take_changes(), [POLICY], {POLICY.name: "u"})
    entry = PendingEntry(planned.key, 0, 0, 0.0, 0)
    request = RoundRequest(1, 1, 0.0, False, ClusterChanges(), [POLICY], [planned.pod_class], [], [entry], 0.0)
    reply = RoundReply(1, 0.0, 0.0, 0, 0, "", 0, unplaced=[(0, 0)], reasons=["It fits nowhere."], costs=[0])
    reply.proposals = [(0, PlanEviction(key, key, "n", EvictionKind.MIGRATION, (0,), "m")) for key in proposed]
    reports.round_ended(request, reply, given, [POLICY] * len(deferred), {"u"}, [(pod, POLICY) for pod in deferred])


def test_moves_for_pods_that_take_turns_are_proposed_once() -> None:
    """A round plans one of them and leaves the other out, in turn: what was found for both stands."""
    one, other = Pod("ns", "one", "one", PodClass()), Pod("ns", "other", "other", PodClass())
    reports = RoundReports()
    for _ in range(3):
        report(reports, one, ["ns/a"], [other])
        report(reports, other, ["ns/b"], [one])
    assert sorted(each.pod for each in reports.proposals["u"]) == ["ns/a", "ns/b"]
    report(reports, one, [], [other])
    assert [each.pod for each in reports.proposals["u"]] == ["ns/b"], "nothing is to leave for the first any more"
    report(reports, other, [], [])
    assert not reports.proposals


def test_a_round_without_pods_of_a_policy_is_not_its_last_one() -> None:
    """Its pod rests and waits on, while a round plans the pod of another policy."""
    one, resting = Pod("ns", "one", "one", PodClass()), Pod("ns", "resting", "resting", PodClass())
    reports = RoundReports()
    report(reports, resting, [], [])
    policies = [POLICY, Policy(name="second", precedence=1)]
    given = PlanningInput(1, Cluster().take_changes(), policies, {"own": "u", "second": "v"})
    entry = PendingEntry(one.key, 0, 1, 0.0, 0)
    request = RoundRequest(2, 1, 0.0, False, given.changes, policies, [one.pod_class], [], [entry], 0.0)
    reply = RoundReply(2, 0.0, 0.0, 0, 0, "", 0, unplaced=[(0, 0)], reasons=["It fits nowhere."], costs=[0, 5])
    reports.round_ended(request, reply, given, [POLICY], {"u", "v"}, [(resting, POLICY)])
    assert (reports.reports["u"].number, reports.reports["u"].waiting) == (1, 1)
    assert (reports.reports["v"].number, reports.reports["v"].cost) == (2, 5)
