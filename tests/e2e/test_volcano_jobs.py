"""Jobs of Volcano without Volcano's scheduler, on a real API server. The test plays Volcano's controller."""

from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from support.cluster_scenario import ClusterScenario
from support.parents import install_parents, made_by, pod_group_of, start_volcano_job, volcano_job
from thalweg_controlplane import Api, ApiError
from thalweg_controlplane.client.objects import object_path

from flowcore.api.kinds import VOLCANO_JOB

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Kinds are installed.
BREAKS_PLANE = True
POD_GROUPS = Path(__file__).parent.parent / "support" / "pod_groups.yaml"
MINE = "Thalweg may set the phase of a PodGroup of Volcano that waits for it to Inqueue, and change nothing else of it"


@pytest_asyncio.fixture(loop_scope="module")
async def volcano(scene: ClusterScenario) -> ClusterScenario:
    """A scene whose API server has Volcano's kinds."""
    for each in yaml.safe_load_all(POD_GROUPS.read_text()):
        await scene.api.apply(each)
    await install_parents(scene.api, VOLCANO_JOB)
    return scene


@pytest.mark.parametrize("phase", ["", "Pending"], ids=["new", "pending"])
async def test_a_job_runs_without_volcanos_scheduler(volcano: ClusterScenario, phase: str) -> None:
    """Its phase is written, so its controller makes the pods; they wait as a gang, and are bound together."""
    api, namespace = volcano.api, volcano.namespace
    await volcano.nodes("a", cpu="2")
    # The operator asks once a minute for kinds that were not served when it began.
    group = await start_volcano_job(api, namespace, volcano.scheduler, phase)
    annotations = {"scheduling.k8s.io/group-name": group["metadata"]["name"]}
    owner = group["metadata"]["ownerReferences"][0]
    pods = [volcano.pod(f"train-worker-{at}", "1", annotations=annotations) for at in range(3)]
    await api.create_many([made_by(each, owner["apiVersion"], "Job", "train", owner["uid"]) for each in pods])
    await volcano.reason_of("train-worker-0", "needs 3 pods at once")
    await volcano.nodes("b", cpu="1")
    await volcano.nodes_of("train-worker-0", "train-worker-1", "train-worker-2")


async def test_what_is_volcanos_is_left_alone(volcano: ClusterScenario) -> None:
    """A Job for Volcano's scheduler, one that a policy only observes, and one whose group runs."""
    api, namespace = volcano.api, volcano.namespace
    await volcano.policy("seen", selects={"podSelector": {"matchLabels": {"seen": "yes"}}}, delivery="Observe")
    await volcano.nodes("a")
    made = [
        await api.create(volcano_job(namespace, None, "default")),
        await api.create(volcano_job(namespace, volcano.scheduler, "observed", seen="yes")),
        await api.create(volcano_job(namespace, volcano.scheduler, "runs")),
    ]
    groups = [pod_group_of(job, phase) for job, phase in zip(made, ("", "Pending", "Running"), strict=True)]
    await api.create_many(groups)
    await start_volcano_job(api, namespace, volcano.scheduler)  # later than these, and written
    phases = [(await api.get(object_path(group))).get("status", {}).get("phase", "") for group in groups]
    assert phases == ["", "Pending", "Running"]


async def test_the_account_may_change_nothing_else(volcano: ClusterScenario, account: Path) -> None:
    """Of a PodGroup that waits: neither its size, its labels, another phase, nor other fields of its status."""
    job = await volcano.api.create(volcano_job(volcano.namespace, None))
    group = pod_group_of(job, "Pending")
    await volcano.api.create(group)
    refused = [
        {"spec": {"minMember": 1}, "status": {"phase": "Inqueue"}},
        {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Inqueue"}},
        {"status": {"phase": "Completed"}},
        {"status": {"phase": "Inqueue", "running": 3}},
    ]
    async with Api(account) as thief:
        for change in refused:
            with pytest.raises(ApiError, match=MINE):
                await thief.patch(object_path(group), change)
        await thief.patch(object_path(group), {"status": {"phase": "Inqueue"}})
        await volcano.api.patch(object_path(group), {"status": {"phase": "Running"}})
        with pytest.raises(ApiError, match=MINE):
            await thief.patch(object_path(group), {"status": {"phase": "Inqueue"}})
