"""A group of very many pods gets another priority: little is done for each, and all is as if it had come first."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.counted import counted
from support.profiles import examples
from support.work import lines_run

from flowcore.cluster.cluster import Cluster
from flowcore.model.devices import DeviceClass
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.numa import NumaNeeds
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.resource_claims import ClaimingPod, ExtendedRequest
from flowcore.model.volumes import ClaimVolume

#: What pods have that is counted somewhere.
CLASSES = {
    "port": PodClass((("cpu", 1000),), host_ports=(HostPort("10.0.0.1", "TCP", 80),)),
    "volume": PodClass(volumes=(ClaimVolume("ml", "data"),)),
    "numa": PodClass(numa=NumaNeeds(pod=(("cpu", 1000),))),
    "devices": PodClass(devices=ClaimingPod("ml", "d", "d")),
    "extended": PodClass((("example.com/gpu", 1),)),
}
ASKED = (ExtendedRequest("example.com/gpu", (("r", 1),)),)


def group(name: str, priority: int | None, *, preempts: bool | None = None, uid: str = "") -> PodGroup:
    """A PodGroup, whose uid the claims of its pods know."""
    spec = GangSpec(1, priority=priority, preempts=preempts)
    return PodGroup(GangKey(GangSource.NATIVE, "ml", name), spec, uid=uid)


def member(name: str, of: str, kind: str, node: str, *, ended: bool = False, deleting: bool = False) -> Pod:
    """A pod of a PodGroup; ``of``: "": of none."""
    pod_class, asked = CLASSES[kind], ASKED if kind == "extended" else ()
    gang = GangRef(GangKey(GangSource.NATIVE, "ml", of)) if of else None
    return Pod("ml", name, name, pod_class, node_name=node, terminal=ended, succeeded=ended, gang=gang, extended=asked,
               usage=pod_class.requests, deleting=deleting)  # fmt: skip


PRIORITIES, PREEMPTS = st.sampled_from([None, 0, 7]), st.sampled_from([None, False, True])
GROUP_EVENT = st.one_of(
    st.builds(group, st.sampled_from("gh"), PRIORITIES, preempts=PREEMPTS, uid=st.sampled_from(["u", "v"])),
    st.builds(
        member, st.sampled_from("abcd"), st.sampled_from(["", "g", "h"]), st.sampled_from(sorted(CLASSES)),
        st.sampled_from(["", "n"]), ended=st.booleans(), deleting=st.booleans(),
    ),
    st.tuples(st.sampled_from(["no pod", "no group"]), st.sampled_from("ag")),
    st.sampled_from(["class", "no class"]),
)  # fmt: skip


@settings(max_examples=examples(200))
@given(st.lists(GROUP_EVENT, max_size=20))
def test_pods_with_the_priority_of_their_group_are_counted_as_if_it_had_come_first(history: list[Any]) -> None:
    """Whatever else they have, and whether they wait, run or have ended."""
    cluster = Cluster()
    for event in history:
        match event:
            case Pod():
                cluster.put_pod(event)
            case PodGroup():
                cluster.put_pod_group(event)
            case ("no pod", name):
                cluster.remove_pod(f"ml/{name}")
            case ("no group", name):
                cluster.remove_pod_group(GangKey(GangSource.NATIVE, "ml", name))
            case "class":
                cluster.set_device_class("gpu", DeviceClass("gpu", "example.com/gpu"))
            case "no class":
                cluster.set_device_class("gpu", None)
        for gang in list(cluster.gangs._members):
            cluster.gangs.state(gang)  # whatever is kept between two changes must be found out to be stale
    fresh = Cluster()
    for device_class in cluster.devices.classes.values():
        fresh.set_device_class(device_class.name, device_class)
    for pod_group in cluster.gangs.groups.values():
        fresh.put_pod_group(pod_group)
    for key in cluster.pods:
        written = cluster.as_written(key)
        assert written is not None
        fresh.put_pod(written)
    assert counted(cluster) == counted(fresh)


def test_a_group_of_very_many_pods_takes_little_for_each() -> None:
    """Its priority changes: nothing that the pods take or claim is counted anew."""

    def lines(pods: int) -> int:
        cluster = Cluster()
        cluster.put_pod_group(group("g", None))
        for at in range(pods):
            cluster.put_pod(member(f"p{at}", "g", "port", "n" if at % 2 else ""))
        run = lines_run(lambda: cluster.put_pod_group(group("g", 7)))
        assert {pod.pod_class.priority for pod in cluster.pods.values()} == {7}
        return run

    assert lines(60) - lines(20) <= 40 * 60
