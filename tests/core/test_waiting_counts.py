"""The sentences of all answers about who waits, who leaves, and whose pods they are."""

from typing import Any

import msgspec
import pytest

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import OBSERVED, Delivery, Policy, Selects
from flowcore.questions.audit.sentences import plan_words
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.waiting_counts import count_leaving, count_waiting, ungoverned_pods, whose

#: What may be said of each number of pods.
_WORDS = [
    ({"placed": 4, "left": 34, "gated": 2}, "40 pods wait: 4 get a node, 34 have none, 2 are behind gates"),
    ({"placed": 1, "left": 1, "gated": 1}, "3 pods wait: 1 gets a node, 1 has none, 1 is behind gates"),
    ({"left": 1}, "1 pod waits: it has no node"),
    ({"left": 1200}, "1,200 pods wait: none gets a node"),
    ({"judged": 38, "gated": 2}, "40 pods wait: 38 can be judged, 2 are behind gates"),
    ({"new": 1, "deleting": 2, "unplannable": 3},
     "6 pods wait: 1 waits for the next round, 2 are being deleted, 3 cannot be planned"),
    ({"placed": 2}, "2 pods wait: all get a node"),
    ({"gated": 1}, "1 pod waits: it is behind gates"),
    ({"left": 2, "gated": 1}, "3 pods wait: 2 have no node, 1 is behind gates"),
    ({}, "no pod waits"),
]  # fmt: skip


def waits(name: str, scheduler: str = "default-scheduler", **fields: object) -> Pod:
    """A pod without a node."""
    return Pod("shop", name, "uid", PodClass(), scheduler_name=scheduler, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("numbers", "sentence"), _WORDS)
def test_every_waiting_pod_is_counted_once(numbers: dict[str, int], sentence: str) -> None:
    """The parts are the sum, and the words are those of one pod or of several."""
    states: dict[str, dict[str, Any]] = {
        "gated": {"blocked_reason": "its gates are closed", "gates": ("example.com/x",)},
        "unplannable": {"unsupported_reason": "odd"},
        "deleting": {"deleting": True, "blocked_reason": "it is being deleted"},
    }
    pods = {f"shop/{word}{at}": waits(f"{word}{at}", **states[word])
            for word in states for at in range(numbers.get(word, 0))}  # fmt: skip
    keys: dict[str, Any] = {
        word: [str(at) for at in range(numbers.get(word, 0))] for word in ("placed", "left", "new", "judged")
    }
    counts = count_waiting(pods, unplanned=pods, **keys)
    assert counts.sentence == sentence
    known = msgspec.structs.asdict(counts)
    assert {word: known[word] for word in numbers} == numbers
    assert counts.waiting == sum(numbers.values())


def test_whose_pods_are_counted() -> None:
    """A namespace, a policy, both."""
    assert count_waiting({}, whose=whose("shop")).sentence == "no pod of namespace shop waits"
    assert count_waiting({}, left=["a"], whose=whose("", "p")).sentence.startswith("1 pod of policy p waits: it ")
    assert count_waiting({}, whose=whose("shop", "p")).sentence == "no pod of policy p in namespace shop waits"


@pytest.mark.parametrize(
    ("leavers", "sentence"),
    [
        ([], ""),
        ([(True, True)] * 5 + [(False, True)] * 7, "12 running pods leave: 5 with a new node, 7 without"),
        ([(True, False)] * 5 + [(False, False)] * 7, "12 running pods would leave: 5 with a new node, 7 without"),
        ([(True, True)], "1 running pod leaves, with a new node"),
        ([(False, False)] * 2, "2 running pods would leave, each without a new node"),
        ([(False, True), (True, False)],
         "1 running pod leaves, without a new node; 1 running pod would leave, with a new node"),
    ],
)  # fmt: skip
def test_who_leaves(leavers: list[tuple[bool, bool]], sentence: str) -> None:
    """Who gets a new node, and whether anybody carries it out."""
    assert count_leaving(leavers).sentence == sentence


def test_whose_the_pods_are() -> None:
    """Pods that no policy governs are another scheduler's; those that name ours, or that a policy selects, are not."""
    scenario = Scenario(Cluster())
    ours = waits("ours", "thalweg")
    for pod in (ours, waits("p"), waits("q"), waits("v", "volcano")):
        scenario.cluster.put_pod(pod)
    sentences = {
        (): "",
        ("ours",): "",
        ("p",): "No policy governs this pod: default-scheduler binds it. Thalweg changes nothing.",
        ("p", "q"): "No policy governs these pods: default-scheduler binds them. Thalweg changes nothing.",
        ("p", "v"): "No policy governs these pods: default-scheduler and volcano bind them. Thalweg changes nothing.",
        ("ours", "p"): "No policy governs 1 of these pods: default-scheduler binds it. Thalweg changes nothing for it.",
        ("ours", "p", "q"):
            "No policy governs 2 of these pods: default-scheduler binds them. Thalweg changes nothing for them.",
    }  # fmt: skip
    for names, sentence in sentences.items():
        assert ungoverned_pods(scenario, [f"shop/{name}" for name in names]).sentence == sentence
    scenario.policies = {"all": Policy("all", selects=Selects(()), delivery=Delivery.EXTENDER)}
    assert ungoverned_pods(scenario, ["shop/p"]).pods == 0
    scenario.policies = {OBSERVED.name: OBSERVED}
    assert ungoverned_pods(scenario, ["shop/p"]).schedulers == ["default-scheduler"]


@pytest.mark.parametrize(
    ("number", "at_most", "now", "words"),
    [
        (0, 0, 1, "no plan runs it"),
        (0, 1, 1, "no plan was found that runs it; whether one does is not known"),
        (1, 1, 1, "a plan runs it"),
        (0, 0, 2, "no plan runs any of them"),
        (1, 1, 2, "a plan runs 1 of them; no plan runs more"),
    ],
)
def test_an_audit_speaks_of_one_pod_as_one(number: int, at_most: int, now: int, words: str) -> None:
    """Never "any of them" of a single one."""
    assert plan_words(number, at_most, now, [], "runs") == words
