"""``thalweg why``, the real command, for a dump."""

import json
import re
from pathlib import Path
from subprocess import CompletedProcess

from support.cli import Manifest, by_pod, node, pod, thalweg

from flowcore.questions.diagnosis.answers import WhyKind

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "find-out-why-a-pod-waits.md"
TAINTED = node("b", taints=[{"key": "gpu", "effect": "NoSchedule"}])
CART = pod("cart-0", "3", metadata={"namespace": "shop"})
NEXT = pod("cart-1", "3", metadata={"namespace": "shop"})


def ask(*arguments: str, objects: tuple[Manifest, ...] = (node("a", "2"), TAINTED, CART)) -> CompletedProcess[str]:
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return thalweg("why", *arguments, "-f", "-", stdin=dump)


def test_the_page_shows_what_the_command_prints() -> None:
    """Line by line; and its table has every kind."""
    text = PAGE.read_text()
    shown = text.partition("```\nshop/")[2].partition("```")[0].splitlines()
    printed = ask("shop/cart-0").stdout.removeprefix("shop/").splitlines()
    assert shown
    assert printed[: len(shown)] == shown
    assert set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) == set(WhyKind)


def test_the_shape_of_the_json() -> None:
    """The fields that other programs read, and changes as what-if takes them."""
    answer = json.loads(ask("cart-0", "-n", "shop", "-o", "json").stdout)
    assert {"pod", "kind", "text", "fixes"} <= answer.keys()
    assert (answer["pod"], answer["kind"]) == ("shop/cart-0", "NothingFits")
    for fix in answer["fixes"]:
        assert {"text", "change", "places", "loses"} <= fix.keys()
        assert fix["places"] == ["shop/cart-0"]
        assert all("kind" in change for change in fix["change"])
    assert json.loads(ask("shop/cart-0", "--no-fixes", "-o", "json").stdout)["fixes"] == []


def test_the_first_line_is_the_reason_of_the_plan() -> None:
    """The words that ``plan`` has, which are those of the condition."""
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a", "2"), TAINTED, CART]})
    plan = by_pod(thalweg("plan", "-f", "-", "-o", "json", stdin=dump).stdout)
    answer = json.loads(ask("shop/cart-0", "-o", "json").stdout)
    assert answer["text"] == plan["pending"]["shop/cart-0"]["reason"]


def test_what_cannot_be_answered() -> None:
    """One sentence that names what was asked, and exit code 2."""
    runs = pod("runs", nodeName="a", status={"phase": "Running"})
    for arguments, objects, words in (
        (("nobody",), (node("a"), CART), "Error: pod default/nobody: there is no such pod"),
        (("runs",), (node("a"), runs), "Error: pod default/runs: it does not wait: it is bound to a"),
        (("job/other",), (node("a"), CART), "Error: job default/other: no pod belongs to it"),
        (("cart-0",), (CART,), "no Node found"),
    ):
        done = ask(*arguments, objects=objects)
        assert done.returncode == 2
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert words in done.stderr


def test_several_targets_have_one_array() -> None:
    """As JSON: what reads one document reads all answers."""
    answers = json.loads(ask("shop/cart-0", "shop/cart-1", "-o", "json", objects=(node("a"), CART, NEXT)).stdout)
    assert [answer["pod"] for answer in answers] == ["shop/cart-0", "shop/cart-1"]


def test_nobody_is_told_to_wait_for_evictions_that_nobody_makes() -> None:
    """The plan evicts in thought: no policy governs the pod, so who schedules it decides."""
    low = pod("low", "2", metadata={"namespace": "shop"}, status={"phase": "Running"}, nodeName="a", priority=0)
    high = pod("high", "2", metadata={"namespace": "shop"}, schedulerName="default-scheduler", priority=9)
    answer = json.loads(ask("shop/high", "--no-fixes", "-o", "json", objects=(node("a", "2"), low, high)).stdout)
    assert answer["kind"] == "HandedOver", answer
    assert "once shop/low has left, and no policy governs it" in answer["text"]


def test_a_comparison_is_of_the_whole_cluster() -> None:
    """So is the line above it, whatever the namespace of the question is."""
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a"), CART]})
    lines = thalweg("plan", "--compare", "-n", "other", "-f", "-", stdin=dump).stdout.splitlines()
    assert lines[0].startswith("1 node; 1 pod waits: it gets a node")
