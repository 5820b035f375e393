"""kube-scheduler's default profile by hand: the total score of each node for a waiting pod, and clusters drawn for it.

In plain Python, from manifests, in the integers of Go. Sources: pkg/scheduler/framework/plugins of Kubernetes 1.36
(noderesources, tainttoleration, nodeaffinity, interpodaffinity, podtopologyspread, imagelocality,
helper/normalize_score.go), weights: apis/config/v1/default_plugins.go. Only what the draws have is read.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Manifest = dict[str, Any]
#: By node.
Scores = Mapping[str, int]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_MIB = 2**20
_WEIGHTS = (1, 10, 50, 100)


class DrawnCluster:
    """Nodes, the pods that run, and one that waits."""

    def __init__(self, nodes: Sequence[Manifest], running: Sequence[Manifest], waiting: Manifest) -> None:
        self.nodes, self.running, self.waiting = nodes, running, waiting

    @property
    def objects(self) -> list[Manifest]:
        """All of them."""
        return [*self.nodes, *self.running, self.waiting]

    def there(self, node: Manifest) -> list[Manifest]:
        """The pods of a node."""
        return [pod for pod in self.running if pod["spec"]["nodeName"] == node["metadata"]["name"]]

    def totals(self) -> dict[str, int]:
        """What each node that passes the filters scores."""
        feasible = [node for node in self.nodes if self._passes(node)]
        parts = (
            (1, {_name(node): self._least(node) for node in feasible}),
            (1, {_name(node): self._balanced(node) for node in feasible}),
            (3, _by_most({_name(node): self._taints(node) for node in feasible}, reverse=True)),
            (2, _by_most({_name(node): self._node_affinity(node) for node in feasible})),
            (2, _min_to_max({_name(node): self._pod_affinity(node) for node in feasible})),
            (2, self._spread(feasible)),
            (1, {_name(node): self._images(node) for node in feasible}),
        )
        return {_name(node): sum(weight * part[_name(node)] for weight, part in parts) for node in feasible}

    # --- filters ---

    def _passes(self, node: Manifest) -> bool:
        after, capacity = self._requested(node, with_waiting=True), _capacity(node)
        if node["spec"].get("unschedulable") or any(used > most for used, most in zip(after, capacity, strict=True)):
            return False
        affinity = self.waiting["spec"].get("affinity", {}).get("podAntiAffinity", {})
        far = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        return not any(self._matching(term, node) for term in far)

    # --- scores ---

    def _requested(self, node: Manifest, *, with_waiting: bool) -> tuple[int, int]:
        pods = [*self.there(node), *([self.waiting] if with_waiting else ())]
        sizes = [_requests(pod) for pod in pods]
        return sum(cpu for cpu, _ in sizes), sum(memory for _, memory in sizes)

    def _least(self, node: Manifest) -> int:
        after = self._requested(node, with_waiting=True)
        shares = [(most - used) * 100 // most for used, most in zip(after, _capacity(node), strict=True)]
        return sum(shares) // 2

    def _balanced(self, node: Manifest) -> int:
        def score(used: tuple[int, int]) -> int:
            cpu, memory = (min(1.0, part / most) for part, most in zip(used, _capacity(node), strict=True))
            return int((1 - abs((cpu - memory) / 2)) * 100)

        before, after = (score(self._requested(node, with_waiting=each)) for each in (False, True))
        return 50 + (50 + after - before) // 2

    def _taints(self, node: Manifest) -> int:
        return sum(taint["effect"] == "PreferNoSchedule" for taint in node["spec"].get("taints", ()))

    def _node_affinity(self, node: Manifest) -> int:
        affinity = self.waiting["spec"].get("affinity", {}).get("nodeAffinity", {})
        labels = node["metadata"]["labels"]
        return sum(
            term["weight"]
            for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
            if all(labels.get(each["key"]) in each["values"] for each in term["preference"]["matchExpressions"])
        )

    def _pod_affinity(self, node: Manifest) -> int:
        total = 0
        for sign, term, weight in _preferred(self.waiting):
            total += sign * weight * self._matching(term, node)
        for pod in self.running:
            home = next(each for each in self.nodes if _name(each) == pod["spec"]["nodeName"])
            terms = [(sign, term, weight) for sign, term, weight in _preferred(pod)]
            near = pod["spec"].get("affinity", {}).get("podAffinity", {})
            terms += [(1, term, 1) for term in near.get("requiredDuringSchedulingIgnoredDuringExecution", ())]
            for sign, term, weight in terms:
                if _matches(term, self.waiting) and _domain(term, home) == _domain(term, node):
                    total += sign * weight
        return total

    def _matching(self, term: Manifest, node: Manifest) -> int:
        domain = [each for each in self.nodes if _domain(term, each) == _domain(term, node)]
        return sum(_matches(term, pod) for each in domain for pod in self.there(each))

    def _spread(self, feasible: Sequence[Manifest]) -> Scores:
        constraints = self.waiting["spec"].get("topologySpreadConstraints", ())
        if not constraints:
            return {_name(node): 0 for node in feasible}
        raw = {_name(node): 0.0 for node in feasible}
        for each in constraints:
            domains = {_domain(each, node) for node in feasible}
            for node in feasible:
                raw[_name(node)] += self._matching(each, node) * math.log(len(domains) + 2) + each["maxSkew"] - 1
        score = {name: math.floor(value + 0.5) for name, value in raw.items()}
        least, most = min(score.values()), max(score.values())
        return {name: 100 if not most else 100 * (most + least - value) // most for name, value in score.items()}

    def _images(self, node: Manifest) -> int:
        total = 0
        for container in self.waiting["spec"]["containers"]:
            sizes = [_images(each).get(container["image"]) for each in self.nodes]
            holders = sum(size is not None for size in sizes)
            total += int(_images(node).get(container["image"], 0) * (holders / len(self.nodes)))
        least, most = 23 * _MIB, 1000 * _MIB * len(self.waiting["spec"]["containers"])
        return 100 * (min(max(total, least), most) - least) // (most - least)


def _name(node: Manifest) -> str:
    return node["metadata"]["name"]


def _capacity(node: Manifest) -> tuple[int, int]:
    return _amounts(node["status"]["allocatable"])


def _requests(pod: Manifest) -> tuple[int, int]:
    return _amounts(pod["spec"]["containers"][0]["resources"]["requests"])


def _amounts(resources: Mapping[str, str]) -> tuple[int, int]:
    return int(resources["cpu"].removesuffix("m")), int(resources["memory"].removesuffix("Mi")) * _MIB


def _images(node: Manifest) -> dict[str, int]:
    return {name: image["sizeBytes"] for image in node["status"].get("images", ()) for name in image["names"]}


def _matches(term: Manifest, pod: Manifest) -> bool:
    return term["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def _domain(term: Manifest, node: Manifest) -> str:
    return node["metadata"]["labels"][term["topologyKey"]]


def _preferred(pod: Manifest) -> list[tuple[int, Manifest, int]]:
    affinity = pod["spec"].get("affinity", {})
    return [
        (sign, each["podAffinityTerm"], each["weight"])
        for sign, kind in ((1, "podAffinity"), (-1, "podAntiAffinity"))
        for each in affinity.get(kind, {}).get("preferredDuringSchedulingIgnoredDuringExecution", ())
    ]


def _by_most(scores: Scores, *, reverse: bool = False) -> Scores:
    most = max(scores.values(), default=0)
    scaled = {name: 100 * score // most if most else 0 for name, score in scores.items()}
    return {name: 100 - score for name, score in scaled.items()} if reverse else scaled


def _min_to_max(scores: Scores) -> Scores:
    least, most = min(scores.values(), default=0), max(scores.values(), default=0)
    return {
        name: int(100 * ((score - least) / (most - least))) if most > least else 0 for name, score in scores.items()
    }


# --- draws ---


def manifest_pod(name: str, cpu: int, memory: int, app: str, **spec: Any) -> Manifest:
    """A pod that waits, or runs on ``nodeName``; cpu in millicores, memory in Mi."""
    container = {"name": "main", "image": "example.com/app:1"}
    container["resources"] = {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}  # type: ignore[assignment]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}},
        "spec": {"schedulerName": "thalweg", "containers": [container], **spec},
        "status": {"phase": "Running" if "nodeName" in spec else "Pending"},
    }


def term(app: str, key: str) -> Manifest:
    """A term of pod affinity, or what a spread constraint counts."""
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def _weighted(draw: random.Random, weight: int, kind: str) -> Manifest:
    terms = [
        {"weight": weight, "podAffinityTerm": term(draw.choice(("web", "db")), draw.choice((HOST, ZONE)))}
        for _ in range(draw.randint(1, 2))
    ]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


def _node_terms(draw: random.Random, weight: int) -> Manifest:
    terms = [
        {
            "weight": draw.choice((weight, 1 + weight // 2)),
            "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": [value]}]},
        }
        for value in draw.sample(("ssd", "nvme", "hdd"), draw.randint(1, 2))
    ]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


def _spread_terms(draw: random.Random) -> Manifest:
    constraints = [
        {"maxSkew": draw.randint(1, 3), "whenUnsatisfiable": "ScheduleAnyway", **term("web", key)}
        for key in draw.sample((HOST, ZONE), draw.randint(1, 2))
    ]
    return {"topologySpreadConstraints": constraints}


#: What the waiting pod has -> the rest of its spec.
ROWS: Mapping[str, Callable[[random.Random], Manifest]] = {
    "nothing": lambda _draw: {},
    "taints": lambda _draw: {},
    "images": lambda _draw: {},
    "ScheduleAnyway": _spread_terms,
    "others prefer": lambda _draw: {},
    **{
        f"{row} of {weight}": lambda draw, terms=terms, weight=weight: terms(draw, weight)  # type: ignore[misc]
        for weight in _WEIGHTS
        for row, terms in (
            ("node affinity", _node_terms),
            ("pod affinity", lambda draw, weight: _weighted(draw, weight, "podAffinity")),
            ("pod anti-affinity", lambda draw, weight: _weighted(draw, weight, "podAntiAffinity")),
        )
    },
}


def draw_cluster(row: str, seed: int) -> DrawnCluster:
    """Four to eight nodes of several sizes, some of them full or cordoned, and a waiting pod of a row."""
    draw = random.Random(f"{row} {seed}")
    nodes, running = [], []
    for at in range(draw.randint(4, 8)):
        cpu, memory = draw.choice((4000, 8000, 16000)), draw.choice((8, 16, 32)) * 1024
        labels = {HOST: f"n{at}", ZONE: f"z{at % 3}", "disk": draw.choice(("ssd", "nvme", "hdd", "none"))}
        node: Manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{at}", "labels": labels},
            "spec": {"unschedulable": True} if at > 2 and draw.random() < 0.1 else {},
            "status": {"allocatable": {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": "110"}},
        }
        if row == "taints":
            keys = draw.sample(("a", "b", "c"), draw.randint(0, 2))
            node["spec"]["taints"] = [{"key": key, "effect": "PreferNoSchedule"} for key in keys]
        if row == "images" and draw.random() < 0.5:
            node["status"]["images"] = [{"names": ["example.com/app:1"], "sizeBytes": 900 * _MIB}]
        nodes.append(node)
        left = [draw.uniform(0, 1) * cpu, draw.uniform(0, 1) * memory]
        for number in range(draw.randint(0, 5)):
            size = draw.choice((100, 250, 500, 1000, 2000)), draw.choice((128, 512, 1024, 2048))
            if size[0] > left[0] or size[1] > left[1]:
                continue
            left = [left[0] - size[0], left[1] - size[1]]
            theirs: Manifest = {}
            if row == "others prefer" and draw.random() < 0.5:
                theirs = _weighted(draw, draw.choice(_WEIGHTS), draw.choice(("podAffinity", "podAntiAffinity")))
                if draw.random() < 0.3:
                    theirs = {"affinity": {"podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [term("web", draw.choice((HOST, ZONE)))]
                    }}}  # fmt: skip
            app = draw.choice(("web", "db", "other"))
            running.append(manifest_pod(f"r{at}-{number}", *size, app, nodeName=f"n{at}", **theirs))
    size = draw.choice((100, 250, 500, 1000)), draw.choice((128, 512, 1024))
    return DrawnCluster(nodes, running, manifest_pod("waits", *size, "web", **ROWS[row](draw)))
