"""What waiting pods lack, in words: for each code, whether a plan was made here or by an operator's round."""

from support.cli import Manifest, node, plan_of, pod
from thalweg.plans.workload_tables import plan_sentence

from flowcore.questions.scenario.planned_workloads import PlannedWorkload
from flowcore.rules.reasons.codes import CODES
from flowcore.rules.reasons.short_words import WORDS, short_words


def test_every_code_has_words() -> None:
    """No filter's name is shown to people who ask what is short."""
    assert set(WORDS) >= CODES
    assert not CODES & set(WORDS.values())


def test_rounds_of_an_operator_name_the_resources() -> None:
    """Their plans have the reason alone: kube-scheduler's words, whatever the resource is called."""
    reason = "0/4 nodes are available: 1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu, 3 Insufficient cpu."
    assert short_words("NodeResourcesFit", reason) == "nvidia.com/gpu, cpu"
    assert short_words("NodeResourcesFit", "0/1 nodes are available: 1 Too many pods. More follows.") == "pod slots"
    assert short_words("NodeResourcesFit", reason, "cpu (best node lacks 1)") == "cpu (best node lacks 1)"
    assert short_words("NodeResourcesFit", "Another sentence.") == "room"
    assert short_words("NodePorts", reason) == "host ports"
    assert short_words("NotPlanned", "any sentence", gated=True) == "scheduling gates"
    assert short_words("NotPlanned", "volume claims (disk) cannot be read") == "what their reason says"


def test_workloads_with_several_lacks_count_them() -> None:
    """The most first; a gang waits as one."""
    row = PlannedWorkload(
        "job/a/b", 5, 0, 5, {"NodePorts": 1, "NodeAffinity": 4}, short={"node labels": 4, "host ports": 1}
    )
    assert plan_sentence(row) == "5 wait: node labels 4, host ports 1"
    row = PlannedWorkload("gang/a/b", 4, 0, 4, short={"nvidia.com/gpu (best node lacks 2)": 4})
    assert plan_sentence(row) == "4 wait as a gang: nvidia.com/gpu (best node lacks 2)"


def gpus(name: str, count: int) -> Manifest:
    """A node with GPUs."""
    made = node(name, "32")
    made["status"]["allocatable"]["nvidia.com/gpu"] = str(count)
    return made


def test_a_gang_lacks_what_its_rest_lacks() -> None:
    """Two nodes have four GPUs free, and four pods of four each must start at once: the others have two."""
    annotations = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "4"}
    pods = [pod(f"train-{at}", "1", metadata={"annotations": annotations, "name": f"train-{at}"}) for at in range(4)]
    for each in pods:
        each["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "4"
        each["metadata"]["namespace"] = "default"
    answer = plan_of(*(gpus(f"n{at}", count) for at, count in enumerate((4, 4, 2, 2))), *pods)
    (row,) = answer["workloads"]
    assert row["short"] == {"nvidia.com/gpu (best node lacks 2)": 4}
