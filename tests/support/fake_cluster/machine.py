"""Histories of the ledger that hypothesis draws: what all of them have, and what each may add.

A test puts a machine together from these classes and says what it begins with. After each step all of
``support.fake_cluster.checks`` holds, and the invariants of ``LedgerMachine``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.claims import ClaimNotToBeHad, claiming
from support.fake_cluster.cluster import FakeCluster
from support.fake_cluster.volumes import LOCAL, MADE
from thalweg_operator.reservations.effects import Allocate, Bind, Nominate
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.nominations import nominations
from thalweg_operator.reservations.step.bindings import KEPT_TRIES

from flowcore.model.advice import HELD_MESSAGE, UNSEEN_MESSAGE
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import SCHEDULER_NAME, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.resource_claims import ClaimingPod, ExtendedRequest, ExtendedRequests, PodClaim
from flowcore.model.volumes import ClaimVolume

#: What the API server answers, and why; a binding alone may be refused without a reason.
ANSWERS = (
    (Answer.DONE, ""),
    (Answer.DONE, ""),
    (Answer.REFUSED, "made up"),
    (Answer.REFUSED, ""),
    (Answer.RETRYING, "made up"),
)
answers = st.sampled_from(ANSWERS)
URGENT = 1000
#: An extended resource that the class of all devices backs, and the request that a claim has in its place.
DEVICES, _REQUEST = "deviceclass.resource.kubernetes.io/gpu", "container-0-request-1"
#: Reservations that nobody steers to: their pods wait for others to leave, or for a round.
NOT_BEGUN = (Phase.AWAITING_VICTIM, Phase.AWAITING_REPLACEMENT, Phase.HELD)


def sized(cpu: int, priority: int = 0) -> PodClass:
    """A class of pods."""
    return PodClass(requests=(("cpu", cpu),), priority=priority)


def asking_for(pod_class: PodClass, count: int) -> tuple[PodClass, ExtendedRequests]:
    """A class of pods that ask for so many devices by a resource besides, and what a claim has in its place."""
    asking = msgspec.structs.replace(pod_class, requests=(*pod_class.requests, (DEVICES, count)))
    return asking, (ExtendedRequest(DEVICES, ((_REQUEST, count),), (("main", _REQUEST),)),)


def room(name: str, cpu: int, offered: int = 0) -> Node:
    """A node; ``offered``: how many devices it offers itself, by their resource."""
    devices = ((DEVICES, offered),) if offered else ()
    return Node(name, allocatable=(("cpu", cpu), ("pods", 10), *devices))


#: A PodGroup, and a claim that it shares with its pods.
GROUP, GROUP_UID, OF_GROUP = GangKey(GangSource.NATIVE, NAMESPACE, "train"), "group", PodClaim("gpu", template="t")


def gang(name: str, count: int) -> GangRef:
    """Membership of a gang that needs so many pods."""
    return GangRef(GangKey(GangSource.THALWEG, NAMESPACE, name), GangSpec(min_member=count))


def pick(keys: Iterable[str], at: int) -> str:
    """One of these."""
    ordered = sorted(keys)
    return ordered[at % len(ordered)]


class LedgerMachine(RuleBasedStateMachine):
    """A watch that lags, rounds, writes that are refused or lost, and time.

    Attributes:
        gangs: how many pods each gang needs, by name; its pods are named after it.
        refused: how often a binding of each pod was refused after its gang had begun.
    """

    #: Seconds that pass between rounds at the end; longer than any pause.
    PAUSE = 60.0

    def set_up(self, nodes: Sequence[Node], policies: Sequence[Policy]) -> None:
        """To be called first."""
        self.world = FakeCluster(nodes, policies)
        self.gangs: dict[str, int] = {}
        self.refused: Counter[str] = Counter()

    def create_gang(self, name: str, size: int, **fields: Any) -> None:
        """Pods of a gang, ``name-0`` and so on, which are bound by us."""
        self.gangs[name] = size
        for at in range(size):
            self.world.create_pod(f"{name}-{at}", scheduler_name=SCHEDULER_NAME, gang=gang(name, size), **fields)

    # --- rules ---

    @precondition(lambda self: self.world.watch)
    @rule(count=st.sampled_from((1, 2, 100)))
    def watch_shows(self, count: int) -> None:
        self.world.show(count)

    @precondition(lambda self: self.world.plan is None)
    @rule(count=st.sampled_from((1, 2, 100)))
    def round_plans(self, count: int) -> None:
        self.world.make_plan()
        self.world.deliver(count)

    @precondition(lambda self: self.world.plan is not None)
    @rule(count=st.sampled_from((1, 2, 10)))
    def plan_goes_on(self, count: int) -> None:
        self.world.deliver(count)

    @precondition(lambda self: self.world.writes)
    @rule(at=st.integers(0, 8), answer=answers, lost=st.sampled_from((False, False, True)), shown_first=st.booleans())
    def write_is_sent(self, at: int, answer: tuple[Answer, str], lost: bool, shown_first: bool) -> None:  # noqa: FBT001
        self.send(at % len(self.world.writes), answer, lost=lost, shown_first=shown_first)

    @rule(seconds=st.sampled_from((0.05, 0.2, 1.0, 3.0, 7.0, 20.0, 70.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    def send(self, at: int, answer: tuple[Answer, str], *, lost: bool = False, shown_first: bool = False) -> None:
        """A write is sent and answered."""
        world, write, (what, reason) = self.world, self.world.writes[at], answer
        known = world.api.get(write.pod.key) if isinstance(write, Bind) else None
        if isinstance(write, Bind) and what is Answer.REFUSED and not lost and known is not None:
            gang = write.pod.gang
            siblings = [] if gang is None else [pod for pod in world.api.values() if pod.gang == gang]
            self.refused[write.pod.key] += not known.node_name and any(pod.node_name for pod in siblings)
        said = reason if isinstance(write, Bind) else reason or "made up"
        world.send(at, what, reason=said, lost=lost, shown_first=shown_first)

    # --- what always holds ---

    @invariant()
    def steered_pods_have_their_reservations(self) -> None:
        """And those reservations have somebody who ends them."""
        if not hasattr(self, "world") or self.world.plan is not None:
            return
        steered = {each.pod.key: (each.pod.uid, each.node) for each in nominations(self.world.ledger)}
        reserved = {key: (each.pod.uid, each.node) for key, each in self.world.state.reservations.items()
                    if each.owner is Owner.STEERING and each.phase not in NOT_BEGUN}  # fmt: skip
        assert steered == reserved

    @invariant()
    def one_nomination_at_a_time(self) -> None:
        """Of the writes in line for a pod that are wanted, none names another node than its reservation."""
        for write in self.world.writes if hasattr(self, "world") else ():
            if isinstance(write, Nominate) and self.world.is_wanted(write):
                assert self.world.state.reservations[write.pod.key].node == write.node

    # --- the end ---

    def teardown(self) -> None:
        """See ``check_the_end``."""
        if hasattr(self, "world"):
            self.check_the_end()

    def check_the_end(self) -> None:
        """The faults end, and everything comes to rest: gangs are whole or absent, no node is overcommitted."""
        world = self.world
        for node in list(world.nodes.values()):
            world.put_node(msgspec.structs.replace(node, unschedulable=False))
        for _ in range(30):
            world.settle()
            self.others_act()
            world.settle()
            world.pass_time(self.PAUSE)
            world.settle()
            world.wait(1)
            world.make_plan()
            planned = world.plan is not None and bool(world.plan.placements)
            world.settle()
            world.wait(1)
            if not (planned or world.ledger.reservations or world.ledger.unevictable):
                break
        assert not world.ledger.reservations
        assert not world.ledger.victims
        assert not world.shell.state.moves.awaited
        self.others_act()
        for name, node in world.nodes.items():
            taken = sum(dict(pod.usage).get("cpu", 0) for pod in world.api.values() if pod.node_name == name)
            assert taken <= dict(node.allocatable)["cpu"], f"{name} gives {taken}"
        for name, size in self.gangs.items():
            pods = [pod for pod in world.api.values() if pod.name.startswith(f"{name}-")]
            bound = sum(bool(pod.node_name) for pod in pods)
            assert bound in (0, size) or len(pods) < size or self.may_be_partial(pods), (
                f"{name} has {bound} of {size} pods"
            )

    def others_act(self) -> None:
        """What controllers do until all is at rest."""

    def may_be_partial(self, pods: Sequence[Pod]) -> bool:
        """Whether a gang of these pods may be bound in part at the end: one was refused too often."""
        return max(self.refused[pod.key] for pod in pods) > KEPT_TRIES


class WholeRounds(LedgerMachine):
    """Rounds whose writes are sent at once."""

    @rule(drawn=st.lists(answers, min_size=1, max_size=8), shown=st.booleans(), comes=st.booleans())
    def a_round_is_carried_out(self, drawn: list[tuple[Answer, str]], shown: bool, comes: bool) -> None:  # noqa: FBT001
        """As on most days, but for some answers."""
        self.world.show()
        self.world.make_plan()
        self.world.deliver(100)
        for answer in drawn:
            self.world.pass_time(0.1)
            if self.world.writes:
                self.send(0, answer)
        if shown:
            self.world.show()
        if comes:
            self.another_comes()

    def another_comes(self) -> None:
        """Another pod, which wants the room that was given back, if there is any such."""


class Disturbances(LedgerMachine):
    """Pods terminate, nodes are cordoned, the operator starts again."""

    @precondition(lambda self: any(pod.deleting for pod in self.world.api.values()))
    @rule()
    def pods_terminate(self) -> None:
        self.world.remove_deleting_pods()

    @precondition(lambda self: self.world.nodes)
    @rule(at=st.integers(0, 1), cordoned=st.booleans())
    def a_node_is_cordoned(self, at: int, cordoned: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        node = self.world.nodes[pick(self.world.nodes, at)]
        self.world.put_node(msgspec.structs.replace(node, unschedulable=cordoned))

    @rule()
    def the_operator_starts_again(self) -> None:
        self.world.start()


class Gangs(WholeRounds):
    """Gangs and pods by themselves want the same room."""

    MOST_SINGLES = 4
    singles = 0

    @precondition(lambda self: len(self.gangs) < 5)
    @rule(size=st.integers(2, 3))
    def gang_comes(self, size: int) -> None:
        self.create_gang(f"g{len(self.gangs)}", size, pod_class=sized(100))

    @precondition(lambda self: self.singles < self.MOST_SINGLES)
    @rule()
    def pod_comes(self) -> None:
        self.singles += 1
        self.world.create_pod(f"single-{self.singles}", pod_class=sized(100), scheduler_name=SCHEDULER_NAME)

    def another_comes(self) -> None:
        """See WholeRounds."""
        if self.singles < self.MOST_SINGLES:
            self.pod_comes()


class Claims(Gangs):
    """Pods by themselves and of gangs claim devices, whole or shared; drivers and others do what they like.

    Attributes:
        made: how many pods with claims there were.
    """

    made = 0

    def claiming_pod(self, name: str, count: int, volume: str = "", asks: int = 0, **fields: Any) -> None:
        """A pod with so many claims that were made for it, each for one device.

        Args:
            volume: class of a volume that it claims too; "": it claims none.
            asks: how many devices it asks for by an extended resource, where its node does not offer that.
        """
        self.made += 1
        uid = f"c{self.made}"
        names = [f"{name}-{uid}-{number}" for number in range(count)]
        for claim in names:
            self.world.devices.make(NAMESPACE, claim, f"uid-of-{claim}", owner=uid)
        pod_class = sized(100)
        if names:
            devices = claiming(NAMESPACE, name, uid, *names, template=True)
            pod_class = msgspec.structs.replace(pod_class, devices=devices)
        if asks:
            pod_class, fields["extended"] = asking_for(pod_class, asks)
        if volume:
            self.world.volumes.make(NAMESPACE, f"data-{uid}", f"uid-of-data-{uid}", volume)
            pod_class = msgspec.structs.replace(pod_class, volumes=(ClaimVolume(NAMESPACE, f"data-{uid}"),))
        self.world.create_pod(name, uid, pod_class=pod_class, scheduler_name=SCHEDULER_NAME, **fields)

    @precondition(lambda self: self.made < 10)
    @rule(size=st.sampled_from((1, 1, 2, 3)), claims=st.sampled_from((1, 1, 2)), plain=st.booleans())
    def pods_with_claims_come(self, size: int, claims: int, plain: bool) -> None:  # noqa: FBT001
        """A pod, or a gang; ``plain``: one of the gang claims nothing."""
        if size == 1:
            self.claiming_pod(f"claims-{self.made}", claims)
            return
        name = f"d{self.made}"
        self.gangs[name] = size
        for at in range(size):
            if plain and at == 0:
                ours = {"pod_class": sized(100), "scheduler_name": SCHEDULER_NAME}
                self.world.create_pod(f"{name}-{at}", gang=gang(name, size), **ours)
            else:
                self.claiming_pod(f"{name}-{at}", claims, gang=gang(name, size))

    @precondition(lambda self: self.made < 10)
    @rule(size=st.sampled_from((1, 1, 1, 2)), asks=st.sampled_from((1, 1, 2)), claims=st.sampled_from((0, 0, 1)))
    def pods_with_an_extended_resource_come(self, size: int, asks: int, claims: int) -> None:
        """A pod, or a gang, perhaps with a claim too."""
        name = f"e{self.made}"
        gangs = {} if size == 1 else {"gang": gang(name, size)}
        if gangs:
            self.gangs[name] = size
        for at in range(size):
            self.claiming_pod(f"{name}-{at}", claims, asks=asks, **gangs)

    @precondition(lambda self: any(isinstance(write, Allocate) for write in self.world.writes))
    @rule(parts=st.integers(0, 4))
    def the_operator_is_killed_between_writes(self, parts: int) -> None:
        """So many parts of a write are carried out."""
        write = next(write for write in self.world.writes if isinstance(write, Allocate))
        if self.world.is_wanted(write):
            with suppress(ClaimNotToBeHad):
                self.world.devices.allocate(write, parts)
        self.world.start()

    @precondition(lambda self: self.made < 10)
    @rule()
    def a_pod_shares_a_claim(self) -> None:
        self.made += 1
        uid = f"c{self.made}"
        if (NAMESPACE, "shared") not in self.world.devices.claims:
            self.world.devices.make(NAMESPACE, "shared", "claim-shared")
        devices = claiming(NAMESPACE, f"shares-{uid}", uid, "shared", template=False)
        pod_class = msgspec.structs.replace(sized(100), devices=devices)
        self.world.create_pod(f"shares-{uid}", uid, pod_class=pod_class, scheduler_name=SCHEDULER_NAME)

    @precondition(lambda self: self.made < 10)
    @rule(count=st.sampled_from((1, 2, 2)))
    def pods_of_a_group_come(self, count: int) -> None:
        """They share a claim that was made for their PodGroup, of which two pods run at least."""
        if GROUP not in self.world.pod_groups:
            group = PodGroup(GROUP, GangSpec(min_member=2), uid=GROUP_UID, claims=(OF_GROUP,))
            self.world.put_pod_group(group)
            self.world.devices.make(NAMESPACE, "of-group", "claim-of-group", owner=GROUP_UID, group=GROUP.name)
        for _ in range(count):
            self.made += 1
            uid = f"c{self.made}"
            devices = ClaimingPod(NAMESPACE, f"member-{uid}", uid, (OF_GROUP,), ((OF_GROUP.name, "of-group"),))
            pod_class = msgspec.structs.replace(sized(100), devices=devices)
            self.world.create_pod(
                f"member-{uid}", uid, pod_class=pod_class, scheduler_name=SCHEDULER_NAME, gang=GangRef(GROUP)
            )

    @precondition(lambda self: self.world.devices.claims)
    @rule(at=st.integers(0, 9), ready=st.sampled_from((True, True, False)))
    def a_driver_reports(self, at: int, ready: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        claims = sorted(self.world.devices.claims)
        self.world.devices.report(claims[at % len(claims)], ready=ready)

    @precondition(lambda self: self.world.devices.free_devices())
    @rule(at=st.integers(0, 9), which=st.integers(0, 9), for_its_pod=st.booleans())
    def others_allocate(self, at: int, which: int, for_its_pod: bool) -> None:  # noqa: FBT001
        """Another scheduler gives a free device to a claim: of a pod of ours, or of one of its own."""
        free = self.world.devices.free_devices()
        empty = [
            key
            for key, each in self.world.devices.claims.items()
            if each.allocation is None and each.controller and not each.is_extended
        ]
        if for_its_pod and empty:
            key = empty[at % len(empty)]
            self.world.devices.allocate_elsewhere(key, free[which % len(free)])
        else:
            key = (NAMESPACE, f"other-{which}")
            if key not in self.world.devices.claims:
                self.world.devices.make(*key, f"other-{which}")
                self.world.devices.allocate_elsewhere(key, free[at % len(free)], "a pod of others")

    @precondition(lambda self: any(pod.pod_class.devices or pod.extended for pod in self.world.api.values()))
    @rule(at=st.integers(0, 9))
    def a_pod_goes(self, at: int) -> None:
        keys = sorted(key for key, pod in self.world.api.items() if pod.pod_class.devices is not None or pod.extended)
        self.world.remove_pod(keys[at % len(keys)])

    @rule()
    def the_controller_acts(self) -> None:
        self.others_act()

    def others_act(self) -> None:
        """Kubernetes' controller removes pods that are gone; drivers get devices ready."""
        uids = {pod.uid for pod in self.world.api.values()}
        self.world.devices.follow_pods(uids | {"a pod of others", GROUP_UID})

    def check_the_end(self) -> None:
        """And every allocation of ours is of a pod that is bound, or that could be."""
        devices = self.world.devices
        for _ in range(3):
            for key in list(devices.claims):
                devices.report(key, ready=True)
            self.world.settle()
        devices.later.clear()
        super().check_the_end()
        self.world.wait(30, 5.0)
        self.others_act()
        self.world.settle()
        bound = {pod.uid for pod in self.world.api.values() if pod.node_name}
        members = [pod for pod in self.world.api.values() if pod.gang == GangRef(GROUP)]
        if not members or any(pod.node_name for pod in members):
            bound.add(GROUP_UID)  # it keeps what it has when its pods are gone
        for known in devices.claims.values():
            if known.is_ours and (known.allocation is not None or known.is_extended):
                assert set(known.reserved_for) & bound, f"{known.name} has a device and no pod, or is left over"
        for node in self.world.nodes.values():
            asked = [dict(pod.usage).get(DEVICES, 0) for pod in self.world.api.values() if pod.node_name == node.name]
            offered = dict(node.allocatable).get(DEVICES, 0)
            assert not offered or sum(asked) <= offered, f"{node.name} gives {asked}"
        assert max(devices.held().values(), default=0) <= 1
        ledger, records = self.world.ledger, self.world.ledger.device_claims
        groups = ledger.bound_together
        kept = (records.users, records.releasing, records.ended, ledger.preparing, groups.members, groups.lost)
        assert not any(kept), kept


class VolumeClaims(Claims):
    """Pods by themselves and of gangs claim devices, volumes or both; provisioners refuse, others take volumes."""

    #: Device claims of a pod, and the class of the volume that it claims.
    KINDS: ClassVar = ((0, ""), (1, ""), (0, LOCAL), (0, MADE), (1, LOCAL), (1, MADE))

    @precondition(lambda self: self.made < 10)
    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    def pods_with_both_come(self, kinds: Sequence[tuple[int, str]]) -> None:
        """A pod, or a gang, of these kinds."""
        name = f"v{self.made}"
        gangs = {} if len(kinds) == 1 else {"gang": gang(name, len(kinds))}
        if gangs:
            self.gangs[name] = len(kinds)
        for at, (claims, volume) in enumerate(kinds):
            self.claiming_pod(f"{name}-{at}", claims, volume, **gangs)

    @precondition(lambda self: self.world.volumes.claims())
    @rule(at=st.integers(0, 9))
    def a_provisioner_refuses(self, at: int) -> None:
        claims = self.world.volumes.claims()
        claim = claims[at % len(claims)]
        self.world.volumes.refuse((claim.namespace, claim.name))

    @precondition(lambda self: self.world.volumes.volumes())
    @rule(at=st.integers(0, 9))
    def others_take_a_volume(self, at: int) -> None:
        volumes = self.world.volumes.volumes()
        self.world.volumes.take(volumes[at % len(volumes)].name)

    def others_act(self) -> None:
        """Controllers bind claims and make volumes, too."""
        super().others_act()
        self.world.volumes.controllers_act()

    def check_the_end(self) -> None:
        """And nothing is promised any more."""
        super().check_the_end()
        assert not self.world.cluster.storage.promises


class Preemption(WholeRounds):
    """Nodes full of pods of low priority, urgent pods and gangs."""

    MOST_URGENT = 5
    SIZES = (100, 200, 300)
    urgent = 0

    def low_pod_runs(self, node: str, cpu: int) -> None:
        """A pod of another scheduler, of priority 0 to 2, if there is room."""
        there = [pod for pod in self.world.api.values() if pod.node_name == node]
        free = dict(self.world.nodes[node].allocatable)["cpu"] - sum(dict(pod.usage)["cpu"] for pod in there)
        if free >= cpu:
            pod_class = sized(cpu, cpu // 100 - 1)
            self.world.create_pod(
                f"low-{node}-{free - cpu}",
                pod_class=pod_class,
                scheduler_name="x",
                node_name=node,
                usage=pod_class.requests,
            )

    @precondition(lambda self: self.urgent < self.MOST_URGENT)
    @rule(
        cpu=st.sampled_from(SIZES),
        members=st.sampled_from((0, 0, 2, 3)),
        never=st.sampled_from((False, False, False, True)),
        more=st.sampled_from((0, 0, 1)),
    )
    def urgent_pods_come(self, cpu: int, members: int, never: bool, more: int) -> None:  # noqa: FBT001 - hypothesis calls it
        self.urgent += 1
        fields = {"pod_class": sized(cpu, URGENT + more), "preempts": not never}
        if members:
            self.create_gang(f"u{self.urgent}", members, **fields)
        else:
            self.world.create_pod(f"u{self.urgent}-0", scheduler_name=SCHEDULER_NAME, **fields)

    @precondition(lambda self: self._urgent_pods())
    @rule(at=st.integers(0, 8))
    def an_urgent_pod_is_deleted(self, at: int) -> None:
        self.world.remove_pod(pick(self._urgent_pods(), at))

    def _urgent_pods(self) -> list[str]:
        return [key for key, pod in self.world.api.items() if pod.name.startswith("u")]

    def check_the_end(self) -> None:
        """And no urgent pod waits that could have room."""
        super().check_the_end()
        pods = self.world.api.values()
        for pod in pods:
            if not pod.node_name and pod.preempts and pod.gang is None:
                rooms = {name: dict(node.allocatable)["cpu"] for name, node in self.world.nodes.items()}
                for other in pods:
                    if other.node_name and other.pod_class.priority >= pod.pod_class.priority:  # nobody leaves for it
                        rooms[other.node_name] -= dict(other.usage)["cpu"]
                cpu = dict(pod.pod_class.requests)["cpu"]
                assert all(left < cpu for left in rooms.values()), f"{pod.name} waits, and could have room: {rooms}"

    def may_be_partial(self, pods: Sequence[Pod]) -> bool:
        """Never: see LedgerMachine."""
        return False


class Moves(WholeRounds):
    """Pods with controllers, and large pods that fit only if some of them move.

    Attributes:
        keeps_names: a pod comes once the one before it is gone, under its name, as of a StatefulSet.
        wanted: how many pods each controller has.
    """

    OWNERS = ("o1", "o2")
    keeps_names = False
    made = large = 0

    @staticmethod
    def moving(mode: ReschedulingMode) -> Policy:
        """The only policy."""
        return Policy("bound", rescheduling=ReschedulingPolicy(mode, min_age=0))

    def owned_pods_run(self, nodes: Sequence[str]) -> None:
        """A pod on each of these nodes, of the controllers in turn."""
        self.wanted: Counter[str] = Counter()
        for at, node in enumerate(nodes):
            owner = self.OWNERS[at % len(self.OWNERS)]
            self.wanted[owner] += 1
            self._make(owner, f"{owner}-{self.wanted[owner]}", node_name=node, usage=sized(100).requests)

    def _make(self, owner: str, name: str, **fields: Any) -> None:
        labels = (("name", name),)  # as with Jobs and StatefulSets
        self.world.create_pod(
            name, pod_class=sized(100), scheduler_name=SCHEDULER_NAME, owner=owner, labels=labels, **fields
        )

    @rule()
    def others_act(self) -> None:
        """A Deployment replaces a pod that is being deleted at once, a StatefulSet once it is gone, under its name."""
        for owner, wanted in self.wanted.items():
            pods = [pod for pod in self.world.api.values() if pod.owner == owner]
            if self.keeps_names:
                for name in {f"{owner}-{at}" for at in range(1, wanted + 1)} - {pod.name for pod in pods}:
                    self._make(owner, name)
            else:
                for _ in range(wanted - sum(not pod.deleting for pod in pods)):
                    self.made += 1
                    self._make(owner, f"{owner}-new-{self.made}")

    @precondition(lambda self: self.large < 3)
    @rule(cpu=st.sampled_from((200, 300, 300, 400)))
    def a_large_pod_comes(self, cpu: int) -> None:
        self.large += 1
        self.world.create_pod(f"large-{self.large}", pod_class=sized(cpu), scheduler_name=SCHEDULER_NAME)

    @precondition(lambda self: any(pod.name.startswith("large") for pod in self.world.api.values()))
    @rule(at=st.integers(0, 2))
    def a_large_pod_is_deleted(self, at: int) -> None:
        self.world.remove_pod(pick((key for key, pod in self.world.api.items() if pod.name.startswith("large")), at))

    @rule(mode=st.sampled_from((ReschedulingMode.ACT, *ReschedulingMode)))
    def the_policy_changes(self, mode: ReschedulingMode) -> None:
        self.world.set_policies([self.moving(mode)])

    def check_the_end(self) -> None:
        """And each pod has its replacement."""
        super().check_the_end()
        assert Counter(pod.owner for pod in self.world.api.values() if pod.owner) == self.wanted


class SteeredPods(LedgerMachine):
    """kube-scheduler tries pods, which come and go, and others change them.

    Attributes:
        KINDS: what pods there may be, by name; with ``replaces`` they replace a pod that runs.
        CHANGES: what others change about a pod; "goes", "is bound", "is nominated", "is replaced" are more than that.
    """

    NODES = ("a", "b", "c")
    NAMES: ClassVar[Sequence[str]]
    KINDS: ClassVar[dict[str, dict[str, Any]]]
    CHANGES: ClassVar[dict[str, dict[str, Any]]]

    def create(self, name: str, kind: str) -> None:
        """A pod of this kind."""
        fields = self.KINDS[kind]
        if "replaces" in fields:
            running = [pod.name for pod in self.world.api.values() if pod.node_name and not pod.terminal]
            fields = {**fields, "replaces": min(running, default=None)}
        self.world.create_pod(name, **fields)

    @precondition(lambda self: len(self.world.api) < len(self.NAMES))
    @rule(at=st.sampled_from(range(36)), show=st.booleans())
    def pod_comes(self, at: int, show: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        name = next(name for name in self.NAMES if f"{NAMESPACE}/{name}" not in self.world.api)
        self.create(name, pick(self.KINDS, at))
        if show:
            self.world.show()

    @precondition(lambda self: self.world.api)
    @rule(at=st.integers(0, 4), how=st.sampled_from(range(36)), node=st.sampled_from((*NODES, "unknown")))
    def others_change_a_pod(self, at: int, how: int, node: str) -> None:
        """People, controllers, kubelets and other schedulers."""
        world, key = self.world, pick(self.world.api, at)
        pod, what = world.api[key], pick(self.CHANGES, how)
        match what:
            case "goes":
                world.remove_pod(key)
            case "is bound" if not pod.node_name:
                world.change_pod(key, node_name=node, usage=pod.pod_class.requests, gated=False)
            case "is nominated" | "is nominated again" if not pod.node_name:
                world.change_pod(key, nominated_node="" if pod.nominated_node else node)
            case "is replaced under its name":
                kept = ("pod_class", "scheduler_name", "labels", "gang", "gated", "owner")
                world.create_pod(pod.name, **{name: getattr(pod, name) for name in kept})
            case "is blocked no more" if pod.deleting:
                pass
            case _:
                world.change_pod(key, **self.CHANGES[what])

    @precondition(lambda self: self.world.schedulable())
    @rule(
        at=st.integers(0, 4),
        fits=st.sampled_from((NODES, NODES, ("a",), ("b", "c"), ())),
        binds=st.booleans(),
        late=st.booleans(),
    )
    def scheduler_tries(self, at: int, fits: tuple[str, ...], binds: bool, late: bool) -> None:  # noqa: FBT001
        key = pick(self.world.schedulable(), at)
        self.world.answers_late = late
        self.world.attempt(key, fits)
        if binds:
            self.world.end_attempt(key, fails=False)

    @precondition(lambda self: self.world.attempts)
    @rule(
        at=st.integers(0, 5),
        fails=st.booleans(),
        message=st.sampled_from((HELD_MESSAGE, UNSEEN_MESSAGE, "2 Insufficient cpu")),
    )
    def attempt_ends(self, at: int, fails: bool, message: str) -> None:  # noqa: FBT001
        self.world.end_attempt(pick(self.world.attempts, at), fails=fails, message=message)
