"""``thalweg plan`` and ``thalweg why`` beside HAMi and KAI-Scheduler, which share GPUs by annotations."""

import json

from support.cli import Manifest, node, plan_of, pod, thalweg

GPU = "nvidia.com/gpu"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u1", "controller": True}


def gpu_node(name: str, gpus: int, annotations: Manifest | None = None) -> Manifest:
    """A node with GPUs."""
    made = node(name, "32")
    made["metadata"]["annotations"] = annotations or {}
    made["status"]["allocatable"][GPU] = str(gpus)
    return made


def gpu_pod(
    name: str, gpus: int = 1, *, on: str = "", share: Manifest | None = None, **metadata: Manifest | str
) -> Manifest:
    """A pod of GPUs; ``on``: it runs there."""
    made = pod(name, metadata=dict(metadata), status={"phase": "Running"} if on else None)
    made["spec"]["containers"][0]["resources"]["requests"] |= {**({GPU: str(gpus)} if gpus else {}), **(share or {})}
    if on:
        made["spec"]["nodeName"] = on
    return made


def hami_node(name: str, gpus: int) -> Manifest:
    """A node as HAMi's device plugin makes it: each GPU ten times over."""
    devices = [{"id": f"GPU-{at}", "count": 10, "devmem": 32768, "devcore": 100, "health": True} for at in range(gpus)]
    return gpu_node(name, 10 * gpus, {"hami.io/node-nvidia-register": json.dumps(devices)})


def hami_pod(name: str, on: str) -> Manifest:
    """A pod that HAMi has placed: it shares a GPU with others."""
    made = gpu_pod(name, on=on, share={"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"})
    made["spec"]["schedulerName"] = "hami-scheduler"
    made["metadata"]["annotations"] = {
        "hami.io/bind-phase": "success",
        "hami.io/vgpu-node": on,
        "hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,3000,30:;",
    }
    return made


def kai_group(group: str, on: str, shares: int) -> list[Manifest]:
    """Pods that share a GPU by KAI-Scheduler, and the pod that holds it for them."""
    labels = {"runai-gpu-group": group}
    sharing = [
        gpu_pod(f"{group}-{at}", 0, on=on, labels=labels, annotations={"gpu-fraction": "0.3"}) for at in range(shares)
    ]
    holds = {"namespace": "kai-resource-reservation", "labels": {"app": "kai-resource-reservation", **labels}}
    return [*sharing, gpu_pod(f"gpu-reservation-{on}-{group}", on=on, **holds)]


def test_no_gpu_of_hami_is_planned() -> None:
    """Its node has 20 places and two GPUs, one of which pods share. Only the GPU of the other node is planned."""
    waiting = [gpu_pod(f"w{at}") for at in range(3)]
    answer = plan_of(hami_node("hami", 2), gpu_node("plain", 1), hami_pod("a", "hami"), hami_pod("b", "hami"), *waiting)
    assert set(answer["placements"].values()) == {"plain"}
    assert len(answer["pending"]) == 2


def test_pods_without_gpus_may_run_beside_hami() -> None:
    """Its nodes are nodes like others but for their GPUs."""
    assert plan_of(hami_node("hami", 2), hami_pod("a", "hami"), pod("w"))["placements"] == {"default/w": "hami"}


def test_nobody_leaves_for_a_gpu_of_hami() -> None:
    """However important the pod is: the GPU would not come free for it."""
    urgent = gpu_pod("urgent")
    urgent["spec"]["priority"] = 1000
    answer = plan_of(hami_node("hami", 1), *(hami_pod(f"h{at}", "hami") for at in range(10)), urgent)
    assert (answer["placements"], answer["evictions"]) == ({}, [])


def test_gpus_that_kai_shares_are_taken_once() -> None:
    """Three pods share one of two GPUs: one is free, and one pod is placed."""
    answer = plan_of(gpu_node("n", 2), *kai_group("g1", "n", 3), gpu_pod("w1"), gpu_pod("w2"))
    assert len(answer["placements"]) == 1
    assert len(answer["pending"]) == 1


def test_the_pod_that_holds_a_shared_gpu_does_not_leave_for_another() -> None:
    """An urgent pod evicts one that has a GPU of its own. Without that it waits."""
    urgent = gpu_pod("urgent")
    urgent["spec"]["priority"] = 1000
    own = gpu_pod("own", on="n", ownerReferences=[OWNER], creationTimestamp="2020-01-01T00:00:00Z")
    answer = plan_of(gpu_node("n", 2), *kai_group("g1", "n", 2), own, urgent)
    assert [each["pod"] for each in answer["evictions"]] == ["default/own"]
    answer = plan_of(gpu_node("n", 1), *kai_group("g1", "n", 2), urgent)
    assert (answer["placements"], answer["evictions"]) == ({}, [])


def test_a_pod_that_asks_for_a_share_is_told_who_gives_it() -> None:
    """And others are planned beside it as if it were not there."""
    asks = gpu_pod("asks", 0, annotations={"gpu-fraction": "half"})
    answer = plan_of(gpu_node("n", 1), asks, gpu_pod("w"))
    assert answer["placements"] == {"default/w": "n"}
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n", 1), asks]})
    told = thalweg("why", "default/asks", "-f", "-", stdin=dump).stdout
    assert 'Its annotation gpu-fraction asks for a share of a GPU, and "half" is no number between 0 and 1.' in told
    assert "Give the pod the schedulerName of that scheduler" in told


def test_a_pod_of_their_schedulers_is_sent_to_them() -> None:
    """It has asked the right one already."""
    asks = gpu_pod("asks", 0, annotations={"gpu-fraction": "0.5"})
    asks["spec"]["schedulerName"] = "kai-scheduler"
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n", 1), asks]})
    told = thalweg("why", "default/asks", "-f", "-", stdin=dump).stdout
    assert "left to the scheduler kai-scheduler already" in told
