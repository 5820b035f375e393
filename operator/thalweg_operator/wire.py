"""What the operator and its worker process say to each other: length-prefixed MessagePack."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from flowcore.model.gangs import Gang
from flowcore.model.holds import Holds
from flowcore.model.lasting import Lasting
from flowcore.model.neighbours import Kind
from flowcore.model.nodes import Node, Report
from flowcore.model.pods import HostPort, PodClass
from flowcore.model.policies import Policy
from flowcore.model.resources import Amounts
from flowcore.model.selectors import Labels
from flowcore.model.snapshot import Replaced
from flowcore.model.volumes import StorageKey, StorageObject, Volumes
from flowcore.rounds.plan import gap

LENGTH: Final = struct.Struct(">Q")
#: Lists of a request that may be long, and how much of them goes into one part.
_LONG: Final = ("nodes", "uses", "neighbours", "reports", "storage", "storage_gone", "waiting", "kinds")
_PART: Final = 1000


class Use(msgspec.Struct, array_like=True):
    """What is taken on one node."""

    node: str
    amounts: Amounts
    pods: int
    cpu: int
    memory: int
    ports: tuple[HostPort, ...]
    volumes: Volumes = ()


class Told(msgspec.Struct, array_like=True):
    """A node's report (model/nodes.py Report); images by their place in the request's list."""

    node: str
    images: tuple[int, ...]
    bandwidth: int | None


def told(node: str, report: Report, images: dict[tuple[str, int], int]) -> Told:
    """A node's report; images that are new get the next place in ``images``."""
    return Told(node, tuple(images.setdefault(image, len(images)) for image in report.images), report.bandwidth)


class Waiting(msgspec.Struct, array_like=True):
    """A pending pod; class, policy and kind by their place in the request's lists."""

    key: str
    pod_class: int
    policy: int
    created: float
    kind: int
    gangs: tuple[str, ...] = ()
    replaces: Replaced | None = None
    since: float = 0.0


class RoundRequest(msgspec.Struct):
    """Changes since the last request, and what to plan.

    Attributes:
        fresh: the worker is to forget what it has first.
        budget: seconds after which no further step of the round begins.
        deadline: seconds after which the round has failed, in the middle of a step too; 0: none.
        steps: how many steps to take whatever the clock says, for a replay; 0 leaves it to the budget.
        seed: of the choices that the round makes.
        namespaces: labels of those that changed, None for those that are gone.
        neighbours: kind by its place in ``kinds``, node name, and how many more (or fewer) of them run there.
        images: names and bytes of the images in ``reports``: most nodes hold the same few.
        storage, storage_gone: storage objects that came or changed, and those that went.
        gangs: all that waiting pods belong to.
        lasting: what does not come free on nodes (model/lasting.py); None: as it was told last.
        holds: how long room has been kept for gangs, as the last reply has it.
    """

    number: int
    generation: int
    now: float
    fresh: bool
    nodes: list[Node]
    gone: list[str]
    uses: list[Use]
    namespaces: dict[str, Labels | None]
    kinds: list[Kind]
    neighbours: list[tuple[int, str, int]]
    images: list[tuple[str, int]]
    reports: list[Told]
    policies: list[Policy]
    classes: list[PodClass]
    waiting: list[Waiting]
    budget: float
    steps: int = 0
    seed: int = 0
    storage: list[StorageObject] = []
    storage_gone: list[StorageKey] = []
    gangs: list[Gang] = []
    lasting: tuple[Lasting, ...] | None = None
    holds: Holds = Holds()
    deadline: float = 0.0
    #: Whether more of it follows (see ``cut``).
    more: bool = False


def cut(request: RoundRequest) -> Iterator[RoundRequest]:
    """A request in parts, each short enough to be encoded between two turns of the event loop."""
    longest = max(len(getattr(request, name)) for name in _LONG)
    for start in range(0, max(1, longest), _PART):
        lists = {name: getattr(request, name)[start : start + _PART] for name in _LONG}
        if start:
            lists |= {"policies": [], "classes": [], "gone": [], "images": [], "gangs": [], "lasting": None}
        more = start + _PART < longest
        yield msgspec.structs.replace(request, **lists, more=more)


def join(parts: Sequence[RoundRequest]) -> RoundRequest:
    """The request that was cut into these."""
    if len(parts) == 1:
        return parts[0]
    lists = {name: [each for part in parts for each in getattr(part, name)] for name in _LONG}
    return msgspec.structs.replace(parts[0], **lists, more=False)


class Greeting(msgspec.Struct):
    """What a worker says first: the cost models that it has, and why others are not used."""

    models: list[str]
    problems: dict[str, str]


class RoundReply(msgspec.Struct):
    """A plan. Pods by their place in the request's ``waiting``, reasons by their place in ``reasons``.

    Attributes:
        placements: pod, node, price, chain and wave (rounds/waves.py), unit by its place in ``units`` (-1: by itself)
            and whether its unit does without it (rounds/plan.py Placement), in commit order.
    """

    number: int
    generation: int
    placements: list[tuple[int, str, int, tuple[int, int], int, bool]]
    left: list[tuple[int, int]]
    reasons: list[str]
    #: Cost per policy, by its place in the request.
    costs: list[int]
    #: Of the pods that are bound: what no plan costs less than, and steps taken.
    cost: int
    lower_bound: int
    steps: int
    method: str
    solves: int
    arcs: int
    seconds: float
    #: What verdicts were asked for and how often they were hits, refreshed in part, misses, and rows computed.
    cached: list[tuple[str, int, int, int, int]] = []
    #: For pods that kube-scheduler may place in the end: one pod of each class and policy, and scores by node name
    #: (rounds/scores.py), encoded once more: most are never looked at.
    scores: list[tuple[int, bytes]] = []
    units: list[str] = []
    #: Policies, by their place in the request, that rule some of their own pods out, and how.
    contradictions: list[tuple[int, str]] = []
    holds: Holds = Holds()
    #: Why there is no plan, and of what kind that is (errors.py WorkerLost).
    problem: str = ""
    cause: str = ""

    @property
    def gap(self) -> float:
        """How much of the cost is not proved to be needed, 0..1."""
        return gap(self.cost, self.lower_bound)

    @property
    def certified(self) -> bool:
        """Whether no plan can cost less."""
        return self.cost == self.lower_bound


def failed(request: RoundRequest, problem: str, cause: str = "error") -> RoundReply:
    """The reply to a request that could not be answered."""
    return RoundReply(
        number=request.number,
        generation=request.generation,
        placements=[],
        left=[],
        reasons=[],
        costs=[],
        cost=0,
        lower_bound=0,
        steps=0,
        method="",
        solves=0,
        arcs=0,
        seconds=0.0,
        problem=problem,
        cause=cause,
    )


@lru_cache(maxsize=16)
def decode_scores(encoded: bytes) -> Mapping[str, int]:
    """Scores by node name."""
    return msgspec.msgpack.decode(encoded, type=dict[str, int])


request_encoder = msgspec.msgpack.Encoder()
request_decoder = msgspec.msgpack.Decoder(RoundRequest)
greeting_decoder = msgspec.msgpack.Decoder(Greeting)
reply_encoder = msgspec.msgpack.Encoder()
reply_decoder = msgspec.msgpack.Decoder(RoundReply)
