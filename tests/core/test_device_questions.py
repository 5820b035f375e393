"""Questions about pods that claim devices: headroom, what-if and why know claims, slices and what comes free."""

from typing import Any

from support.device_clusters import API, GPU, Manifest, allocated, claim, claiming, slice_of
from support.scenario_state import NOW, manifest_node, scenario_of, state_of

from flowcore.api.read_fields import read_fields
from flowcore.questions.diagnosis.why import WhyAnswer, WhyQuery, answer_why
from flowcore.questions.scenario import Scenario, plan_scenario
from flowcore.questions.scenario.alternatives.headroom import HeadroomQuery, answer_headroom
from flowcore.questions.scenario.alternatives.new_nodes.unused_devices import device_counts
from flowcore.questions.scenario.alternatives.what_if import ResourceUse, WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import AddNodes, Drain, PutObjects

CONTEXT = AnswerContext(now=NOW)


def cluster(gpus: dict[str, int], *objects: Manifest) -> Scenario:
    """Nodes with so many GPUs."""
    slices = [{**API, "kind": "ResourceSlice", **slice_of(name, count)} for name, count in gpus.items()]
    nodes = [manifest_node(name, "z", cpu="16") for name in gpus]
    return scenario_of([*nodes, {**API, "kind": "DeviceClass", **GPU}, *slices, *objects])


def test_headroom_counts_devices() -> None:
    """Of pods like one that runs, and like one that waits: so many find devices beside those that are taken."""
    running, waits = claiming("runs", "a", 1, "gpu-0"), claiming("waits", count=2)
    scenario = cluster({"a": 4, "b": 3, "c": 0}, *running, *waits)
    before = state_of(scenario)
    answer = answer_headroom(scenario, HeadroomQuery(like="default/runs", scale_ups=0), CONTEXT)
    # Six are free, of which the waiting pod gets two.
    assert answer.fits == 4
    assert sum(answer.nodes.values()) == 4
    assert "c" not in answer.nodes
    assert "cannot allocate all claims" in answer.reason
    again = answer_headroom(scenario, HeadroomQuery(like="default/waits", scale_ups=0), CONTEXT)
    assert (again.fits, again.claims, answer.claims) == (1, ["2 of class gpu"], ["1 of class gpu"])
    assert state_of(scenario) == before


def test_headroom_of_pods_whose_devices_are_no_numbers() -> None:
    """Each takes all that a node has."""
    takes_all = claiming("waits")
    takes_all[1]["spec"]["devices"]["requests"][0]["exactly"] = {"deviceClassName": "gpu", "allocationMode": "All"}
    answer = answer_headroom(
        cluster({"a": 4, "b": 3, "c": 2}, *takes_all), HeadroomQuery(like="default/waits", scale_ups=0), CONTEXT
    )
    assert answer.fits == 2


def test_a_drained_pod_takes_its_devices_along() -> None:
    """Its claim is free to be allocated on another node."""
    scenario = cluster({"a": 1, "b": 1}, *claiming("runs", "a", 1, "gpu-0"))
    before = state_of(scenario)
    answer = answer_what_if(scenario, WhatIfQuery([Drain("a")]), CONTEXT)
    assert not answer.waiting
    assert state_of(scenario) == before


def test_a_new_node_has_the_devices_of_the_node_that_it_is_like() -> None:
    """So a pod that waits for devices is placed there."""
    scenario = cluster({"a": 1}, *claiming("runs", "a", 1, "gpu-0"), *claiming("waits"))
    answer = answer_what_if(scenario, WhatIfQuery([AddNodes(1, "a")]), CONTEXT)
    assert answer.placed == ["default/waits"]
    use = [plan.resources["gpu.example.com devices"] for plan in (answer.before, answer.after)]
    assert use == [ResourceUse(1, 1), ResourceUse(2, 2)]


def test_new_nodes_are_tried_that_have_devices() -> None:
    """Of two shapes that differ in their devices alone, the one with devices; so many as the pods need."""
    waits = [each for number in range(3) for each in claiming(f"waits-{number}", count=2)]
    scenario = cluster({"a": 0, "b": 4}, *claiming("runs", "b", 4, *(f"gpu-{number}" for number in range(4))), *waits)
    answer = answer_headroom(scenario, HeadroomQuery(), CONTEXT)
    assert [(each.like, each.count, each.pods) for each in answer.scale_ups] == [("b", 2, 3)]


def test_why_no_pod_leaves_for_devices() -> None:
    """The pod that has them is as important."""
    scenario = cluster({"a": 1}, *claiming("runs", "a", 1, "gpu-0"), *claiming("waits"))
    answer = answer_why(scenario, WhyQuery("default/waits"), CONTEXT)
    assert "cannot allocate all claims" in answer.text
    assert "No running pod leaves for it: no running pod has a lower priority." in answer.evidence


def _models(**models: str) -> list[Manifest]:
    """Nodes with four GPUs of a model each, two of them on one link."""
    slices = []
    for node, model in models.items():
        made = slice_of(node, 4)
        for number, device in enumerate(made["spec"]["devices"]):
            device["attributes"] = {"model": {"string": model}, "link": {"int": number // 2}}
        slices.append({**API, "kind": "ResourceSlice", **made})
    nodes = [manifest_node(name, "z", cpu="16") for name in models]
    return [*nodes, *slices, {**API, "kind": "DeviceClass", **GPU}]


def _wanting(name: str, model: str, count: int = 1, *, linked: bool = False) -> list[Manifest]:
    """A waiting pod that claims GPUs of a model, perhaps on one link."""
    pod, made = claiming(name, "", count)
    expression = f'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "{model}"'
    made["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    if linked:
        made["spec"]["devices"]["constraints"] = [{"requests": ["r"], "matchAttribute": "gpu.example.com/link"}]
    return [pod, made]


def _why(scenario: Scenario, pod: str, **context: Any) -> WhyAnswer:
    before = state_of(scenario)
    answer = answer_why(scenario, WhyQuery(f"default/{pod}"), AnswerContext(now=NOW, **context))
    assert state_of(scenario) == before
    return answer


def _texts(answer: WhyAnswer) -> list[str]:
    return [fix.text for fix in answer.fixes]


def test_why_counts_what_is_claimed() -> None:
    """How many devices match, how many are free, and how many of these are together: on a node, on a link."""
    four = [f"gpu-{number}" for number in range(4)]
    held = [*claiming("all-of-a", "a", 4, *four), *claiming("some-of-b", "b", 2, "gpu-0", "gpu-2")]
    scenario = scenario_of(
        [
            *_models(a="H100", b="A100"),
            *held,
            *_wanting("taken", "H100"),
            *_wanting("apart", "A100", 2, linked=True),
            *_wanting("large", "A100", 3),
            *_wanting("unknown", "H200"),
        ]
    )
    for pod, sentence in (
        ("taken", "asks for 1: 4 devices match, none is free."),
        ("apart", "asks for 2: 4 devices match, 2 are free, at most 1 on one node with the same gpu.example.com/link."),
        ("large", "asks for 3: 4 devices match, 2 are free."),
        ("unknown", "asks for 1: no device matches, of 8 of class gpu."),
    ):
        assert f"Claim gpu, request r {sentence}" in _why(scenario, pod).evidence
        assert not [each for each in _why(scenario, pod, nodes=False).evidence if each.startswith("Claim")]


def test_devices_that_are_apart() -> None:
    """Each node has one that is free: the sentence says so."""
    three = ["gpu-0", "gpu-1", "gpu-2"]
    held = [*claiming("on-a", "a", 3, *three), *claiming("on-b", "b", 3, *three)]
    scenario = scenario_of([*_models(a="H100", b="H100"), *held, *_wanting("p", "H100", 2)])
    assert (
        "Claim gpu, request r asks for 2: 8 devices match, 2 are free, at most 1 on one node."
        in _why(scenario, "p").evidence
    )


def test_another_model_would_do() -> None:
    """It is offered after a plan with it; not to those who may not see what nodes have."""
    four = [f"gpu-{number}" for number in range(4)]
    scenario = scenario_of([*_models(a="H100", b="A100"), *claiming("r", "a", 4, *four), *_wanting("p", "H100", 2)])
    text = "Ask for devices with gpu.example.com/model=A100, not H100: nobody loses a place."
    answer = _why(scenario, "p")
    (fix,) = [fix for fix in answer.fixes if fix.text == text]
    assert fix.places == ["default/p"]
    assert answer_what_if(scenario, WhatIfQuery(fix.change), CONTEXT).placed == ["default/p"]
    assert text not in _texts(_why(scenario, "p", nodes=False))


def _with_serials(objects: list[Manifest]) -> list[Manifest]:
    """Each device with an attribute that no other has."""
    for manifest in objects:
        if manifest["kind"] == "ResourceSlice":
            for number, device in enumerate(manifest["spec"]["devices"]):
                device["attributes"]["serial"] = {"string": f"{manifest['metadata']['name']}-{number}"}
    return objects


def test_new_nodes_have_the_model_that_is_asked_for() -> None:
    """Nodes are of two shapes where their devices differ, as far as that is no serial number."""
    four = [f"gpu-{number}" for number in range(4)]
    objects = [*_models(a="A100", b="H100"), *claiming("r", "b", 4, *four), *_wanting("p", "H100", 2)]
    scenario = scenario_of(_with_serials(objects))
    assert [each.like for each in answer_headroom(scenario, HeadroomQuery(), CONTEXT).scale_ups] == ["b"]
    assert "Add a node like b: nobody loses a place." in _texts(_why(scenario, "p"))


def test_serial_numbers_are_no_shapes() -> None:
    """A hundred nodes with equal GPUs are alike."""
    models = _models(**{f"n{number}": "H100" for number in range(100)})
    assert len(set(device_counts(scenario_of(_with_serials(models)).cluster.devices).values())) == 1


def test_a_model_that_is_misspelt() -> None:
    """The nearest one that devices have comes first."""
    scenario = scenario_of([*_models(a="L40S", b="H100-80GB"), *_wanting("p", "H100-80G")])
    assert "Ask for devices with gpu.example.com/model=H100-80GB, not H100-80G" in _texts(_why(scenario, "p"))[0]


def test_a_constraint_may_go() -> None:
    """No link has two free GPUs, but a node has; or one GPU would do."""
    scenario = scenario_of(
        [
            *_models(a="H100"),
            *claiming("r", "a", 2, "gpu-0", "gpu-2"),
            *_wanting("p", "H100", 2, linked=True),
        ]
    )
    texts = _texts(_why(scenario, "p"))
    assert (
        "Require no constraint about gpu.example.com/link of the devices of claim gpu: nobody loses a place." in texts
    )
    assert "Ask for 1 device by request r of claim gpu: nobody loses a place." in texts


def test_fewer_devices_are_as_many_as_there_are() -> None:
    """Three of the four that are asked for."""
    scenario = scenario_of([*_models(a="H100"), *claiming("r", "a", 1, "gpu-0"), *_wanting("p", "H100", 4)])
    assert "Ask for 3 devices by request r of claim gpu: nobody loses a place." in _texts(_why(scenario, "p"))


def test_a_selector_without_a_model_may_go() -> None:
    """It is named as far as it is short."""
    pod, made = claiming("p")
    expression = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'
    made["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    (device,) = (one := slice_of("a", 1))["spec"]["devices"]
    device["capacity"] = {"memory": {"value": "40Gi"}}
    scenario = scenario_of(
        [
            manifest_node("a", "z"),
            {**API, "kind": "ResourceSlice", **one},
            {**API, "kind": "DeviceClass", **GPU},
            pod,
            made,
        ]
    )
    text = f"Drop the selector {expression} of request r of claim gpu: nobody loses a place."
    assert text in _texts(_why(scenario, "p"))


def test_pods_that_share_a_claim_change_it_once() -> None:
    """Of a gang whose pods name it."""
    four = [f"gpu-{number}" for number in range(4)]
    (first, shared), (second, _) = _wanting("p", "H100"), _wanting("q", "H100")
    del shared["metadata"]["ownerReferences"]
    for pod in (first, second):
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "p-gpu"}]
        annotations = {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "2"}
        pod["metadata"]["annotations"] = annotations
    taken = claiming("r", "a", 4, *four)
    scenario = scenario_of([*_models(a="H100", b="A100"), *taken, first, second, shared])
    answer = answer_why(scenario, WhyQuery("gang/default/g"), CONTEXT)
    (fix,) = [fix for fix in answer.fixes if "model=A100" in fix.text]
    assert sorted(fix.places) == ["default/p", "default/q"]


def test_pods_of_one_template_change_alike() -> None:
    """One sentence for all of them: each has a claim of its own."""
    four = [f"gpu-{number}" for number in range(4)]
    waiting = [each for number in range(3) for each in _wanting(f"p-{number}", "H100")]
    gang = {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "3"}
    for pod in waiting[::2]:
        pod["metadata"]["annotations"] = gang
    scenario = scenario_of([*_models(a="H100", b="A100"), *claiming("r", "a", 4, *four), *waiting])
    answer = answer_why(scenario, WhyQuery("gang/default/g"), CONTEXT)
    text = "Ask for devices with gpu.example.com/model=A100, not H100: nobody loses a place."
    (fix,) = [fix for fix in answer.fixes if fix.text == text]
    assert sorted(fix.places) == ["default/p-0", "default/p-1", "default/p-2"]
    assert len(fix.change) == 3


def test_a_class_that_is_not_there() -> None:
    """The step names it, and nobody is said to stay: room would not help. The same for a claim that is not there."""
    pod, made = claiming("p")
    made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "gpus"
    scenario = cluster({"a": 1}, pod, made, *claiming("r", "a", 1, "gpu-0"))
    answer = _why(scenario, "p")
    assert answer.evidence[0] == "DeviceClass gpus, which claim gpu asks for, does not exist; there is gpu."
    assert answer.next == "Create DeviceClass gpus, or ask for another one in the claim."
    assert _why(scenario, "p", nodes=False).evidence[0].endswith("does not exist.")
    absent = _why(cluster({"a": 1}, pod, *claiming("r", "a", 1, "gpu-0")), "p")
    for each in (answer, absent):
        assert not [line for line in each.evidence if line.startswith("No running pod leaves")]


def _template(count: int) -> Manifest:
    spec = claim("t", count)["spec"]
    metadata = {"name": "t", "namespace": "default"}
    return {**API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": spec}}


def _new(name: str) -> Manifest:
    """A pod as its manifest says it: nobody has made its claim."""
    pod, _ = claiming(name)
    return {**pod, "metadata": {"name": name, "namespace": "default"}, "status": {}}


def test_a_new_pod_has_the_claims_of_its_template() -> None:
    """As soon as it is there the controller makes them; a template may come behind the pod, or be missing."""
    scenario = cluster({"a": 5}, _new("p"), _new("q"), _template(2))
    before = state_of(scenario)
    for pods, placed in (([_new("r")], []), ([_template(1), _new("r"), _new("s")], ["default/r"])):
        answer = answer_what_if(scenario, WhatIfQuery([PutObjects(pods)]), CONTEXT)
        assert answer.placed == placed
        assert state_of(scenario) == before
    without = answer_why(cluster({"a": 5}, *claiming("o"), _new("p")), WhyQuery("default/p"), CONTEXT)
    assert "ResourceClaim not created yet" in without.text


def test_a_redacted_template_makes_the_same_claims() -> None:
    """What it asks for is kept, its annotations are not."""
    template = _template(2)
    template["metadata"]["annotations"] = {"secret": "x"}
    kept = read_fields(template)
    assert "secret" not in str(kept)
    for of_dump in (template, kept):
        scenario = cluster({"a": 3}, _new("p"), _new("q"), of_dump)
        assert len(plan_scenario(scenario, NOW).result.placements) == 1


def test_why_names_a_claim_that_is_freed() -> None:
    """There is nothing to do but to wait; that another pod reserves it is another matter."""
    pod, held = claiming("waits")
    held = {**API, "kind": "ResourceClaim", **allocated(held, "a", "gpu-0")}
    closed = manifest_node("a", "z", cpu="16")
    closed["spec"] = {"unschedulable": True}
    answer = answer_why(cluster({"a": 1, "b": 1}, pod, held, closed), WhyQuery("default/waits"), CONTEXT)
    assert "ResourceClaim waits-gpu has devices elsewhere that nobody uses: it is freed, and then b" in answer.text
    assert answer.next == "Wait: it is planned anew once that is done."
    held["status"]["reservedFor"] = [{"resource": "pods", "name": "other", "uid": "other"}]
    answer = answer_why(cluster({"a": 1, "b": 1}, pod, held, closed), WhyQuery("default/waits"), CONTEXT)
    assert "freed" not in answer.text
