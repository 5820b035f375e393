"""A node fails, and pods of a gang come back: into the domain of their gang or slice, beside those that still run."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

import pytest
from support.cli import Manifest, node, pod
from support.scenario_state import NOW, scenario_of

from flowcore.model.gang_spec import GANG, GANG_MIN_MEMBER, GANG_TOPOLOGY
from flowcore.model.gang_topology import GANG_SLICE_SIZE, GANG_SLICE_TOPOLOGY
from flowcore.questions.diagnosis.answers import WhyKind, WhyQuery
from flowcore.questions.diagnosis.why import answer_why
from flowcore.questions.scenario import plan_scenario
from flowcore.questions.scenario.context import AnswerContext

INDEX = "batch.kubernetes.io/job-completion-index"
SLICED = {GANG_SLICE_TOPOLOGY: "rack", GANG_SLICE_SIZE: "4"}


def host(name: str, cpu: str = "2") -> Manifest:
    """A node of a rack of a block: that of ``b1x0`` is b1, and its block is b."""
    made = node(name, cpu)
    made["metadata"]["labels"] |= {"rack": name[:2], "block": name[0]}
    return made


def members(ranks: Iterable[int], least: int, terms: Manifest, on: str = "") -> list[Manifest]:
    """Pods of a gang by their ranks."""
    said = {GANG: "train", GANG_MIN_MEMBER: str(least), **terms}
    spec = {"nodeName": on} if on else {}
    return [pod(f"p{rank}", metadata={"annotations": said, "labels": {INDEX: str(rank)}}, **spec) for rank in ranks]


def others(**on: int) -> list[Manifest]:
    """Pods of one core that run on nodes."""
    return [pod(f"{name}-{number}", nodeName=name) for name, count in on.items() for number in range(count)]


class Rounds:
    """Round after round: what is planned runs before the next one."""

    def __init__(self, nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> None:
        self._nodes = {each["metadata"]["name"]: each for each in nodes}
        self._pods = {each["metadata"]["name"]: each for each in pods}

    def next(self) -> None:
        """One round."""
        result = plan_scenario(scenario_of(self.objects), NOW).result
        assert not result.evictions
        for placement in result.placements:
            self._pods[placement.pod.key.partition("/")[2]]["spec"]["nodeName"] = placement.node

    @property
    def objects(self) -> Sequence[Manifest]:
        """All there is."""
        return [*self._nodes.values(), *self._pods.values()]

    def fails(self, name: str) -> None:
        """A node is gone with its pods, and controllers make those of the gang again, with the same ranks."""
        del self._nodes[name]
        for key, lost in list(self._pods.items()):
            if lost["spec"].get("nodeName") != name:
                continue
            del self._pods[key]
            if key.startswith("p"):
                again = copy.deepcopy(lost)
                del again["spec"]["nodeName"]
                again["metadata"]["name"] = f"{key}x"
                self._pods[f"{key}x"] = again

    def racks(self) -> dict[int, str]:
        """The rack of each pod of the gang that runs, by rank."""
        return {
            int(each["metadata"]["labels"][INDEX]): each["spec"]["nodeName"][:2]
            for each in self._pods.values()
            if INDEX in each["metadata"].get("labels", {}) and "nodeName" in each["spec"]
        }

    def node_of(self, rank: int) -> str:
        """Where the pod of a rank runs."""
        return next(
            each["spec"]["nodeName"]
            for each in self._pods.values()
            if each["metadata"].get("labels", {}).get(INDEX) == str(rank)
        )

    def why(self, name: str) -> tuple[WhyKind, str, list[str], str]:
        """Why a pod waits: kind, text, evidence and next step."""
        answer = answer_why(scenario_of(self.objects), WhyQuery(f"default/{name}", fixes=False), AnswerContext(NOW))
        return answer.kind, answer.text, answer.evidence, answer.next


BLOCKS = [host(f"{rack}x{number}") for rack in ("a1", "a2", "a3", "b1", "b2", "b3") for number in range(3)]


def test_pods_of_a_slice_come_back_to_its_rack() -> None:
    """Node after node fails, and each rank is in the rack of its slice again, though others are as free."""
    rounds = Rounds(BLOCKS, members(range(8), 8, {GANG_TOPOLOGY: "block", **SLICED}))
    rounds.next()
    begun = rounds.racks()
    assert len(begun) == 8
    assert len({begun[rank] for rank in range(4)}) == len({begun[rank] for rank in range(4, 8)}) == 1
    for rank in (1, 6):
        rounds.fails(rounds.node_of(rank))
        assert rounds.racks() != begun
        rounds.next()
        assert rounds.racks() == begun


def test_pods_of_a_gang_come_back_to_its_block() -> None:
    """A gang with a required block and ranks, without slices."""
    rounds = Rounds(BLOCKS, members(range(5), 5, {GANG_TOPOLOGY: "block"}))
    rounds.next()
    (block,) = {rack[0] for rack in rounds.racks().values()}
    for rank in (0, 4, 2):
        rounds.fails(rounds.node_of(rank))
        rounds.next()
        assert {rack[0] for rack in rounds.racks().values()} == {block}
        assert sorted(rounds.racks()) == list(range(5))


def test_a_slice_of_which_nothing_is_left_gets_another_rack() -> None:
    """In the block of the others, whichever rack has room."""
    nodes = [host("a1x0", "4"), host("a2x0", "4"), host("a3x0", "4"), host("b1x0", "9"), host("b2x0", "9")]
    rounds = Rounds(nodes, [*members(range(4), 8, {GANG_TOPOLOGY: "block", **SLICED}, on="a1x0"),
                            *members(range(4, 8), 8, {GANG_TOPOLOGY: "block", **SLICED}, on="a2x0")])  # fmt: skip
    rounds.fails("a2x0")
    rounds.next()
    assert rounds.racks() == dict.fromkeys(range(4), "a1") | dict.fromkeys(range(4, 8), "a3")


FULL = [host("a1x0", "4"), host("a2x0", "3"), host("a2x1", "1")]
SPREAD = members(range(4), 8, {GANG_TOPOLOGY: "block", **SLICED}, on="a1x0")
SECOND = members(range(4, 7), 8, {GANG_TOPOLOGY: "block", **SLICED}, on="a2x0")


def test_a_rack_without_room() -> None:
    """The pod waits, nobody moves, and the reason names the rack, not the block, which has room."""
    back = members([7], 8, {GANG_TOPOLOGY: "block", **SLICED})
    rounds = Rounds([*FULL, host("a3x0", "3"), host("b1x0", "9")], [*SPREAD, *SECOND, *back, *others(a2x1=1)])
    rounds.next()
    assert 7 not in rounds.racks()
    kind, text, evidence, step = rounds.why("p7")
    assert kind is WhyKind.NOTHING_FITS
    assert text == "gang default/train slice 1 keeps to rack a2, where no node has room for it."
    assert evidence[0] == "Of the nodes of rack a2: 2 Insufficient cpu."
    assert step == "Free room in rack a2, or add a node there."


def test_a_slice_that_would_fit_elsewhere_as_a_whole() -> None:
    """The reason says where, in the block of its gang, and how many would have to move; nobody is evicted for it."""
    back = members([7], 8, {GANG_TOPOLOGY: "block", **SLICED})
    rounds = Rounds([*FULL, host("a3x0", "4"), host("b1x0", "9")], [*SPREAD, *SECOND, *back, *others(a2x1=1)])
    rounds.next()
    _, text, _, _ = rounds.why("p7")
    assert text == (
        "gang default/train slice 1 keeps to rack a2, where no node has room for it. As a whole it would fit rack a3, "
        "which has room for 4 such pods: 3 of its pods would have to move."
    )


def test_a_rack_with_room_for_some() -> None:
    """Two pods come back and one fits: the gang needs both, and the reason names the rack."""
    back = members([6, 7], 8, {GANG_TOPOLOGY: "block", **SLICED})
    rounds = Rounds([*FULL, host("a3x0", "9")], [*SPREAD, *SECOND[:2], *back, *others(a2x1=1)])
    rounds.next()
    _, text, _, _ = rounds.why("p7")
    assert text == (
        "gang default/train needs 2 pods at once: gang default/train slice 1 keeps to rack a2, where there is room for "
        "1 of 2 beside what is placed. As a whole it would fit rack a3, which has room for 4 such pods: 2 of its pods "
        "would have to move."
    )


@pytest.mark.parametrize("terms", [{GANG_TOPOLOGY: "block"}, {GANG_TOPOLOGY: "block", **SLICED}])
def test_a_block_without_room(terms: Manifest) -> None:
    """The widest level that has none is named: another rack of the block would not help."""
    running = members(range(4), 5, terms, on="a1x0")
    rounds = Rounds([host("a1x0", "4"), host("b1x0", "3")], [*running, *members([4], 5, terms)])
    rounds.next()
    _, text, _, step = rounds.why("p4")
    assert text == "gang default/train keeps to block a, where no node has room for it."
    assert step == "Free room in block a, or add a node there."
