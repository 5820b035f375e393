"""The examples of the documentation do what the pages say."""

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli import Manifest, node, plan_of

DOCS = Path(__file__).parents[2] / "docs"


def example(page: str, heading: str = "") -> list[Manifest]:
    """The objects of a page's first YAML block, or of the first one below a heading."""
    section = (DOCS / page).read_text()
    if heading:
        section = section.partition(f"## {heading}\n")[2]
    return list(yaml.safe_load_all(re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)[0]))


def page(name: str) -> str:
    return (DOCS / name).read_text()


def in_zone(name: str, zone: str) -> Manifest:
    found = node(name)
    found["metadata"]["labels"]["topology.kubernetes.io/zone"] = zone
    return found


def of(template: Manifest, name: str, on: str = "", cpu: str = "1") -> Manifest:
    """A pod of a template, with a container; bound where ``on`` says so."""
    container = {"name": "main", "image": "example.invalid/web", "resources": {"requests": {"cpu": cpu}}}
    spec: dict[str, Any] = {**template["spec"], "containers": [container], **({"nodeName": on} if on else {})}
    metadata = {"name": name, "namespace": "default", **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


@pytest.mark.parametrize("model", ["CPUMemory", "LoadSpreading"])
def test_zones_and_the_freest_node_within_the_zone(model: str) -> None:
    """The zone with the fewest instances, though its nodes are fuller; there the freest."""
    deployment, policy = example("how-to/spread-over-zones.md")
    policy["spec"]["cost"]["model"] = model
    template = deployment["spec"]["template"]
    other: Manifest = {"metadata": {"labels": {"app": "other"}}, "spec": {}}
    nodes = [in_zone(f"{zone}{at}", zone) for zone in "abc" for at in (1, 2, 3)]
    running = [of(template, "w1", "a1"), of(template, "w2", "b1"), of(template, "w3", "b2")]
    running += [of(other, f"o{at}", f"c{at}", cpu=cpu) for at, cpu in ((1, "3"), (2, "1"), (3, "3"))]
    running += [of(other, "o4", "c1", cpu="100m"), of(other, "o5", "c3", cpu="100m")]
    answer = plan_of(*nodes, *running, policy, of(template, "new"))
    assert answer["placements"] == {"default/new": "c2"}


def test_a_gang_without_any_object() -> None:
    """All four in one zone, or none; the reasons are those that the page lists."""
    (job,) = example("how-to/run-gangs.md", "Without a controller: annotations")
    template = job["spec"]["template"]
    pods = [of(template, f"train-{at}") for at in range(job["spec"]["parallelism"])]
    other: Manifest = {"metadata": {}, "spec": {}}
    nodes = [in_zone("a1", "a"), in_zone("b1", "b"), of(other, "x", "a1"), of(other, "y", "b1")]
    answer = plan_of(*nodes, *pods)
    assert answer["placements"] == {}
    answer = plan_of(*nodes, in_zone("b2", "b"), *pods)
    assert set(answer["placements"].values()) <= {"b1", "b2"}
    assert len(answer["placements"]) == 4
    answer = plan_of(*nodes, *pods[:3])
    assert {each["reason"] for each in answer["pending"].values()} == {"Gang default/train: 3 of 4 pods exist."}
    assert "`Gang ml/train: 3 of 5 pods exist.`" in (DOCS / "reference" / "gangs.md").read_text()


def test_an_urgent_pod_evicts_another() -> None:
    """With the class of the page. A pod of the page's policy has to wait before anybody leaves for it."""
    (urgent_class,) = example("how-to/preemption.md")
    (policy,) = yaml.safe_load_all(re.findall(r"```yaml\n(.*?)```", page("how-to/preemption.md"), re.DOTALL)[1])
    low = of({"metadata": {}, "spec": {}}, "low", "n1", cpu="3")
    urgent = {"metadata": {}, "spec": {"priorityClassName": urgent_class["metadata"]["name"]}}
    answer = plan_of(node("n1"), low, urgent_class, of(urgent, "new", cpu="3"))
    assert answer["evicted"].keys() == {"default/low"}
    urgent["metadata"] = {"labels": {"tier": "web"}, "creationTimestamp": datetime.now(UTC).isoformat()}
    urgent["spec"]["schedulerName"] = "thalweg"
    answer = plan_of(node("n1"), low, urgent_class, policy, of(urgent, "new", cpu="3"))
    assert answer["evicted"] == {}


def test_rules_that_hold_while_pods_run() -> None:
    """The page's policy replaces a pod whose node lost its label."""
    (policy,) = example("how-to/keep-rules-while-pods-run.md")
    template: Manifest = {
        "metadata": {
            "labels": {"tier": "web"},
            "ownerReferences": [{"kind": "ReplicaSet", "uid": "u", "controller": True}],
        },
        "spec": {"schedulerName": "thalweg", "nodeSelector": {"topology.kubernetes.io/zone": "b"}},
    }
    nodes = [in_zone("a1", "a"), in_zone("b1", "b")]
    assert plan_of(*nodes, of(template, "web", "a1"))["evicted"] == {}
    (leaves,) = plan_of(*nodes, policy, of(template, "web", "a1"))["evicted"].values()
    assert (leaves["kind"], leaves["to"]) == ("Rule", "b1")


def test_constraints_across_pods() -> None:
    """Each construct of the example at once: caps on nodes and zones, groups apart, one agent on each GPU node."""
    (policy,) = example("reference/policies.md", "Constraints across pods")
    nodes = [in_zone(f"{zone}{at}", zone) for zone in "abc" for at in (1, 2, 3)]
    nodes[0]["metadata"]["labels"]["gpu"] = "true"

    def pods(name: str, count: int, **labels: str) -> list[Manifest]:
        template = {"metadata": {"namespace": "shop", "labels": labels}, "spec": {"schedulerName": "thalweg"}}
        return [of(template, f"{name}{at}", cpu="100m") for at in range(count)]

    namespace = {"kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "shop"}}}
    waiting = [*pods("web", 9, app="web"), *pods("loud", 15, noise="loud"), *pods("quiet", 15, noise="quiet")]
    waiting += [*pods("agent", 3, app="agent"), *pods("other", 2, app="other")]
    placed = plan_of(*nodes, namespace, policy, *waiting)["placements"]

    def on(name: str) -> Counter[str]:
        return Counter(node for key, node in placed.items() if key.startswith(f"shop/{name}"))

    assert set(on("web").values()) == {1}
    assert Counter(node[0] for node in on("web")) == {"a": 2, "b": 2, "c": 2}
    assert not on("loud").keys() & on("quiet").keys()
    assert max((on("loud") + on("quiet")).values()) <= 4
    assert (on("loud") + on("quiet")).total() == 20
    assert on("agent") == {"a1": 1}
    assert on("other").total() == 2
