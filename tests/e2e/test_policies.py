"""FlowSchedulingPolicy: what the API server refuses, what the operator makes of the rest, and what users see."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from support.cluster_scenario import POLICIES, ClusterScenario, policy
from support.older_objects import OLDER_OBJECTS, told_of
from support.operator import until
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.objects import collection_path, object_path

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVERYTHING: dict[str, Any] = {"podSelector": {}}


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """One condition of a policy."""
    return next(each for each in found["status"]["conditions"] if each["type"] == kind)


def counts(governed: int, placed: int, waiting: int) -> Any:
    """A condition on status.pods."""
    wanted = {"governed": governed, "placed": placed, "waiting": waiting}
    return lambda each: each["status"].get("pods") == wanted


def selecting(tier: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"tier": tier}}}


WEB = {"name": "web", "pods": {"matchLabels": {"kind": "web"}}}
AT_MOST = {"pods": {}, "topologyKey": "zone"}
REFUSED = {
    "binder and default-scheduler": (
        {"delivery": "Binder", "selects": {"schedulerNames": ["default-scheduler"]}},
        "two schedulers binding the same pods overcommit nodes",
    ),
    "the default delivery is Binder": (
        {"selects": {"schedulerNames": ["thalweg", "default-scheduler"], "podSelector": {}}},
        "or use delivery Extender or Observe",
    ),
    "binder and thalweg-steered": (
        {"selects": {"schedulerNames": ["thalweg-steered"]}},
        "two schedulers binding the same pods overcommit nodes",
    ),
    "extender and thalweg": (
        {"delivery": "Extender", "selects": {"schedulerNames": ["thalweg", "thalweg-steered"]}},
        "let the pods name thalweg-steered, or use delivery Binder",
    ),
    "steering and nobody to steer": ({"steering": "Prefer"}, "spec.steering: Prefer needs delivery Extender"),
    "gates for a binder": ({"delivery": "Binder", "waiting": "Gate"}, "spec.waiting: Gate needs delivery Extender"),
    "gain by what is measured": (
        {"rescheduling": {"reasons": ["Gain"]}, "cost": {"utilisation": "Larger"}},
        "spec.rescheduling.reasons: Gain needs spec.cost.utilisation Requested",
    ),
    "no margin": ({"rescheduling": {"minGain": 0}}, "spec.rescheduling.minGain"),
    "no time to start": ({"rescheduling": {"price": {"startup": "-5s"}}}, "spec.rescheduling.price.startup"),
    "a day and an hour to start": ({"rescheduling": {"price": {"startup": "25h"}}}, "it is longer than 24h"),
    "gates for an observer": ({"delivery": "Observe", "waiting": "Gate"}, "spec.waiting: Gate needs delivery Extender"),
    "an unknown steering": ({"delivery": "Extender", "steering": "Push"}, 'supported values: "Require", "Prefer"'),
    "an unknown way to wait": ({"delivery": "Extender", "waiting": "Sit"}, 'supported values: "Auto", "Hold", "Gate"'),
    "an unknown delivery": ({"delivery": "Teleport"}, 'supported values: "Observe", "Binder", "Extender"'),
    "a model that cannot be a name": ({"cost": {"model": "not a name"}}, "should match"),
    "no model at all": ({"cost": {"model": ""}}, "should be at least 1 chars long"),
    "a weight out of range": ({"cost": {"weights": {"balance": 101}}}, "less than or equal to 100"),
    "a negative price": ({"unscheduled": {"base": -1}}, "greater than or equal to 0"),
    "In without values": (
        {"selects": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
        "In and NotIn need at least one value",
    ),
    "Exists with values": (
        {"selects": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}},
        "Exists and DoesNotExist take none",
    ),
    "an unknown operator": (
        {"selects": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}},
        'supported values: "In", "NotIn", "Exists", "DoesNotExist"',
    ),
    "a label value too long": (
        {"selects": {"podSelector": {"matchLabels": {"a": "b" * 64}}}},
        "may not be more than 63",
    ),
    "no scheduler names": ({"selects": {"schedulerNames": []}}, "should have at least 1 item"),
    "the same scheduler twice": ({"selects": {"schedulerNames": ["a", "a"]}}, "uplicate"),
    "words for a number": ({"precedence": "very high"}, "must be of type integer"),
    "garbage": ({"selects": "everything"}, "must be of type object"),
    "a constraint that says nothing": (
        {"constraints": [{"name": "c"}]},
        "needs exactly one of conflict, exclusive, together, global",
    ),
    "a constraint that says two things": (
        {"constraints": [{"name": "c", "conflict": AT_MOST, "together": {"pods": {}, "topologyKey": "zone"}}]},
        "needs exactly one of conflict, exclusive, together, global",
    ),
    "two constraints of one name": (
        {"constraints": [{"name": "c", "conflict": AT_MOST}, {"name": "c", "global": {"pods": {}}}]},
        "Duplicate value",
    ),
    "a group alone": (
        {"constraints": [{"name": "c", "exclusive": {"groups": [{}], "topologyKey": "zone"}}]},
        "should have at least 2 items",
    ),
    "In without values in a constraint": (
        {"constraints": [{"name": "c", "global": {"pods": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}]},
        "In and NotIn need at least one value",
    ),
    "constraints and Prefer": (
        {"delivery": "Extender", "steering": "Prefer", "constraints": [{"name": "c", "conflict": AT_MOST}]},
        "spec.steering: constraints need Require",
    ),
    "two kinds of one name": ({"cost": {"kinds": [WEB, WEB]}}, "Duplicate value"),
    "a kind without pods": ({"cost": {"kinds": [{"name": "web"}]}}, "spec.cost.kinds[0].pods: Required value"),
    "a penalty below 0": ({"cost": {"interference": {"default": -1}}}, "greater than or equal to 0"),
    "a slowdown in words": (
        {"cost": {"machines": {"label": "gen", "slowdowns": [{"kind": "web", "machine": "old", "slowdown": "twice"}]}}},
        "should match",
    ),
    "no duration": ({"gangs": {"timeout": "soon"}}, "should match"),
    "an unknown end of a gang": ({"gangs": {"onPartialBind": "Shrug"}}, 'supported values: "Replan", "Evict"'),
}


@pytest.mark.parametrize("mistake", sorted(REFUSED))
async def test_refused(plane: tuple[ControlPlane, Api], mistake: str) -> None:
    """The API server refuses the mistake itself, in words that help, and nothing is stored."""
    _, api = plane
    spec, words = REFUSED[mistake]
    with pytest.raises(ApiError) as caught:
        await api.create(policy("wrong", **spec))
    assert caught.value.status == 422
    assert words in str(caught.value)
    assert await api.list(POLICIES) == []


TAKEN: dict[str, dict[str, Any]] = {
    "said in full": {
        "delivery": "Extender",
        "steering": "Prefer",
        "waiting": "Gate",
        "selects": {"schedulerNames": ["thalweg-steered", "default-scheduler"]},
    },
    "defaults said": {"delivery": "Binder", "steering": "Require", "waiting": "Auto"},
    "every construct": {
        "gangs": {
            "timeout": "1h30m",
            "holdRoomAfter": "0s",
            "holdRoomFor": "5m",
            "holdRoomShare": 50,
            "onPartialBind": "Evict",
            "waiting": "Hold",
            "controllers": ["IndexedJob", "RayCluster"],
            "podsToCome": "MustFit",
            "parents": [{"apiVersion": "example.com/v1", "kind": "Task", "plural": "tasks", "size": ["spec.n"]}],
        },
        "replaces": {"victims": "Governed"},
        "constraints": [
            {"name": "none-at-all", "conflict": {**AT_MOST, "maxPerDomain": 0}},
            {
                "name": "xor",
                "exclusive": {"groups": [{}, {}], "topologyKey": "zone", "maxPerDomain": 2, "maxPlaced": 5},
            },
            {"name": "pair", "together": AT_MOST},
            {"name": "agent", "global": {"pods": {}, "nodes": {"matchLabels": {"gpu": "yes"}}, "require": "AllOrNone"}},
        ],
    },
    "observing all schedulers": {
        "delivery": "Observe",
        "selects": {"schedulerNames": ["thalweg", "thalweg-steered", "default-scheduler"]},
    },
}


@pytest.mark.parametrize("words", sorted(TAKEN))
async def test_taken(plane: tuple[ControlPlane, Api], words: str) -> None:
    """What the rules allow is stored as it was said, the defaults of the rest beside it."""
    made = await plane[1].create(policy("right", **TAKEN[words]))
    try:
        assert {key: made["spec"][key] for key in TAKEN[words]} == TAKEN[words]
        assert made["spec"].keys() >= {"steering", "waiting", "delivery"}
    finally:
        await plane[1].delete(f"{POLICIES}/right")


async def test_objects_of_an_older_version(scene: ClusterScenario) -> None:
    """They are valid as they are stored, a condition names each field that left, and their pods get nodes."""
    await scene.nodes("n")
    for each in OLDER_OBJECTS:
        await scene.api.request("POST", collection_path(each), each, params={"fieldValidation": "Strict"})
    for name in ("has-all", "has-none"):
        found = await scene.policy_seen(name)
        assert condition(found, "Accepted")["status"] == "True"
        said = [each["message"] for each in found["status"]["conditions"] if each["type"] == "UpToDate"]
        assert said == ([f"{'; '.join(told_of(name))}."] if told_of(name) else [])
        await scene.create(name, labels={"tier": name})
    await scene.nodes_of("has-all", "has-none")
    for each in OLDER_OBJECTS:
        await scene.api.delete(object_path(each))


async def test_a_spec_is_needed(plane: tuple[ControlPlane, Api]) -> None:
    """A policy without any spec is refused."""
    bare = policy("bare")
    del bare["spec"]
    with pytest.raises(ApiError, match="spec: Required value"):
        await plane[1].create(bare)


async def test_status_tells_what_the_policy_does(scene: ClusterScenario) -> None:
    """Conditions of the observed generation, the pods it governs, and its last round."""
    await scene.nodes("a", cpu="1")
    await scene.policy("batch", selects=selecting("batch"))
    labels = {"tier": "batch"}
    await scene.api.create_many([scene.pod(f"p{number}", "300m", labels=labels) for number in range(4)])
    await scene.create("other")
    found = await scene.policy_seen("batch", 1, counts(4, 3, 1))
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 1
    for kind, reason in (("Accepted", "Valid"), ("Ready", "InForce")):
        each = condition(found, kind)
        assert (each["status"], each["reason"], each["observedGeneration"]) == ("True", reason, 1)
        assert each["lastTransitionTime"]
    found = await scene.policy_seen("batch", 1, lambda each: each["status"].get("lastRound", {}).get("waiting") == 1)
    last = found["status"]["lastRound"]
    assert last["number"] > 0
    assert last["cost"] > 0, "a pod that waits costs something"
    assert last["finished"] >= found["metadata"]["creationTimestamp"]
    # What is deleted is no longer counted.
    await scene.delete("p0", "p1", "p2", "p3")
    await scene.policy_seen("batch", 1, counts(0, 0, 0))


async def test_constraints_hold_and_contradictions_are_told(scene: ClusterScenario) -> None:
    """Across owners, for pods that come later too; what contradicts itself waits and is told in pod and policy."""
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        await scene.nodes(name, labels={"zone": zone})
    batch, cap = {"tier": "batch"}, {"pods": {"matchLabels": {"tier": "batch"}}, "maxPerDomain": 2}
    await scene.policy(
        "batch",
        selects=selecting("batch"),
        constraints=[
            {"name": "az", "conflict": {**cap, "topologyKey": "zone"}},
            {"name": "never", "conflict": {"pods": {"matchLabels": {"odd": "yes"}}, "topologyKey": "rack"}},
        ],
    )
    await scene.api.create_many([scene.pod(f"p{number}", labels={**batch, "own": f"{number}"}) for number in range(5)])
    await scene.create("odd", labels={**batch, "odd": "yes"})
    found = await scene.policy_seen("batch", 1, counts(6, 4, 2))
    where = Counter(each["spec"].get("nodeName", "")[:1] for each in await scene.pods())
    assert where == {"a": 2, "b": 2, "": 2}
    (left,) = [
        each for each in await scene.pods() if not each["spec"].get("nodeName") and each["metadata"]["name"] != "odd"
    ]
    name = left["metadata"]["name"]
    await scene.reason_of(name, "3 node(s) are full by constraint az of policy batch (at most 2 per zone)")
    sentence = "constraint never of policy batch names rack, a label that no node has"
    await scene.reason_of("odd", f"3 node(s) are ruled out by a contradiction: {sentence}")
    found = await scene.policy_seen("batch", 1, lambda each: condition(each, "Consistent")["status"] == "False")
    assert condition(found, "Consistent")["message"] == f"The pods concerned wait: {sentence}."
    gone = next(each["metadata"]["name"] for each in await scene.pods() if each["spec"].get("nodeName"))
    await scene.delete(gone)
    await scene.node_of(name)
    await scene.policy("batch", selects=selecting("batch"), constraints=[])
    await scene.node_of("odd")
    found = await scene.policy_seen("batch", 2)
    assert condition(found, "Consistent")["message"] == "The policy rules no waiting pod out."


async def test_pods_keep_away_from_those_that_hurt_them(scene: ClusterScenario) -> None:
    """A pair without a penalty is told by name. With all penalties pods share no node with what hurts them."""
    await scene.nodes("a", "b", labels={"gen": "old"})
    cost = {"kinds": [WEB, {"name": "noisy", "pods": {"matchLabels": {"kind": "noisy"}}}]}
    await scene.policy("quiet", selects=EVERYTHING, cost={**cost, "interference": {}})
    found = await scene.policy_seen("quiet", 1)
    message = condition(found, "Accepted")["message"]
    assert 'no penalty for "web" beside "web"; give it, or set spec.cost.interference.default' in message
    penalties = [{"kind": "web", "beside": "noisy", "penalty": 3000}]
    await scene.policy(
        "quiet", selects=EVERYTHING, cost={**cost, "interference": {"default": 0, "penalties": penalties}}
    )
    await scene.policy_seen("quiet", 2, lambda each: condition(each, "Accepted")["status"] == "True")
    await scene.create("noise", labels={"kind": "noisy"})
    taken = await scene.node_of("noise")
    await scene.api.create_many([scene.pod(f"web{at}", "500m", labels={"kind": "web"}) for at in range(4)])
    assert taken not in {await scene.node_of(f"web{at}") for at in range(4)}
    await scene.create("late", labels={"kind": "noisy"})
    assert await scene.node_of("late") == taken


async def test_status_is_quiet_when_nothing_happens(scene: ClusterScenario) -> None:
    """A status that is as it should be is not written again, round after round."""
    await scene.nodes("a")
    await scene.policy("quiet", selects=selecting("nobody"))
    before = await scene.policy_seen("quiet", 1, counts(0, 0, 0))
    rounds = _rounds(await scene.operator.metrics())
    for number in range(3):
        await scene.wait_for_round(f"p{number}")
    await scene.policy("later", selects=selecting("nobody"))  # the status writer came by meanwhile
    assert _rounds(await scene.operator.metrics()) > rounds
    assert await scene.api.get(f"{POLICIES}/quiet") == before


def _rounds(metrics: dict[str, float]) -> float:
    return sum(value for name, value in metrics.items() if name.startswith("thalweg_rounds_total"))


async def test_printer_columns(scene: ClusterScenario) -> None:
    """`kubectl get fsp` shows name, delivery, model, counts, conditions and age.

    A policy that governs nothing and one that contradicts itself are seen there at once.
    """
    await scene.nodes("a")
    await scene.policy("shown", selects=EVERYTHING, delivery="Binder")
    await scene.create("one")
    await scene.policy_seen("shown", 1, counts(1, 1, 0))
    await scene.policy("empty")
    none_at_all = {"pods": {}, "topologyKey": "zone", "maxPerDomain": 0}
    await scene.policy("never", selects=selecting("none"), constraints=[{"name": "az", "conflict": none_at_all}])
    session, api = scene.api._session, scene.api
    assert session is not None
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    async with session.get(api.url + POLICIES, headers=accept) as answer:
        table = await answer.json()
    names = [column["name"] for column in table["columnDefinitions"]]
    counted = ["Name", "Delivery", "Model", "Governed", "Placed", "Waiting"]
    assert names == [*counted, "Accepted", "Ready", "Reason", "Consistent", "Proposed", "Age"]
    cells = {row["cells"][0]: row["cells"][1:-2] for row in table["rows"]}
    assert cells == {
        "shown": ["Binder", "CPUMemory", 1, 1, 0, "True", "True", "InForce", None],
        "empty": ["Binder", "CPUMemory", 0, 0, 0, "True", "False", "SelectsNothing", None],
        "never": ["Binder", "CPUMemory", 0, 0, 0, "True", "True", "InForce", "False"],
    }


async def test_short_name_and_category(scene: ClusterScenario) -> None:
    """`kubectl get fsp` and `kubectl get thalweg` find it."""
    served = await scene.api.get("/apis/scheduling.thalweg/v1alpha1")
    (kind,) = [each for each in served["resources"] if each["name"] == "flowschedulingpolicies"]
    assert (kind["shortNames"], kind["categories"], kind["namespaced"]) == (["fsp"], ["thalweg"], False)


async def test_observe_never_acts(scene: ClusterScenario) -> None:
    """Its pods are planned and counted and get an Event of the plan; nothing else of them is touched.

    Turned to Binder, they are bound.
    """
    await scene.nodes("a", cpu="1")
    await scene.policy("watching", selects=selecting("watched"), delivery="Observe")
    made = await scene.create("seen", labels={"tier": "watched"})
    scene.ignored_reasons.add("seen")
    await scene.create("too-big", "4", labels={"tier": "watched"})
    scene.ignored_reasons.add("too-big")
    await scene.wait_for_round("barrier")
    found = await scene.policy_seen("watching", 1, lambda each: "lastRound" in each["status"])
    assert (found["status"]["lastRound"]["placed"], found["status"]["lastRound"]["waiting"]) == (1, 1)
    assert found["status"]["pods"] == {"governed": 2, "placed": 0, "waiting": 2}
    await until(lambda: scene.events_of("seen"), 30, lambda: "the Event of the plan")
    await until(lambda: scene.events_of("too-big"), 30, lambda: "the Event of the plan")
    (placed,), (left,) = await scene.events_of("seen"), await scene.events_of("too-big")
    assert (placed["type"], placed["reason"], placed["action"]) == ("Normal", "Observed", "Planning")
    assert placed["message"] == "Thalweg would place this pod on a"
    assert left["message"].startswith("Thalweg would leave this pod pending: 0/1 nodes are available")
    assert await scene.get("seen") == made
    await scene.policy("watching", selects=selecting("watched"), delivery="Binder")
    assert await scene.node_of("seen") == "a"
    await scene.reason_of("too-big", "Insufficient cpu")
    scene.ignored_reasons.clear()
    found = await scene.policy_seen("watching", 2, counts(2, 1, 1))
    assert condition(found, "Accepted")["observedGeneration"] == 2


async def test_observed_pods_take_no_room(scene: ClusterScenario) -> None:
    """What is only observed holds nothing that others could use."""
    await scene.nodes("a", cpu="1")
    await scene.policy("watching", selects=selecting("watched"), delivery="Observe", precedence=5)
    await scene.create("dreaming", "1", labels={"tier": "watched"})
    scene.ignored_reasons.add("dreaming")
    await scene.create("real", "1")
    assert await scene.node_of("real") == "a"


async def test_observing_another_scheduler(scene: ClusterScenario) -> None:
    """A policy may observe the pods of any scheduler; they are left to it."""
    await scene.nodes("a")
    await scene.policy("curious", selects={"schedulerNames": ["somebody-else"]}, delivery="Observe")
    made = await scene.create("theirs", scheduler="somebody-else")
    await scene.policy_seen("curious", 1, counts(1, 0, 1))
    await scene.policy_seen("curious", 1, lambda each: each["status"].get("lastRound", {}).get("placed") == 1)
    assert await scene.get("theirs") == made


async def test_binding_for_another_scheduler_name(scene: ClusterScenario) -> None:
    """Pods that name a scheduler of their own are bound once a Binder policy selects that name."""
    await scene.nodes("a")
    await scene.create("nightly", scheduler="night-shift")
    await scene.policy("night", selects={"schedulerNames": ["night-shift"]})
    assert await scene.node_of("nightly") == "a"


async def test_namespace_selector(scene: ClusterScenario) -> None:
    """A namespace's labels decide, and a label that is set later does as well."""
    await scene.nodes("a")
    await scene.policy("team", selects={"namespaceSelector": {"matchLabels": {"team": "ml"}}}, delivery="Observe")
    path = f"/api/v1/namespaces/{scene.namespace}"
    await scene.api.patch(path, {"metadata": {"labels": {"team": "ml"}}})
    await scene.policy_seen("team", 1, counts(0, 0, 0))
    await scene.create("barrier-of-the-label", scheduler="nobody")
    other = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": scene.namespace + "-ml", "labels": {"team": "ml"}},
    }
    await scene.api.create(other)
    pods = [scene.pod(f"p{number}") for number in range(20)]
    for each in pods:
        each["metadata"]["namespace"] = scene.namespace + "-ml"
    await scene.api.create_many(pods)
    await scene.policy_seen("team", 1, counts(20, 0, 20))
    found = await scene.api.list(f"/api/v1/namespaces/{scene.namespace}-ml/pods")
    assert not [each for each in found if each["spec"].get("nodeName")]
    await scene.api.patch(f"{path}-ml", {"metadata": {"labels": {"team": None}}})
    await scene.policy_seen("team", 1, counts(0, 0, 0))
    await scene.api.wait_for(
        f"/api/v1/namespaces/{scene.namespace}-ml/pods",
        lambda page: all(each["spec"].get("nodeName") for each in page["items"]),
    )


async def test_a_pod_is_governed_in_a_namespace_as_new_as_itself(scene: ClusterScenario) -> None:
    """A pod that comes with its namespace is never taken for one of a namespace without labels."""
    await scene.nodes("a", cpu="64", pods=1000)
    await scene.policy("new", selects={"namespaceSelector": {"matchLabels": {"kept": "back"}}}, delivery="Observe")
    for number in range(20):
        name = f"{scene.namespace}-{number}"
        await scene.api.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"kept": "back"}}}
        )
        each = scene.pod("held")
        each["metadata"]["namespace"] = name
        await scene.api.create(each)
    await scene.policy_seen("new", 1, counts(20, 0, 20))
    await scene.wait_for_round("barrier")
    assert not [
        p for p in await scene.api.list("/api/v1/pods") if p["metadata"]["name"] == "held" and p["spec"].get("nodeName")
    ]


async def test_precedence_and_who_lost(scene: ClusterScenario) -> None:
    """The higher precedence governs, among equals the first name; the loser's status names the winner."""
    await scene.nodes("a")
    await scene.policy("low", precedence=1, selects=EVERYTHING)
    await scene.policy("high", precedence=2, selects=selecting("batch"))
    await scene.create("batch", labels={"tier": "batch"})
    await scene.create("web", labels={"tier": "web"})
    await scene.policy_seen("high", 1, counts(1, 1, 0))
    found = await scene.policy_seen("low", 1, counts(1, 1, 0))
    assert "1 of the pods it selects" in condition(found, "Ready")["message"]
    assert "high" in condition(found, "Ready")["message"]
    # Raised to the same precedence, "high" still comes first by name; above it, "low" takes all.
    await scene.policy("low", precedence=2, selects=EVERYTHING)
    await scene.policy_seen("low", 2, counts(1, 1, 0))
    await scene.policy("low", precedence=3, selects=EVERYTHING)
    await scene.policy_seen("low", 3, counts(2, 2, 0))
    found = await scene.policy_seen("high", 1, counts(0, 0, 0))
    assert "such as low" in condition(found, "Ready")["message"]


async def test_a_deleted_policy_governs_no_longer(scene: ClusterScenario) -> None:
    """Pods that only it kept waiting fall to the built-in default and are bound; deleting is not held up."""
    await scene.nodes("a")
    await scene.policy("holding", selects=EVERYTHING, delivery="Observe")
    await scene.create("held")
    await scene.policy_seen("holding", 1, counts(1, 0, 1))
    await scene.api.delete(f"{POLICIES}/holding")
    assert await scene.node_of("held") == "a"
    assert await scene.api.list(POLICIES) == []


async def test_a_policy_that_is_deleted_and_made_again(scene: ClusterScenario) -> None:
    """The new object's version counts, whatever generation the old one had reached."""
    await scene.nodes("a")
    for precedence in range(4):
        await scene.policy("again", precedence=precedence, selects=selecting("x"))
    await scene.api.delete(f"{POLICIES}/again")
    await scene.policy("again", selects=EVERYTHING, delivery="Observe")
    await scene.create("held")
    scene.ignored_reasons.add("held")
    found = await scene.policy_seen("again", 1, counts(1, 0, 1))
    assert found["status"]["observedGeneration"] == 1
    assert "nodeName" not in (await scene.get("held"))["spec"]
    # A round of the second object is not told as the third's.
    await scene.policy_seen("again", 1, lambda each: "lastRound" in each["status"])
    await scene.api.delete(f"{POLICIES}/again")
    await scene.policy("again", selects=selecting("nobody"))
    await scene.node_of("held")
    scene.ignored_reasons.clear()
    assert "lastRound" not in (await scene.policy_seen("again", 1, counts(0, 0, 0)))["status"]


async def test_empty_selects_governs_nothing(scene: ClusterScenario) -> None:
    """And its status says so, however it is left empty."""
    await scene.nodes("a")
    await scene.policy("empty", delivery="Observe", precedence=9)
    await scene.policy("emptier", delivery="Observe", precedence=9, selects={})
    await scene.create("free")
    assert await scene.node_of("free") == "a"
    for name in ("empty", "emptier"):
        found = await scene.policy_seen(name, 1, counts(0, 0, 0))
        ready = condition(found, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "SelectsNothing")


#: Passes the schema; only the operator can tell.
BAD_LABEL = {"podSelector": {"matchLabels": {"a": "not a label value"}}}


async def test_a_wrong_version_leaves_the_last_good_one_in_force(scene: ClusterScenario) -> None:
    """Accepted=False says what is wrong, the version before governs on, and other policies notice nothing."""
    await scene.nodes("a")
    await scene.policy("bystander", selects=selecting("other"))
    before = await scene.policy_seen("bystander", 1, counts(0, 0, 0))
    await scene.policy("edited", selects=selecting("mine"), delivery="Observe")
    await scene.create("first", labels={"tier": "mine"})
    scene.ignored_reasons.add("first")
    await scene.policy_seen("edited", 1, counts(1, 0, 1))
    wrong = policy("edited", selects=BAD_LABEL, delivery="Observe")
    await scene.api.apply(wrong)
    found = await scene.policy_seen("edited", 2)
    accepted, ready = condition(found, "Accepted"), condition(found, "Ready")
    assert (accepted["status"], accepted["reason"], accepted["observedGeneration"]) == ("False", "Invalid", 2)
    assert accepted["message"] == 'spec.selects.podSelector.matchLabels.a: "not a label value" is not a label value'
    assert (ready["status"], ready["reason"]) == ("True", "LastGoodInForce")
    assert "Generation 1" in ready["message"]
    await scene.create("second", labels={"tier": "mine"})
    scene.ignored_reasons.add("second")
    await scene.policy_seen("edited", 2, counts(2, 0, 2))
    await scene.wait_for_round("barrier")
    assert "nodeName" not in (await scene.get("second"))["spec"]
    assert await scene.api.get(f"{POLICIES}/bystander") == before
    # Mended, it is in force again.
    found = await scene.policy("edited", selects=selecting("mine"), delivery="Binder")
    assert condition(found, "Accepted")["status"] == "True"
    await scene.nodes_of("first", "second")


async def test_a_policy_that_was_never_right(scene: ClusterScenario) -> None:
    """It governs nothing and says so; its pods go on by the built-in default."""
    await scene.nodes("a")
    found = await scene.policy("wrong", selects={"namespaceSelector": {"matchExpressions": [
        {"key": "no/such/key", "operator": "Exists"}]}}, delivery="Observe")  # fmt: skip
    assert condition(found, "Accepted")["message"] == (
        'spec.selects.namespaceSelector.matchExpressions[0].key: "no/such/key" is not a label key'
    )
    assert condition(found, "Ready")["reason"] == "NeverAccepted"
    await scene.create("free")
    assert await scene.node_of("free") == "a"
    assert found["status"]["pods"] == {"governed": 0, "placed": 0, "waiting": 0}


async def test_an_unknown_model(scene: ClusterScenario) -> None:
    """Plug-ins may add models, so the API server cannot know: the operator answers, and names those that there are."""
    found = await scene.policy("starry", selects=selecting("starry"), cost={"model": "Astrology"})
    accepted = condition(found, "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "Invalid")
    assert accepted["message"] == (
        'spec.cost.model: "Astrology" is not one of CPUMemory, LoadSpreading, BinPacking, NetworkAware'
    )
    found = await scene.policy("starry", selects=selecting("starry"), cost={"model": "BinPacking"})
    assert condition(found, "Accepted")["status"] == "True"


async def test_events_about_a_policy(scene: ClusterScenario) -> None:
    """A condition that becomes false is a Warning, one that is true again a normal Event; an unchanged one is none."""
    events: dict[str, tuple[str, str]] = {}

    async def told(*reasons: str) -> None:
        async def written() -> bool:
            for event in await scene.api.list(
                "/api/v1/namespaces/default/events", fieldSelector="involvedObject.name=told"
            ):
                events[event["reason"]] = event["type"], event["message"]
            return events.keys() >= set(reasons)

        await until(written, 30, lambda: f"Events {reasons}; there are {events}")

    await scene.policy("told", selects=selecting("told"), cost={"model": "Astrology"})
    await told("Invalid", "NeverAccepted")
    kind, message = events["Invalid"]
    assert kind == "Warning"
    assert message.startswith('Condition Accepted is False: spec.cost.model: "Astrology" is not one of CPUMemory, ')
    await scene.policy("told", selects=selecting("told"), cost={"model": "BinPacking"})
    await told("Valid", "InForce")
    assert events["InForce"] == ("Normal", "Condition Ready is True: In force.")
    assert events.keys() == {"Invalid", "NeverAccepted", "Valid", "InForce"}


async def test_another_model(scene: ClusterScenario) -> None:
    """Bin packing goes where pods are already, however many may go elsewhere."""
    await scene.nodes("empty-a", "empty-z", cpu="8", memory="8Gi")
    await scene.nodes("busy", cpu="8", memory="8Gi", labels={"liked": "yes"})
    await scene.create("ballast", "4", memory="4Gi", nodeSelector={"liked": "yes"})
    await scene.node_of("ballast")
    await scene.policy("packed", selects=selecting("packed"), cost={"model": "BinPacking"})
    for number in range(3):
        await scene.create(f"packed-{number}", "1", memory="1Gi", labels={"tier": "packed"})
        assert await scene.node_of(f"packed-{number}") == "busy"


async def test_weights_are_heeded(scene: ClusterScenario) -> None:
    """With leastRequested the emptier node wins; edited so that only the preference counts, the preferred one does."""
    await scene.nodes("empty", cpu="8", memory="8Gi")
    await scene.nodes("busy", cpu="8", memory="8Gi", labels={"liked": "yes"})
    await scene.create("ballast", "4", memory="4Gi", nodeSelector={"liked": "yes"})
    await scene.node_of("ballast")
    term = {"matchExpressions": [{"key": "liked", "operator": "Exists"}]}
    likes = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}}
    labels = {"tier": "weighed"}
    only = {"leastRequested": 1, "balance": 0, "nodePreference": 0, "taintPreference": 0}
    await scene.policy("weighed", selects=selecting("weighed"), cost={"weights": only})
    await scene.create("first", affinity=likes, labels=labels)
    assert await scene.node_of("first") == "empty"
    await scene.policy(
        "weighed", selects=selecting("weighed"), cost={"weights": {**only, "leastRequested": 0, "nodePreference": 1}}
    )
    await scene.create("second", affinity=likes, labels=labels)
    assert await scene.node_of("second") == "busy"


async def test_unscheduled_prices_decide_who_waits(scene: ClusterScenario) -> None:
    """Where room is for one of two, the pods of the policy that pays more for waiting go first."""
    await scene.nodes("only", cpu="1")
    await scene.policy("cheap", selects=selecting("cheap"), unscheduled={"base": 50000}, delivery="Observe")
    await scene.policy("dear", selects=selecting("dear"), unscheduled={"base": 5000000})
    await scene.api.create_many([scene.pod(f"cheap-{number}", "1", labels={"tier": "cheap"}) for number in range(3)])
    await scene.policy_seen("cheap", 1, counts(3, 0, 3))
    # Both kinds become placeable in one round: the node is full until then.
    await scene.api.patch("/api/v1/nodes/only", {"spec": {"unschedulable": True}})
    await scene.policy("cheap", selects=selecting("cheap"), unscheduled={"base": 50000})
    await scene.create("dear", "1", labels={"tier": "dear"})
    await scene.reason_of("dear", "unschedulable")
    await scene.reason_of("cheap-0", "unschedulable")
    await scene.api.patch("/api/v1/nodes/only", {"spec": {"unschedulable": None}})
    assert await scene.node_of("dear") == "only"


async def test_many_policies(scene: ClusterScenario) -> None:
    """Thirty policies, each governing its own pods."""
    await scene.nodes("a", "b", cpu="16")
    await scene.api.create_many([policy(f"p{number}", selects=selecting(f"t{number}")) for number in range(30)])
    await scene.api.create_many([scene.pod(f"pod-{number}", labels={"tier": f"t{number}"}) for number in range(30)])
    for number in range(30):
        await scene.policy_seen(f"p{number}", 1, counts(1, 1, 0))


async def test_status_of_a_policy_whose_status_was_wiped(scene: ClusterScenario) -> None:
    """Another writer's status is put right with the next change at the latest."""
    await scene.nodes("a")
    await scene.policy("wiped", selects=EVERYTHING)
    await scene.policy_seen("wiped", 1, counts(0, 0, 0))
    await scene.api.patch(f"{POLICIES}/wiped/status", {"status": {"pods": {"governed": 77}}})
    await scene.create("one")
    await scene.policy_seen("wiped", 1, counts(1, 1, 0))


async def test_no_finalizers_and_no_annotations(scene: ClusterScenario) -> None:
    """The operator writes nothing but status, so that an uninstall never hangs."""
    await scene.policy("plain", selects=EVERYTHING)
    found = await scene.policy_seen("plain", 1, counts(0, 0, 0))
    assert "finalizers" not in found["metadata"]
    assert "annotations" not in found["metadata"]

    async def gone() -> bool:
        return not await scene.api.list(POLICIES)

    await scene.api.delete(f"{POLICIES}/plain")
    await until(gone, 60, lambda: "the policy to be gone")


async def test_bandwidth_asked_for_and_measured(scene: ClusterScenario) -> None:
    """Two nodes with a network and its measure: the idle one gets the pod, then the one that is idle by then."""
    network = "networking.thalweg/bandwidth"
    await scene.nodes("net-a", "net-b", cpu="8", memory="8Gi", extended={network: "10G"})
    await scene.policy("networked", selects=selecting("networked"), cost={"model": "NetworkAware"})
    for number, (idle, busy) in enumerate((("net-a", "net-b"), ("net-b", "net-a"))):
        for name, measured in ((idle, "100M"), (busy, "9G")):
            annotation = {"metadata": {"annotations": {"networking.thalweg/measured-bandwidth": measured}}}
            await scene.api.patch(f"/api/v1/nodes/{name}", annotation)
        await asyncio.sleep(1)  # a report starts no round: nothing tells when it is known
        await scene.create(f"sender-{number}", extended={network: "500M"}, labels={"tier": "networked"})
        assert await scene.node_of(f"sender-{number}") == idle
    await scene.create("greedy", extended={network: "20G"}, labels={"tier": "networked"})
    await scene.reason_of("greedy", f"2 Insufficient {network}")


async def test_pods_wait_for_their_data_and_go_elsewhere_when_that_is_cheaper(scene: ClusterScenario) -> None:
    """One waits until its data's node can be used; the price of the other grows, and it goes without any change."""
    await scene.nodes("near", "far")
    await scene.api.patch("/api/v1/nodes/near", {"spec": {"unschedulable": True}})
    cost = {"dataLocality": {"pricePerGiB": {"node": 20000}}}
    for tier, growth in (("patient", 0), ("hasty", 4000)):
        price = {"waitForCheaperNode": True, "base": 5000, "perWaitingSecond": growth}
        found = await scene.policy(tier, selects=selecting(tier), cost=cost, unscheduled=price)
        locality = found["spec"]["cost"]["dataLocality"]
        assert locality["pricePerGiB"] == {"node": 20000, "rack": 20, "zone": 100, "image": 0}
        assert locality["rackLabel"] == "topology.kubernetes.io/rack"
        manifest = scene.pod(tier, labels={"tier": tier})
        annotations = {"scheduling.thalweg/data": '[{"node": "near", "bytes": "1Gi"}]'}
        manifest["metadata"]["annotations"] = manifest["metadata"].get("annotations", {}) | annotations
        await scene.api.create_many([manifest])
    assert await scene.node_of("hasty") == "far"
    await scene.reason_of("patient", "far, the cheapest node with room for it", "It waits for a cheaper node.")
    await scene.api.patch("/api/v1/nodes/near", {"spec": {"unschedulable": None}})
    assert await scene.node_of("patient") == "near"
