"""``thalweg demo``: each scene planned by a round, and one by one, side by side."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from flowcore.rounds import RoundResult, run_one_by_one, run_round
from thalweg.demo.constraints import across_pods
from thalweg.demo.extender import exchanges
from thalweg.demo.replacing import show_replacing
from thalweg.demo.scene import Scene
from thalweg.demo.scenes import crowd, scenes

_WAITS = "[red]waits[/red]"


def show() -> None:
    """Prints all scenes."""
    console = Console()
    console.print(
        "[bold]Thalweg plans all waiting pods at once.[/bold] Each scene below is planned twice with the same filters "
        "and costs:\nby a Thalweg round, and one by one as a scheduler does that takes each pod in turn.\n"
    )
    small = (*scenes(), *across_pods())
    for number, scene in enumerate(small, start=1):
        _show_scene(console, number, scene)
    _show_crowd(console, len(small) + 1, crowd())
    _show_extender(console, len(small) + 2, small[0])
    show_replacing(console, len(small) + 3)
    console.print(
        "Next: [bold]thalweg simulate -f FILE[/bold] plans a dump of your own cluster; "
        "[bold]thalweg up[/bold] starts a local one."
    )


def _show_scene(console: Console, number: int, scene: Scene) -> None:
    snapshot = scene.snapshot()
    at_once, one_by_one = run_round(snapshot, scene.policies), run_one_by_one(snapshot, scene.policies)
    asks = {f"demo/{w.name}{suffix}": w.asks for w in scene.wishes for suffix in _suffixes(w.count)}
    console.print(f"[bold]{number}. {scene.title}[/bold]\n{scene.story}")
    rooms = ", ".join(f"{n.name} ({dict(n.allocatable)['cpu'] // 1000} cores)" for n in scene.nodes)
    console.print(f"Nodes: {rooms}")
    table = Table("POD", "ASKS FOR", "THALWEG", "ONE BY ONE", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    ours, theirs = _nodes(at_once), _nodes(one_by_one)
    for pod in snapshot.pending:
        table.add_row(
            pod.key.removeprefix("demo/"), asks[pod.key], ours.get(pod.key, _WAITS), theirs.get(pod.key, _WAITS)
        )
    console.print(table)
    for left in at_once.left:
        console.print(f"[red]{left.pod.key.removeprefix('demo/')} waits:[/red] {left.reason}")
    console.print(_summary(at_once, one_by_one) + "\n")


def _show_crowd(console: Console, number: int, scene: Scene) -> None:
    snapshot = scene.snapshot()
    started = time.perf_counter()
    at_once = run_round(snapshot)
    seconds = time.perf_counter() - started
    one_by_one = run_one_by_one(snapshot)
    console.print(f"[bold]{number}. {scene.title}[/bold]\n{scene.story}")
    table = Table("PODS", "ASK FOR", "THALWEG", "ONE BY ONE", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    ours, theirs = (Counter(p.pod.pod_class for p in r.placements) for r in (at_once, one_by_one))
    for wish in scene.wishes:
        table.add_row(
            f"{wish.count} {wish.name}", wish.asks, f"{ours[wish.pod_class]} placed", f"{theirs[wish.pod_class]} placed"
        )
    console.print(table)
    for reason, count in Counter(left.reason for left in at_once.left).most_common(3):
        console.print(f"[red]{count} wait:[/red] {reason}")
    console.print(f"{_summary(at_once, one_by_one)} The round took {seconds:.2f} s.\n")


def _show_extender(console: Console, number: int, scene: Scene) -> None:
    console.print(
        f"[bold]{number}. Through kube-scheduler[/bold]\nScene 1 with kube-scheduler binding the pods and the extender "
        "telling it where: the real one, over HTTP on loopback."
    )
    for each in asyncio.run(exchanges(scene)):
        if each.when:
            console.print(f"{each.when}:", highlight=False)
        for line in (f"  {each.verb} {each.pod} {json.dumps(each.asked)}", f"    {json.dumps(_told(each.answer))}"):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print()


def _told(answer: Any) -> Any:
    """An answer without the fields of extender/v1 that are empty in it; no node is an answer."""
    if not isinstance(answer, dict):
        return answer
    return {name: value for name, value in answer.items() if value or name.startswith("NodeName")}


def _summary(at_once: RoundResult, one_by_one: RoundResult) -> str:
    return (
        f"Thalweg: {len(at_once.placements)} placed, {len(at_once.left)} wait, cost {at_once.cost}. "
        f"One by one: {len(one_by_one.placements)} placed, {len(one_by_one.left)} wait, cost {one_by_one.cost}."
    )


def _nodes(result: RoundResult) -> dict[str, str]:
    return {placement.pod.key: placement.node for placement in result.placements}


def _suffixes(count: int) -> list[str]:
    return [f"-{i}" for i in range(count)] if count > 1 else [""]
