"""What a policy's status says, from its object, its pods and the last round."""

import asyncio
from typing import Any

import pytest
import yaml
from support.repository import ROOT
from thalweg_operator.delivery.status import policy_status
from thalweg_operator.delivery.status.policy_status import PolicyStatus
from thalweg_operator.planning.reports.round_reports import ProposedEviction, RoundReport
from thalweg_operator.policies.store import PolicyStore

from flowcore.cluster.cluster import Cluster, Population
from flowcore.cluster.indexes.policy_coverage import PolicyCoverage
from flowcore.model.running_pods import EvictionKind

REPORT = RoundReport(number=7, finished=1000.0, placed=3, waiting=1, cost=90, gap=0.0, certified=True)


class Rounds:
    """What the round loop keeps for status, by uid."""

    def __init__(self) -> None:
        self.reports: dict[str, RoundReport] = {}
        self.contradictions: dict[str, Any] = {}
        self.proposals: dict[str, Any] = {}


class Gates:
    problems: dict[str, str] = {}  # noqa: RUF012 - none
    gating: frozenset[str] = frozenset()
    marks = False


def statuses(store: PolicyStore, rounds: Rounds) -> dict[str, Any]:
    """The status of each policy, its conditions by type."""
    writer: Any = PolicyStatus(None, None, store, rounds, Gates())  # type: ignore[arg-type]
    found = {each.name: writer._status(each, PolicyCoverage()) for each in store.records}
    return {
        name: {**each, "conditions": {one["type"]: one for one in each["conditions"]}} for name, each in found.items()
    }


def test_a_policy_made_again_begins_without_a_last_round() -> None:
    """The last round of an object that is gone is not told as the new object's."""
    store, rounds = PolicyStore(), Rounds()
    store.offer("again", "old", 4, {"selects": {"podSelector": {}}})
    rounds.reports["old"] = REPORT
    assert statuses(store, rounds)["again"]["lastRound"]["number"] == 7
    store.forget("again", "old")
    store.offer("again", "new", 1, {"selects": {"podSelector": {}}})
    assert "lastRound" not in statuses(store, rounds)["again"]


@pytest.mark.parametrize("selects", [{}, None])
def test_an_empty_selects_is_not_ready(selects: Any) -> None:
    """The policy is valid and governs nothing: Ready is False and says why."""
    store = PolicyStore()
    store.offer("empty", "u", 1, {} if selects is None else {"selects": selects})
    conditions = statuses(store, Rounds())["empty"]["conditions"]
    assert conditions["Accepted"]["status"] == "True"
    ready = conditions["Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "SelectsNothing")
    assert ready["message"] == "spec.selects is empty: the policy governs no pods."


EXCLUSIVE = {"groups": [{}, {"matchLabels": {"a": "b"}}], "topologyKey": "zone"}


@pytest.mark.parametrize(
    ("constraint", "field"),
    [
        ({"conflict": {"pods": {}, "topologyKey": "zone", "maxPerDomain": 0}}, "maxPerDomain"),
        ({"exclusive": {**EXCLUSIVE, "maxPerDomain": 0}}, "maxPerDomain"),
        ({"exclusive": {**EXCLUSIVE, "maxPlaced": 0}}, "maxPlaced"),
    ],
)
def test_a_constraint_that_admits_no_pod_is_a_contradiction_before_any_pod_waits(
    constraint: dict[str, Any], field: str
) -> None:
    """Consistent is False by the spec alone; the same sentence from a round is not said twice."""
    store, rounds = PolicyStore(), Rounds()
    store.offer("shop", "u", 1, {"selects": {"podSelector": {}}, "constraints": [{"name": "az", **constraint}]})
    sentence = f"constraint az of policy shop lets no pod in: its {field} is 0"
    for found in ([], [sentence]):
        rounds.contradictions = {"u": (store.records[0].in_force, found)}
        consistent = statuses(store, rounds)["shop"]["conditions"]["Consistent"]
        assert (consistent["status"], consistent["reason"]) == ("False", "Contradiction")
        assert consistent["message"] == f"The pods concerned wait: {sentence}."


def test_a_refused_network_is_told_until_it_is_solved() -> None:
    """Consistent comes with the first refusal, though the policy has no constraints, and is True once it is over."""
    store, rounds = PolicyStore(), Rounds()
    store.offer("racks", "u", 1, {"selects": {"podSelector": {}}})
    writer: Any = PolicyStatus(None, None, store, rounds, Gates())  # type: ignore[arg-type]

    def consistent() -> list[tuple[str, str]]:
        conditions = writer._status(store.records[0], PolicyCoverage())["conditions"]
        return [(each["status"], each["message"]) for each in conditions if each["type"] == "Consistent"]

    assert consistent() == []
    sentence = "the network of cost model X is refused: no"
    rounds.contradictions = {"u": (store.records[0].in_force, [sentence])}
    assert consistent() == [("False", f"The pods concerned wait: {sentence}.")]
    rounds.contradictions = {}
    assert consistent() == [("True", "The policy rules no waiting pod out.")]


def test_a_constraint_that_admits_one_pod_is_consistent() -> None:
    """The smallest cap that is none of 0."""
    store = PolicyStore()
    one = {"name": "az", "exclusive": {**EXCLUSIVE, "maxPerDomain": 1, "maxPlaced": 1}}
    store.offer("shop", "u", 1, {"selects": {"podSelector": {}}, "constraints": [one]})
    assert statuses(store, Rounds())["shop"]["conditions"]["Consistent"]["status"] == "True"


def test_pods_that_are_left_to_kube_scheduler_are_told() -> None:
    """Ready counts those that the policy selects in kube-system and in the operator's own namespace."""
    store, cluster = PolicyStore(), Cluster("ours")
    selects = {"schedulerNames": ["default-scheduler"], "podSelector": {}}
    store.offer("all", "u", 1, {"selects": selects, "delivery": "Extender"})
    cluster.policies.replace(store.accepted)
    for namespace, count in (("kube-system", 2), ("ours", 1), ("theirs", 4)):
        cluster.namespaces[namespace] = (("kubernetes.io/metadata.name", namespace),)
        cluster.populations[namespace, (), "default-scheduler"] = Population(waiting=count)
    writer: Any = PolicyStatus(None, cluster, store, Rounds(), Gates())  # type: ignore[arg-type]
    (record,) = store.records
    status = writer._status(record, asyncio.run(writer._counts()).of(record.in_force))
    (ready,) = [each for each in status["conditions"] if each["type"] == "Ready"]
    assert ready["message"] == (
        "In force. 3 of the pods it selects are in kube-system and ours and left to kube-scheduler."
    )
    assert status["pods"]["governed"] == 4


def test_a_field_that_is_ignored_is_told_with_what_to_write() -> None:
    """For as long as the object has it, valid or not; the policy is in force without the field."""
    store = PolicyStore()
    machines = {"label": "gen", "weight": 3}
    said = "spec.cost.machines.weight is ignored since 0.1.0: each slowdown counts as it is stated."
    for generation, (cost, accepted) in enumerate((({}, "True"), ({"model": "Nobody"}, "False")), 1):
        store.offer("old", "u", generation, {"selects": {"podSelector": {}}, "cost": {"machines": machines, **cost}})
        conditions = statuses(store, Rounds())["old"]["conditions"]
        told = conditions["UpToDate"]
        assert (told["status"], told["reason"], told["message"]) == ("False", "IgnoredFields", said)
        assert conditions["Accepted"]["status"] == accepted
        assert conditions["Ready"]["status"] == "True"
    store.offer("old", "u", 3, {"selects": {"podSelector": {}}, "cost": {"machines": {"label": "gen"}}})
    assert "UpToDate" not in statuses(store, Rounds())["old"]["conditions"]


def test_proposals_are_shown_while_the_policy_proposes() -> None:
    """All are counted, the first are shown; with another mode the field is removed."""
    store, rounds = PolicyStore(), Rounds()
    propose = {"selects": {"podSelector": {}}, "rescheduling": {"mode": "Propose"}}
    store.offer("shop", "u", 1, propose)
    assert statuses(store, rounds)["shop"]["rescheduling"] == {"count": 0, "proposals": []}
    waiting = tuple(f"ns/w{number}" for number in range(12))
    rounds.proposals["u"] = [
        ProposedEviction(f"ns/p{number:02}", "a", EvictionKind.MIGRATION, "b", waiting) for number in range(21)
    ]
    rounds.proposals["u"][1] = ProposedEviction("ns/p01", "a", EvictionKind.RULE)
    rounds.proposals["u"][2] = ProposedEviction("ns/p02", "a", EvictionKind.MIGRATION, "b", gain=1240)
    shown = statuses(store, rounds)["shop"]["rescheduling"]
    assert (shown["count"], len(shown["proposals"])) == (21, 20)
    assert shown["proposals"][0] == {
        "pod": "ns/p00", "node": "a", "kind": "Migration", "to": "b", "for": waiting[:10]
    }  # fmt: skip
    assert shown["proposals"][1] == {"pod": "ns/p01", "node": "a", "kind": "Rule"}
    assert shown["proposals"][2] == {"pod": "ns/p02", "node": "a", "kind": "Migration", "to": "b", "gain": 1240}
    store.offer("shop", "u", 2, {**propose, "rescheduling": {"mode": "Act"}})
    assert statuses(store, rounds)["shop"]["rescheduling"] is None


def test_a_list_in_the_status_is_as_long_as_the_api_server_takes() -> None:
    """The limits in the code are those of the CRD."""
    crd = yaml.safe_load((ROOT / "crds" / "flowschedulingpolicies.scheduling.thalweg.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    proposals = schema["rescheduling"]["properties"]["proposals"]
    assert proposals["maxItems"] == policy_status._MAX_PROPOSALS
    assert proposals["items"]["properties"]["for"]["maxItems"] == policy_status._MAX_FOR_PODS
    assert set(proposals["items"]["properties"]["kind"]["enum"]) == set(EvictionKind)


def test_a_constraint_about_pods_that_the_policy_does_not_select_is_told() -> None:
    """Effective is False and names it, though the policy contradicts nothing; once it rules a pod it is True."""
    store, cluster = PolicyStore(), Cluster("ours")
    api = {"matchLabels": {"tier": "api"}}
    spec = {"selects": {"podSelector": {"matchLabels": {"app": "web"}}}}
    rule = {"name": "az", "conflict": {"pods": api, "topologyKey": "zone"}}
    store.offer("web", "u", 1, {**spec, "constraints": [rule]})
    cluster.policies.replace(store.accepted)
    cluster.namespaces["shop"] = ()
    for labels in ((("app", "web"),), (("tier", "api"),)):
        cluster.populations["shop", labels, "thalweg"] = Population(waiting=2)
    writer: Any = PolicyStatus(None, cluster, store, Rounds(), Gates())  # type: ignore[arg-type]
    (record,) = store.records

    def effective() -> tuple[str, str, str]:
        status = writer._status(record, asyncio.run(writer._counts()).of(record.in_force))
        (found,) = (each for each in status["conditions"] if each["type"] == "Effective")
        return found["status"], found["reason"], found["message"]

    value, reason, message = effective()
    assert (value, reason) == ("False", "ConstraintRulesNoPod")
    assert message.startswith("Constraint az of policy web does nothing: its selectors match none of the 2 pods")
    cluster.populations["shop", (("tier", "api"),), "other"] = Population(waiting=1)
    assert effective()[0] == "False"
    cluster.populations["shop", (("app", "web"), ("tier", "api")), "thalweg"] = Population(waiting=1)
    assert effective()[:2] == ("True", "GovernsPods")
