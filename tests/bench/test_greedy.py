"""FGD with whole GPUs: where a pod goes, counted by hand."""

import numpy as np
import pytest
from harness.greedy import Taste, place
from harness.openb_rounds import snapshot_of
from harness.rechecks import Checker
from harness.whole_fragments import WholeFragments
from openb import GPU
from thalweg_controlplane.client.objects import node, pod

#: One GPU, two with room for all, and two of which one lacks cpu.
NODES = [
    node("single", cpu="8", memory="32Gi", extended={GPU: "1"}),
    node("double", cpu="64", memory="64Gi", extended={GPU: "2"}),
    node("narrow", cpu="6", memory="64Gi", extended={GPU: "2"}),
]
#: Two thirds of the pods with GPUs want two of them, and a quarter of all pods want none.
PODS = [
    pod("one", cpu="4", extended={GPU: "1"}),
    *(pod(f"pair-{number}", cpu="8", extended={GPU: "2"}) for number in range(2)),
    pod("none", cpu="1"),
]


def test_fragments_rise_by_what_typical_pods_can_use_no_more() -> None:
    """By hand: of a free GPU a quarter is of no use to start with, for the pod without GPUs."""
    snapshot = snapshot_of(NODES, PODS, aged=False)
    checker = Checker(snapshot)
    pods = {each.key: each for each in snapshot.pending}
    rows = np.array([snapshot.table.index[name] for name in ("single", "double", "narrow")])
    rise = WholeFragments(checker, GPU).rise(pods["default/one"].pod_class, rows, checker.free())
    # Its GPU was of no use to three quarters. Then one is left of two, for pods with one GPU; cpu is left for none.
    assert rise.tolist() == pytest.approx([0 - 0.75, 0.75 - 2 * 0.25, 1 - 2 * 0.75])


def test_a_pod_goes_where_fragments_rise_least() -> None:
    """Where kube-scheduler takes the emptiest node, and breaks up its pair."""
    snapshot = snapshot_of(NODES, PODS, aged=False)
    checker = Checker(snapshot)
    first = [each for each in snapshot.pending if each.key == "default/one"]
    names = {
        taste: snapshot.table.nodes[node].name
        for taste in (Taste.FGD, Taste.LEAST)
        for _, node in place(checker, first, taste)
    }
    assert names == {Taste.FGD: "single", Taste.LEAST: "double"}
