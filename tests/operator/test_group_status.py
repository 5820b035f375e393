"""The condition of a PodGroup: as kube-scheduler writes it, seldom, and only for groups whose pods we bind."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.api.outages import Outages
from thalweg_operator.api.watches.sinks import ObjectSink, pod_group_decoder
from thalweg_operator.delivery.status import group_status as module
from thalweg_operator.delivery.status.group_status import GroupStatus
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import WriteCondition

from flowcore.api import Interner
from flowcore.api.kinds import POD_GROUPS
from flowcore.cluster.kinds import GROUPS_OF_PODS
from flowcore.model.gang_spec import GangKey, GangRef, GangSource
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import SCHEDULER_NAME

KIND = POD_GROUPS[GangSource.NATIVE]
PER_SECOND = 20.0
#: The scheduler of groups that Thalweg does not bind.
THEIRS = "default-scheduler"


class Case:
    """An API server with PodGroups of one version, and the writer of their conditions."""

    def __init__(self, version: str = "v1alpha2") -> None:
        loop = asyncio.get_running_loop()
        self.state = DrivenLedger(loop.time)
        self.state.set_namespace("ml", ())
        self.state.set_namespace("web", ())
        self.outages, self.answers = Outages(), list[Exception]()
        self.writes: list[tuple[float, str, dict[str, Any]]] = []
        self.groups: dict[str, dict[str, Any]] = {}
        self.shows = True
        self.sink = ObjectSink(self.state, KIND, GROUPS_OF_PODS)
        path = f"/apis/scheduling.k8s.io/{version}/podgroups"
        self.status = GroupStatus(self, self.state.shell, Metrics(), lambda: path, PER_SECOND)  # type: ignore[arg-type]
        self.state.shell.observers.append(self.status.observe)
        self.paths: set[str] = set()

    async def request(self, method: str, path: str, *, body: bytes, content_type: str) -> bytes:
        """Takes a patch as the API server does, and shows the result to the watch."""
        assert (method, content_type) == ("PATCH", "application/strategic-merge-patch+json")
        self.paths.add(path)
        name = path.split("/")[-2]
        if self.answers:
            raise self.answers.pop(0)
        patch = msgspec.json.decode(body)
        group = self.groups[name]
        if patch["metadata"]["uid"] != group["metadata"]["uid"]:
            raise Refused(409, "another uid")
        (condition,) = patch["status"]["conditions"]
        before = {each["type"]: each for each in group.get("status", {}).get("conditions", [])}
        merged = before.get(condition["type"], {}) | condition
        assert merged["lastTransitionTime"], "the API server wants it"
        self.writes.append((asyncio.get_running_loop().time(), name, condition))
        group["status"] = {"conditions": list((before | {condition["type"]: merged}).values())}
        if self.shows:
            self.show(name)
        return msgspec.json.encode(group)

    def show(self, name: str) -> None:
        """The watch shows a group as it is now."""
        self.sink.upsert(pod_group_decoder(GangSource.NATIVE, Interner())(msgspec.json.encode(self.groups[name])))

    def group(self, name: str, count: int | None = 2, namespace: str = "ml", uid: str = "", **status: Any) -> None:
        """A PodGroup that is new; None: of the basic policy."""
        policy: dict[str, Any] = {"basic": {}} if count is None else {"gang": {"minCount": count}}
        meta = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "generation": 1}
        self.groups[name] = {"metadata": meta, "spec": {"schedulingPolicy": policy}, "status": status}
        self.show(name)

    def pod(self, group: str, number: int, scheduler: str = SCHEDULER_NAME, **fields: Any) -> Pod:
        """A pod of a group, which waits unless its fields say otherwise."""
        namespace = self.groups[group]["metadata"]["namespace"]
        name, gang = f"{group}-{number}", GangRef(GangKey(GangSource.NATIVE, namespace, group))
        uid = fields.pop("uid", name)
        pod = Pod(namespace, name, uid, PodClass(), gang=gang, scheduler_name=scheduler, **fields)
        self.state.upsert_pod(pod)
        return pod

    def waits(self, group: str, count: int = 2, reason: str = "no room", code: str = "Unschedulable") -> None:
        """Pods of a group wait, each for this reason."""
        for number in range(count):
            self.status.put(WriteCondition(self.pod(group, number), reason, code))

    def said(self, name: str) -> list[tuple[str, str, str, str]]:
        """What was written for a group."""
        fields = ("type", "status", "reason", "message")
        return [tuple(body[each] for each in fields) for _, group, body in self.writes if group == name]  # type: ignore[misc]


def run(test: Callable[[Case], Coroutine[Any, Any, None]], version: str = "v1alpha2") -> None:
    """Runs a test beside the writer, in virtual time."""

    async def main() -> None:
        case = Case(version)
        task = asyncio.create_task(case.status.run())
        try:
            await test(case)
            assert not task.done()
        finally:
            task.cancel()

    virtual_time.run(main())


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1alpha2", "PodGroupScheduled"),
        ("v1alpha3", "PodGroupInitiallyScheduled"),
        ("v1beta1", "PodGroupInitiallyScheduled"),
    ],
)
def test_as_each_version_writes_it(version: str, kind: str) -> None:
    """Type, status and reason are kube-scheduler's; the message says that it is Thalweg's. At last it is True."""

    async def test(case: Case) -> None:
        case.group("train")
        case.waits("train")
        await asyncio.sleep(5)
        assert case.said("train") == [(kind, "False", "Unschedulable", "Thalweg: no room")]
        assert case.writes[0][2]["observedGeneration"] == 1
        assert case.paths == {f"/apis/scheduling.k8s.io/{version}/namespaces/ml/podgroups/train/status"}
        for number in range(2):
            case.pod("train", number, node_name="n")
        await asyncio.sleep(5)
        assert case.said("train")[1:] == [(kind, "True", "Scheduled", "Thalweg placed 2 pods; the group needs 2.")]

    run(test, version)


def test_nothing_is_said_twice() -> None:
    """Rounds that find the same reason again write nothing, nor does a new leader, nor what follows True."""

    async def test(case: Case) -> None:
        case.group("train")
        for _ in range(20):
            case.waits("train")
            await asyncio.sleep(7)
        assert len(case.writes) == 1
        case.status = GroupStatus(case, case.state.shell, Metrics(), case.status._listed_at, PER_SECOND)  # type: ignore[arg-type]
        another = asyncio.create_task(case.status.run())
        case.waits("train")
        await asyncio.sleep(60)
        assert len(case.writes) == 1
        another.cancel()

    run(test)


def test_true_stays() -> None:
    """Pods beyond what the group needs, or that come after others were evicted, do not take it back."""

    async def test(case: Case) -> None:
        case.shows = False  # the watch is late
        case.group("train")
        for number in range(2):
            case.pod("train", number, node_name="n")
        await asyncio.sleep(5)
        assert [said[1] for said in case.said("train")] == ["True"]
        for number in range(2):
            case.state.delete_pod(f"ml/train-{number}")
        case.waits("train", reason="its node is gone")
        await asyncio.sleep(60)
        case.show("train")
        case.waits("train", reason="its node is gone still")
        await asyncio.sleep(60)
        assert len(case.writes) == 1

    run(test)


def test_a_reason_that_keeps_changing_is_written_rarely() -> None:
    """At most once in the interval, with the reason of then; True does not wait for it."""

    async def test(case: Case) -> None:
        case.group("train")
        for number in range(200):
            case.waits("train", reason=f"reason {number}")
            await asyncio.sleep(1)
        times = [when for when, *_ in case.writes]
        assert all(after - before >= module._REWRITE_INTERVAL for before, after in itertools.pairwise(times))
        assert 5 <= len(times) <= 1 + 200 / module._REWRITE_INTERVAL
        assert case.said("train")[-1][3] != "Thalweg: reason 0"
        for number in range(2):
            case.pod("train", number, node_name="n")
        await asyncio.sleep(2)
        assert case.said("train")[-1][1] == "True"

    run(test)


def test_a_group_that_the_next_round_places_is_told_once() -> None:
    """What was left for a moment only, and came one by one, is no False."""

    async def test(case: Case) -> None:
        case.group("train")
        case.waits("train", 1, "1 of 2 pods exist")
        await asyncio.sleep(0.2)
        case.pod("train", 0, node_name="n")
        case.pod("train", 1, node_name="n")
        await asyncio.sleep(60)
        assert [said[1] for said in case.said("train")] == ["True"]

    run(test)


def test_who_else_places_the_group_says_so_himself() -> None:
    """Groups of kube-scheduler, and groups of which it has a part, are left to it; plain gangs have no condition."""

    async def test(case: Case) -> None:
        for name in ("theirs", "mixed", "placed"):
            case.group(name)
        case.waits("mixed", 1)
        case.pod("mixed", 1, THEIRS)
        for number in range(2):
            case.status.put(WriteCondition(case.pod("theirs", number, THEIRS), "no room", "Unschedulable"))
            case.pod("placed", number, THEIRS, node_name="n")
        plain = Pod("ml", "p", "p", PodClass(), gang=GangRef(GangKey(GangSource.THALWEG, "ml", "g")))
        case.status.put(WriteCondition(plain, "no room", "Unschedulable"))
        case.status.put(WriteCondition(Pod("ml", "q", "q", PodClass()), "no room", "Unschedulable"))
        await asyncio.sleep(60)
        assert case.writes == []

    run(test)


@pytest.mark.parametrize(
    ("code", "reason"), [("Quarantined", "SchedulerError"), ("BackingOff", "Unschedulable"), ("AwaitingTurn", None)]
)
def test_reasons(code: str, reason: str | None) -> None:
    """What is our fault is SchedulerError; that a group was not looked at yet is nothing that its users can act on."""

    async def test(case: Case) -> None:
        case.group("train")
        case.waits("train", code=code)
        await asyncio.sleep(5)
        assert [said[2] for said in case.said("train")] == ([] if reason is None else [reason])

    run(test)


def test_a_basic_group_is_scheduled_with_its_first_pod() -> None:
    """Its pods are placed one by one."""

    async def test(case: Case) -> None:
        case.group("loose", None)
        case.pod("loose", 0, node_name="n")
        case.waits("loose", 2)  # the first one waits again: its node is gone
        case.pod("loose", 1, node_name="n")
        await asyncio.sleep(5)
        assert case.said("loose") == [
            ("PodGroupScheduled", "True", "Scheduled", "Thalweg placed 1 pods; the group needs 1.")
        ]

    run(test)


def test_pods_that_ended_soon_were_scheduled_all_the_same() -> None:
    """The group's pods have run and are done before anybody looks."""

    async def test(case: Case) -> None:
        case.group("short")
        for number in range(2):
            case.pod("short", number, node_name="n")
            case.pod("short", number, node_name="n", terminal=True, succeeded=True)
        await asyncio.sleep(5)
        assert [said[1] for said in case.said("short")] == ["True"]

    run(test)


@pytest.mark.parametrize("trouble", [Refused(500, "down"), Refused(429, "busy"), ConnectionLost("lost")])
def test_a_failure_is_tried_again(trouble: Exception) -> None:
    """With what is true by then."""

    async def test(case: Case) -> None:
        case.answers = [trouble]
        case.group("train")
        case.waits("train")
        await asyncio.sleep(0.7)
        case.waits("train", reason="less room")
        await asyncio.sleep(20)
        assert case.said("train") == [("PodGroupScheduled", "False", "Unschedulable", "Thalweg: less room")]

    run(test)


def test_without_the_right() -> None:
    """Each group is tried seldom, however often rounds find the same; with the right it is told."""

    async def test(case: Case) -> None:
        tried = 1000
        case.answers = [Refused(403, "cannot patch") for _ in range(tried)]
        case.group("train")
        for _ in range(600):
            case.waits("train")
            await asyncio.sleep(1)
        assert tried - len(case.answers) <= 1 + 600 / module._AFTER_REFUSAL
        case.answers = []
        await asyncio.sleep(module._AFTER_REFUSAL + 1)
        assert len(case.said("train")) == 1

    run(test)


def test_pods_that_get_their_nodes_do_not_end_the_rest_of_a_refused_group() -> None:
    """Those of a large basic group come one by one."""

    async def test(case: Case) -> None:
        case.answers = [Refused(403, "cannot patch") for _ in range(100)]
        case.group("loose", None)
        for number in range(100):
            case.pod("loose", number, node_name="n")
            await asyncio.sleep(1)
        assert len(case.answers) == 99

    run(test)


def test_a_group_that_is_made_anew_waits_for_no_refusal_of_the_one_before() -> None:
    """Both have the same name. What the first one left in the queue writes nothing later."""

    async def test(case: Case) -> None:
        case.answers = [Refused(422, "a webhook does not like it")]
        case.group("train")
        case.waits("train")
        await asyncio.sleep(5)
        assert (case.answers, case.writes) == ([], [])
        case.sink.delete("ml/train")
        case.group("train", uid="another")
        case.waits("train")
        await asyncio.sleep(5)
        assert len(case.said("train")) == 1
        await asyncio.sleep(2 * module._AFTER_REFUSAL)
        assert (len(case.said("train")), case.status._queued) == (1, set())

    run(test)


def test_a_pod_of_the_same_name_has_its_node() -> None:
    """The watch showed neither that the one before it went, nor that it waited."""

    async def test(case: Case) -> None:
        case.group("train")
        case.pod("train", 0, node_name="n")
        case.pod("train", 1, node_name="n", deleting=True)
        await asyncio.sleep(5)
        assert case.said("train") == []
        case.pod("train", 1, node_name="n", uid="another")
        await asyncio.sleep(5)
        assert [said[1] for said in case.said("train")] == ["True"]

    run(test)


def test_a_group_whose_pods_keep_coming_is_told() -> None:
    """Each of them would put it off a little."""

    async def test(case: Case) -> None:
        case.group("loose", None)
        for number in range(20):
            case.pod("loose", number, node_name="n")
            await asyncio.sleep(module._DELAY / 2)
        assert [said[1] for said in case.said("loose")] == ["True"]

    run(test)


def test_a_namespace_with_many_groups() -> None:
    """The API server gets a limited number of writes in a second, and the group of another namespace is among them."""

    async def test(case: Case) -> None:
        names = [f"many-{number}" for number in range(100)]
        for name in names:
            case.group(name)
            case.waits(name)
        case.group("other", namespace="web")
        case.waits("other")
        await asyncio.sleep(60)
        times = [when for when, *_ in case.writes]
        assert len(times) == len(names) + 1
        assert all(sum(when <= each < when + 1 for each in times) <= PER_SECOND + 1 for when in times)
        (said,) = (when for when, name, _ in case.writes if name == "other")
        assert said - times[0] < 2

    run(test)


def test_a_group_that_cannot_be_read() -> None:
    """Neither what it needs nor what its status says is known, so it is told nothing."""

    async def test(case: Case) -> None:
        case.group("train")
        case.groups["train"]["spec"]["schedulingPolicy"]["gang"]["minCount"] = "many"
        case.show("train")
        case.waits("train")
        case.pod("train", 2, node_name="n")
        await asyncio.sleep(60)
        assert case.writes == []

    run(test)


def test_groups_of_volcano_are_not_written() -> None:
    """They have conditions of their own, in another API group: of the same name there may be another PodGroup."""

    async def test(case: Case) -> None:
        key = GangKey(GangSource.VOLCANO, "ml", "train")
        meta = {"name": key.name, "namespace": key.namespace, "uid": "uid-of-volcano"}
        group = msgspec.json.encode({"metadata": meta, "spec": {"minMember": 2}})
        sink = ObjectSink(case.state, POD_GROUPS[key.source], GROUPS_OF_PODS)
        sink.upsert(pod_group_decoder(key.source, Interner())(group))
        for number in range(2):
            pod = Pod("ml", f"p-{number}", f"{number}", PodClass(), gang=GangRef(key), scheduler_name=SCHEDULER_NAME)
            case.state.upsert_pod(pod)
            case.status.put(WriteCondition(pod, "no room", "Unschedulable"))
            case.state.upsert_pod(msgspec.structs.replace(pod, node_name="n"))
        await asyncio.sleep(5)
        assert case.paths == set()

    run(test)


def test_a_group_that_is_gone_or_another_one() -> None:
    """It is not tried again, and the next one of its name is told its own."""

    async def test(case: Case) -> None:
        case.group("train")
        case.waits("train")
        case.groups["train"]["metadata"]["uid"] = "another"  # the watch does not show it yet
        await asyncio.sleep(5)
        assert case.writes == []
        case.show("train")
        await asyncio.sleep(5)
        assert len(case.said("train")) == 1
        case.sink.delete("ml/train")
        await asyncio.sleep(5)
        status = case.status
        assert (status._told, status._due, status._written) == ({}, {}, {})

    run(test)


def test_what_is_said_of_a_group_starts_no_round() -> None:
    """Our own writes come back by the watch."""

    async def test(case: Case) -> None:
        case.group("train")
        case.waits("train")
        rounds = case.state.rounds_requested
        await asyncio.sleep(5)
        assert len(case.writes) == 1
        assert case.state.rounds_requested == rounds

    run(test)
