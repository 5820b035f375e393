"""Is any node overcommitted? Recomputed from the API server's own objects, without the code under test."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

_SUFFIXES = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}

Amounts = dict[str, Decimal]
Object = Mapping[str, Any]


def quantity(text: str | int) -> Decimal:
    """A Kubernetes quantity in whole units."""
    number = str(text).rstrip("kKMGTim")
    return Decimal(number) * _SUFFIXES[str(text)[len(number) :]]


def requests(pod: Object) -> Amounts:
    """What a pod of the benchmarks asks for, itself as one of `pods`; they have plain containers only."""
    total: defaultdict[str, Decimal] = defaultdict(Decimal, pods=Decimal(1))
    for container in pod["spec"]["containers"]:
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            total[name] += quantity(amount)
    return dict(total)


def allocatable(nodes: Iterable[Object]) -> Amounts:
    """Of all nodes together."""
    total: Counter[str] = Counter()
    for node in nodes:
        total.update({name: quantity(amount) for name, amount in node["status"]["allocatable"].items()})  # type: ignore[arg-type]
    return dict(total)  # type: ignore[arg-type]


def taken(pods: Iterable[Object]) -> dict[str, Amounts]:
    """What bound pods ask for, by node."""
    use: defaultdict[str, defaultdict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for pod in pods:
        name = pod["spec"].get("nodeName")
        if name and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            for resource, amount in requests(pod).items():
                use[name][resource] += amount
    return {name: dict(amounts) for name, amounts in use.items()}


def overcommitted(nodes: Iterable[Object], pods: Iterable[Object]) -> list[str]:
    """Nodes whose pods ask for more than they have of anything, and nodes that have pods but do not exist."""
    there = {node["metadata"]["name"]: node["status"]["allocatable"] for node in nodes}
    return [
        name
        for name, amounts in taken(pods).items()
        if any(amount > quantity(there.get(name, {}).get(resource, 0)) for resource, amount in amounts.items())
    ]
