"""What a policy may say, and what is refused, with the field."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from flowcore.api.policies import parse_policy
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.constraints import Conflict, Exclusive, Global, OneDomain
from flowcore.model.errors import PolicyError
from flowcore.model.policies import (
    AllowedVictims,
    Delivery,
    GangPolicy,
    PartialBind,
    Policy,
    Selects,
    Steering,
    WaitingMode,
)
from flowcore.model.selectors import LabelSelector, Requirement

CONFLICT: dict[str, Any] = {"conflict": {"pods": {}, "topologyKey": "zone"}}
TOGETHER: dict[str, Any] = {"together": {"pods": {}, "topologyKey": "zone"}}
KIND: dict[str, Any] = {"name": "web", "pods": {}}
PENALTY: dict[str, Any] = {"kind": "web", "beside": "web", "penalty": 1}


def slowdowns(*values: str) -> dict[str, Any]:
    return {"label": "gen", "slowdowns": [{"kind": "web", "machine": "new", "slowdown": each} for each in values]}


def arc(to: str = "Nodes", **fields: Any) -> dict[str, Any]:
    return {"from": {"podSelector": {}}, "to": to, **fields}


def aggregator(name: str, to: str = "Nodes") -> dict[str, Any]:
    return {"name": name, "arcs": [{"to": to}]}


def gaining(name: str, to: str) -> dict[str, Any]:
    return {"name": name, "arcs": [{"to": to, "gain": 10_000}]}


def parsed(spec: dict[str, Any]) -> Policy:
    return parse_policy("p", spec, BUILT_IN_MODELS)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"precedence": "high"}, "spec.precedence"),
        ({"delivery": "Teleport"}, "spec.delivery"),
        ({"cost": {"model": "Astrology"}}, "spec.cost.model"),
        ({"cost": {"weights": {"balance": "much"}}}, "spec.cost.weights.balance"),
        ({"cost": {"kinds": [{"name": "", "pods": {}}]}}, "spec.cost.kinds[0].name: every kind has a name"),
        ({"cost": {"kinds": [KIND, KIND]}}, 'spec.cost.kinds[1].name: "web" is the name of another kind'),
        (
            {"cost": {"kinds": [KIND], "interference": {}}},
            'spec.cost.interference.penalties: no penalty for "web" beside "web"; give it, or set',
        ),
        ({"network": {"arcs": []}}, "spec.network.arcs: no arc begins at waiting pods"),
        ({"network": {"arcs": [{"to": "Nodes"}]}}, "spec.network.arcs[0]: Object missing required field `from`"),
        ({"network": {"arcs": [arc("A b")]}}, 'spec.network.arcs[0].to: "A b" is neither Nodes, Unscheduled, an'),
        ({"network": {"arcs": [arc(minimum=3, maximum=2)]}}, "spec.network.arcs[0].minimum: 3 is above the maximum"),
        ({"network": {"arcs": [arc(maximum=-1)]}}, "spec.network.arcs[0].maximum: Expected `int` >= 0"),
        ({"network": {"arcs": [arc(gain=0)]}}, "spec.network.arcs[0].gain: 0 is not above 0"),
        ({"network": {"arcs": [arc(gain="1/0")]}}, 'spec.network.arcs[0].gain: "1/0" is neither a whole number nor'),
        ({"network": {"arcs": [arc(gain="1e999999999")]}}, 'spec.network.arcs[0].gain: "1e999999999" is neither'),
        ({"network": {"arcs": [arc("nodes")]}}, 'spec.network.arcs[0].to: "nodes" is neither Nodes, Unscheduled, an'),
        ({"network": {"arcs": [arc("Unscheduled", maximum=1)]}}, "spec.network.arcs[0]: any number of pods may wait"),
        (
            {"delivery": "Extender", "steering": "Prefer", "network": {"arcs": [arc()]}},
            "spec.steering: a network needs",
        ),
        (
            {"network": {"arcs": [arc()], "aggregators": [aggregator("a")]}},
            "spec.network.aggregators[0].name: no arc leads to a",
        ),
        (
            {"network": {"arcs": [arc("a", gain=1000)], "aggregators": [gaining("a", "Nodes")]}},
            "spec.network.arcs[0].gain: gains make more than 1000000 units of one",
        ),
        ({"network": {"arcs": [arc(cost=10**12)]}}, "spec.network.arcs[0].cost: Expected `int` <= 1000000000"),
        ({"network": {"arcs": [arc(cost={"of": "Luck"})]}}, "spec.network.arcs[0].cost.of: Invalid enum value 'Luck'"),
        ({"network": {"arcs": [arc(cost=[])]}}, "spec.network.arcs[0].cost: has 0 segments"),
        ({"network": {"arcs": [arc(cost=[{"each": 9}, {"each": 5}])]}}, "spec.network.arcs[0].cost[0].upTo: only the"),
        (
            {"network": {"arcs": [arc(cost=[{"upTo": 2, "each": 9}, {"each": 5}])]}},
            "spec.network.arcs[0].cost[1].each: 5 is below the 9 of the segment before",
        ),
        ({"network": {"arcs": [arc(wholeOrNone=True)]}}, "spec.network.arcs[0].wholeOrNone: needs a minimum"),
        (
            {"network": {"arcs": [arc("a", cost={"of": "Model"})], "aggregators": [aggregator("a")]}},
            "spec.network.arcs[0].cost.of: Model is a cost of nodes; this arc leads to a",
        ),
        (
            {"network": {"arcs": [arc()], "aggregators": [aggregator("a"), aggregator("a")]}},
            'spec.network.aggregators[1].name: "a" is the name of another aggregator',
        ),
        (
            {"network": {"arcs": [arc()], "aggregators": [aggregator("Nodes")]}},
            'spec.network.aggregators[0].name: "Nodes" is no name',
        ),
        (
            {"network": {"arcs": [arc()], "aggregators": [aggregator("a", "b"), aggregator("b", "a")]}},
            "spec.network.aggregators: form a cycle, in which flow could turn without a pod: a -> b -> a",
        ),
        (
            {"network": {"arcs": [arc()], "aggregators": [aggregator(f"a{at}") for at in range(10_000)]}},
            "spec.network.aggregators: has more than 100 entries",
        ),
        (
            {"network": {"arcs": [arc()], "aggregators": [{**aggregator("a"), "over": {"nodeLabel": "-"}}]}},
            'spec.network.aggregators[0].over.nodeLabel: "-" is not a label key',
        ),
        (
            {"network": {"arcs": [arc(), {"from": {"runningPods": {}}, "to": "Nodes", "minimum": 1}]}},
            "spec.network.arcs[1]: units of pods that have a node go first",
        ),
        (
            {"network": {"arcs": [arc()], "aggregators": [gaining("a", "b"), gaining("b", "Nodes")]}},
            "spec.network.aggregators: gains behind a make more than 1000000 units of one",
        ),
        (
            {"cost": {"interference": {"penalties": [{"kind": "web", "beside": "web", "penalty": 1}]}}},
            'spec.cost.interference.penalties[0].kind: "web" is not one of spec.cost.kinds (there are none)',
        ),
        (
            {"cost": {"kinds": [KIND], "interference": {"penalties": [PENALTY, PENALTY]}}},
            'spec.cost.interference.penalties[1]: "web" beside "web" has a penalty already',
        ),
        ({"cost": {"kinds": [KIND], "interference": {"default": -1}}}, "spec.cost.interference.default"),
        ({"cost": {"machines": {"label": "two words"}}}, "spec.cost.machines.label"),
        ({"cost": {"kinds": [KIND], "machines": slowdowns("fast")}}, 'slowdown: "fast" is not a number'),
        ({"cost": {"kinds": [KIND], "machines": slowdowns("0.0")}}, 'slowdown: "0.0" is not a number'),
        ({"cost": {"kinds": [KIND], "machines": slowdowns("1", "2")}}, 'slowdowns[1]: "web" on "new" has a slowdown'),
        ({"cost": {"machines": slowdowns("1")}}, 'slowdowns[0].kind: "web" is not one of spec.cost.kinds'),
        ({"selects": []}, "spec.selects"),
        ({"selects": {"podSelector": {"matchLabels": {"a": 5}}}}, "spec.selects.podSelector.matchLabels"),
        ({"selects": {"schedulerNames": ["default-scheduler"]}}, "spec.selects.schedulerNames"),
        ({"selects": {"schedulerNames": ["mine", "thalweg-steered"]}}, "spec.selects.schedulerNames"),
        ({"delivery": "Extender", "selects": {"schedulerNames": ["thalweg"]}}, "spec.selects.schedulerNames"),
        ({"steering": "Prefer"}, "spec.steering"),
        ({"delivery": "Observe", "steering": "Prefer"}, "spec.steering"),
        ({"waiting": "Gate"}, "spec.waiting"),
        ({"gangs": {"waiting": "Never"}}, "spec.gangs.waiting"),
        ({"delivery": "Extender", "waiting": "Sit"}, "spec.waiting"),
        ({"unscheduled": {"base": None}}, "spec.unscheduled.base"),
        (
            {"selects": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
            "matchExpressions[0]",
        ),
        ({"selects": {"podSelector": {"matchLabels": {"": "x"}}}}, "spec.selects.podSelector.matchLabels"),
        ({"gangs": {"timeout": "soon"}}, 'spec.gangs.timeout: "soon" is not a duration'),
        ({"gangs": {"holdRoomAfter": ""}}, "spec.gangs.holdRoomAfter"),
        ({"gangs": {"holdRoomFor": "10"}}, "spec.gangs.holdRoomFor"),
        ({"gangs": {"holdRoomShare": 101}}, "spec.gangs.holdRoomShare"),
        ({"replaces": {"victims": "Anybody"}}, "spec.replaces.victims"),
        ({"rescheduling": {"minGain": 0}}, "spec.rescheduling.minGain"),
        ({"rescheduling": {"minGain": -5}}, "spec.rescheduling.minGain"),
        ({"rescheduling": {"minGain": 10**10}}, "spec.rescheduling.minGain"),
        ({"rescheduling": {"minGain": "much"}}, "spec.rescheduling.minGain"),
        ({"rescheduling": {"reasons": ["Boredom"]}}, "spec.rescheduling.reasons"),
        ({"rescheduling": {"reasons": []}}, "spec.rescheduling.reasons"),
        ({"rescheduling": {"reasons": ["Gain", "Gain"]}}, "spec.rescheduling.reasons: a reason is given twice"),
        ({"duringExecution": {"also": ["Taints", "Taints"]}}, "spec.duringExecution.also: a rule is given twice"),
        (
            {"rescheduling": {"reasons": ["Gain"]}, "cost": {"utilisation": "Larger"}},
            "spec.rescheduling.reasons: Gain needs spec.cost.utilisation Requested",
        ),
        ({"rescheduling": {"price": {"startup": "-5s"}}}, 'spec.rescheduling.price.startup: "-5s" is not a duration'),
        ({"rescheduling": {"price": {"startup": "25h"}}}, 'spec.rescheduling.price.startup: "25h" is longer than 24h'),
        ({"rescheduling": {"price": {"lostWork": "Some"}}}, "spec.rescheduling.price.lostWork"),
        ({"gangs": {"onPartialBind": "Shrug"}}, "spec.gangs.onPartialBind"),
        ({"constraints": [{"name": "c"}]}, "spec.constraints[0]: needs exactly one of conflict, exclusive, together, "),
        ({"constraints": [{"name": "c", **CONFLICT, **TOGETHER}]}, "spec.constraints[0]: needs exactly one of"),
        ({"constraints": [CONFLICT]}, "spec.constraints[0]: Object missing required field `name`"),
        ({"constraints": [{"name": "", **CONFLICT}]}, "spec.constraints[0].name: every constraint has a name"),
        (
            {"constraints": [{"name": "c", **CONFLICT}, {"name": "c", **TOGETHER}]},
            'spec.constraints[1].name: "c" is the name of another constraint',
        ),
        (
            {"constraints": [{"name": "c", "exclusive": {"groups": [{}], "topologyKey": "zone"}}]},
            "spec.constraints[0].exclusive.groups: needs at least two groups",
        ),
        (
            {"constraints": [{"name": "c", "conflict": {"pods": {}, "topologyKey": "two words"}}]},
            'spec.constraints[0].conflict.topologyKey: "two words" is not a label key',
        ),
        (
            {"constraints": [{"name": "c", "global": {"pods": {}, "nodes": {"matchLabels": {"a": "not good"}}}}]},
            "spec.constraints[0].global.nodes.matchLabels.a",
        ),
        (
            {"constraints": [{"name": "c", "conflict": {"pods": {}, "topologyKey": "zone", "maxPerDomain": -1}}]},
            "spec.constraints[0].conflict.maxPerDomain",
        ),
        ({"constraints": [{"name": "c", "global": {"pods": {}, "require": "Some"}}]}, "spec.constraints[0].global"),
        (
            {"delivery": "Extender", "steering": "Prefer", "constraints": [{"name": "c", **CONFLICT}]},
            "spec.steering: constraints need Require",
        ),
    ],
)
def test_garbage_names_its_field(spec: dict[str, Any], field: str) -> None:
    """Whatever is wrong is a PolicyError with the path of the field, never another exception."""
    with pytest.raises(PolicyError) as caught:
        parsed(spec)
    assert field in str(caught.value)


def test_constraints_as_they_are_written() -> None:
    """Each construct with all that it can say, and with as little as it needs."""
    web, api = ({"matchLabels": {"app": app}} for app in ("web", "api"))
    groups = {"groups": [web, api], "topologyKey": "zone"}
    policy = parsed(
        {
            "constraints": [
                {"name": "a", "conflict": {"pods": web, "topologyKey": "zone", "maxPerDomain": 2}},
                {"name": "b", "conflict": {"pods": web, "topologyKey": "zone"}},
                {"name": "c", "exclusive": {**groups, "maxPerDomain": 3, "maxPlaced": 9}},
                {"name": "d", "exclusive": groups},
                {"name": "e", "together": {"pods": api, "topologyKey": "zone"}},
                {"name": "f", "global": {"pods": web, "nodes": api, "require": "AllOrNone"}},
                {"name": "g", "global": {"pods": web}},
            ],
        },
    )
    one, two = (LabelSelector((Requirement("app", "In", (app,)),)) for app in ("web", "api"))
    assert policy.constraints == (
        Conflict("a", one, "zone", 2),
        Conflict("b", one, "zone", 1),
        Exclusive("c", (one, two), "zone", 3, 9),
        Exclusive("d", (one, two), "zone", None, None),
        OneDomain("e", two, "zone"),
        Global("f", one, two, all_or_none=True),
        Global("g", one, LabelSelector()),
    )


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("90s", 90), ("1h30m", 5400), ("2h0m1s", 7201), ("0s", 0)])
def test_durations(text: str, seconds: int) -> None:
    """As Go writes them, in whole seconds."""
    said = {"timeout": text, "holdRoomAfter": text, "onPartialBind": "Evict", "waiting": "Hold"}
    expected = GangPolicy(seconds, PartialBind.EVICT, seconds, WaitingMode.HOLD)
    assert parsed({"gangs": said}).gangs == expected


def test_how_long_and_how_much_room_is_kept_and_whose_place_is_taken() -> None:
    """What is said of them is in the policy; what is left out has the default."""
    policy = parsed({"gangs": {"holdRoomFor": "90s", "holdRoomShare": 40}, "replaces": {"victims": "Governed"}})
    assert policy.gangs == GangPolicy(hold_room_for=90, hold_room_share=40)
    assert policy.victims is AllowedVictims.GOVERNED
    assert (parsed({}).gangs, parsed({}).victims) == (GangPolicy(), AllowedVictims.SAME_CONTROLLER)


def test_defaults() -> None:
    """A spec that says next to nothing is what the built-in default is, but for its selection."""
    policy = parsed({"selects": {"podSelector": {}}})
    assert msgspec.structs.replace(policy, name="", selects=Selects(), precedence=0) == Policy("")
    assert policy.delivery is Delivery.BINDER
    assert policy.selects.matches("thalweg", (), ())
    assert not policy.selects.matches("default-scheduler", (), ())
    assert not parsed({}).selects.matches("thalweg", (), ())


def test_the_extenders_own_defaults() -> None:
    """Pods of the steered profile, the planned node or none, no gates; what is said instead is heeded."""
    policy = parsed({"delivery": "Extender", "selects": {"podSelector": {}}})
    assert (policy.steering, policy.waiting) == (Steering.REQUIRE, WaitingMode.AUTO)
    assert policy.selects.matches("thalweg-steered", (), ())
    assert not policy.selects.matches("thalweg", (), ())
    said = {"delivery": "Extender", "steering": "Prefer", "waiting": "Gate"}
    policy = parsed({**said, "selects": {"schedulerNames": ["default-scheduler"]}})
    assert (policy.steering, policy.waiting) == (Steering.PREFER, WaitingMode.GATE)
    assert policy.selects.scheduler_names == ("default-scheduler",)


def test_the_crd_says_the_same() -> None:
    """The words that the API server refuses with are those of ``parse_policy``: users meet either."""
    path = Path(__file__).parents[2] / "crds" / "flowschedulingpolicies.scheduling.thalweg.yaml"
    spec = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    refused = [
        {"selects": {"schedulerNames": ["default-scheduler"]}},
        {"delivery": "Extender", "selects": {"schedulerNames": ["thalweg"]}},
        {"steering": "Prefer"},
        {"waiting": "Gate"},
        {"rescheduling": {"reasons": ["Gain"]}, "cost": {"utilisation": "Measured"}},
        {"delivery": "Extender", "steering": "Prefer", "network": {"arcs": [arc()]}},
        {"delivery": "Extender", "steering": "Prefer", "constraints": [{"name": "c", **CONFLICT}]},
    ]
    said = []
    for each in refused:
        with pytest.raises(PolicyError) as caught:
            parsed(each)
        said.append(str(caught.value))
    assert said == [rule["message"] for rule in spec["x-kubernetes-validations"]]
