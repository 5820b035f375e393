"""How good a plan is: how many pods it leaves and how large they are together, and what of both every plan leaves."""

from __future__ import annotations

import msgspec

from flowcore.planning.problem.bounds.bound_notes import sentence as words_of


class LeftOfLevel(msgspec.Struct, frozen=True, rename="camel"):
    """What a plan leaves of the pods of one priority and of all higher ones, and what no plan can beat.

    Attributes:
        priority: the lowest of these pods.
        waiting: how many of them the plan leaves.
        pods: no plan leaves fewer of them; 0: nothing is known.
    """

    priority: int
    waiting: int
    pods: int


class LeftAtLeast(msgspec.Struct, frozen=True, rename="camel"):
    """What a plan leaves, and what no plan can beat, plans that evict or move running pods among them.

    Attributes:
        waiting: pods of the round that the plan leaves.
        pods: no plan leaves fewer; 0: nothing is known.
        resource: the extended resource that these pods ask for most; "": none.
        asked: how much of it the pods ask for that the plan leaves.
        amount: pods that ask for less of it together are left by no plan; 0: nothing is known.
        levels: one for each priority of pods that wait, the highest first; none where all pods have one priority.
        further_levels: lower priorities of pods that wait, for which none was computed: there are many.
        bound_notes: what these bounds do not count in full, by code; none where they are exact.
        size: how large the pods are together that the plan leaves, in mean nodes: of each pod counts the resource of
            which it takes the largest part.
        least_size: no plan leaves pods that are less together, in mean nodes; 0: not known, or ``pods`` is exact, or
            ``amount`` says more.
    """

    waiting: int
    pods: int
    resource: str = ""
    asked: int = 0
    amount: int = 0
    levels: tuple[LeftOfLevel, ...] = ()
    further_levels: int = 0
    bound_notes: tuple[str, ...] = ()
    size: float = 0.0
    least_size: float = 0.0

    @property
    def sentence(self) -> str:
        """For people: "66 pods have no node; no plan leaves fewer than 60 pods"; "": nothing is known, and not why."""
        wait = "1 pod has no node" if self.waiting == 1 else f"{self.waiting:,} pods have no node"
        if not self.pods:
            weak = words_of(self.bound_notes)
            return f"{wait}; how few a plan must leave is not known: {weak}" if weak else ""
        pods = "1 pod" if self.pods == 1 else f"{self.pods:,} pods"
        if not self.amount:
            if self.pods == self.waiting:
                return f"{wait}; no plan leaves fewer"
            if not self.least_size:
                return f"{wait}; no plan leaves fewer than {pods}"
            larger, least = counted_nodes(self.size, up=True), counted_nodes(self.least_size)
            return (
                f"{wait}, together as large as {larger}; every plan leaves at least {pods}, and pods that are together "
                f"as large as {least}"
            )
        asked = f"{wait} and {'asks' if self.waiting == 1 else 'ask'} for {counted_amount(self.resource, self.asked)}"
        if (self.pods, self.amount) == (self.waiting, self.asked):
            return f"{asked}; no plan leaves fewer"
        return (
            f"{asked}; every plan leaves at least {pods}, and requests for {counted_amount(self.resource, self.amount)}"
        )

    @property
    def sentence_of_all(self) -> str:
        """The same, beside pods of which only some are listed."""
        return f"in the whole cluster {self.sentence}" if self.sentence else ""


def counted_nodes(size: float, *, up: bool = False) -> str:
    """A number of mean nodes, for people: "12.5 nodes".

    Args:
        up: rounded up; else down.
    """
    tenths = -(-round(size * 1000) // 100) if up else round(size * 1000) // 100
    return "1 node" if tenths == 10 else f"{f'{tenths / 10:,.1f}'.removesuffix('.0')} nodes"


def counted_amount(resource: str, amount: float) -> str:
    """So much of an extended resource, for people: "16 GPUs", "1.5 example.com/license"."""
    unit = ("GPU" if amount == 1 else "GPUs") if resource.endswith("/gpu") else resource
    return f"{int(amount) if amount == int(amount) else amount:,} {unit}"
