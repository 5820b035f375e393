"""What a group of waiting pods lacks, by resource."""

from support.cli import Manifest, node, pod
from support.scenario_state import NOW, scenario_of

from flowcore.questions.scenario import plan_scenario
from flowcore.rules.reasons.shortage import Lack, lacks_in_words, shortage

GPU = "nvidia.com/gpu"
TAINTED = [{"key": "gpu", "effect": "NoSchedule"}]


def gpu_node(name: str, gpus: int) -> Manifest:
    made = node(name, "16")
    made["status"]["allocatable"][GPU] = str(gpus)
    return made


def member(name: str, gpus: int) -> Manifest:
    gang = {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "4"}
    made = pod(name, "1", metadata={"annotations": gang})
    made["spec"]["containers"][0]["resources"]["requests"][GPU] = str(gpus)
    return made


def lacks(*objects: Manifest) -> tuple[Lack, ...]:
    result = plan_scenario(scenario_of(objects), NOW).result
    return shortage([each.pod for each in result.unplaced], result.after)


def test_a_gang_that_no_node_takes_lacks_what_the_best_node_lacks() -> None:
    """Of four GPUs the best node has two, and only GPUs are short."""
    found = lacks(gpu_node("a", 2), gpu_node("b", 1), *(member(f"g{at}", 4) for at in range(4)))
    assert found == (Lack(GPU, 2),)
    assert lacks_in_words(found) == "nvidia.com/gpu (best node lacks 2)"


def test_a_gang_that_fits_in_part_lacks_what_the_rest_lacks() -> None:
    """Three of four have room: for the fourth the best node lacks one GPU."""
    found = lacks(gpu_node("a", 2), gpu_node("b", 5), *(member(f"g{at}", 2) for at in range(4)))
    assert found == (Lack(GPU, 1),)


def test_several_resources_are_told_with_their_amounts() -> None:
    """Cpu and memory of the best node: not those of the smallest one."""
    large = pod("p", "6")
    large["spec"]["containers"][0]["resources"]["requests"]["memory"] = "40Gi"
    found = lacks(node("a", "4"), node("b", "1"), large)
    assert {each.resource for each in found} == {"cpu", "memory"}
    assert lacks_in_words(found).startswith("cpu and memory (best node lacks 2 cpu and ")


def test_nothing_is_short_where_rules_keep_the_pods_out() -> None:
    """A taint on every node is no lack of a resource, and a group that has room lacks nothing."""
    assert lacks(node("a", "4", taints=TAINTED), pod("p", "6")) == ()
    assert lacks_in_words(()) == ""
