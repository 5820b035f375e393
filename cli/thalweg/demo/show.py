"""``thalweg demo``: each scene planned by a round, and one by one, side by side."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from flowcore.model.amount_text import counted
from flowcore.planning.round import RoundResult, run_one_by_one, run_round
from thalweg.demo import constraints, pods
from thalweg.demo.extender import extender_page
from thalweg.demo.page import ScenePage
from thalweg.demo.preemption import preemption_page
from thalweg.demo.replacements import replacing_page
from thalweg.demo.scene import Scene, size
from thalweg.demo.scene_result import SceneResult
from thalweg.terminal.consoles import stdout_console

#: More nodes than this are counted in the scene's story and not listed.
_MOST_LISTED = 10


@dataclass(frozen=True, slots=True)
class Compared:
    """A scene, planned in both ways."""

    scene: Scene
    thalweg: SceneResult
    one_by_one: SceneResult
    page: ScenePage


def first_scenes() -> tuple[Scene, ...]:
    """The scenes that are shown by default, the strongest first."""
    return (
        constraints.gangs(),
        pods.gpu_node(),
        pods.crowd(),
        constraints.exclusive(),
        constraints.one_rack(),
    )


def more_scenes() -> tuple[Scene, ...]:
    """The others that are planned in both ways."""
    return (
        pods.mixed_sizes(),
        pods.preferences(),
        pods.oversubscribed(),
        constraints.zones(),
        constraints.agents(),
        pods.pinned(),
    )


def compare(scene: Scene) -> Compared:
    """Plans the scene in both ways.

    Raises:
        ClaimError: the figures do not support its claim.
    """
    snapshot = scene.snapshot()
    started = time.perf_counter()
    plan = run_round(snapshot, scene.policies)
    seconds = time.perf_counter() - started
    thalweg, one_by_one = (
        SceneResult.of(result, scene.row, counted=scene.counted)
        for result in (plan, run_one_by_one(snapshot, scene.policies_one_by_one))
    )
    lines = [scene.story]
    if len(scene.nodes) <= _MOST_LISTED:
        lines.append(f"Nodes: {', '.join(map(size, scene.nodes))}.")
    rows = [
        (_label(pod_set.name, pod_set.count), pod_set.asks, thalweg.cell(pod_set.name), one_by_one.cell(pod_set.name))
        for pod_set in scene.sets
    ]
    notes = _reasons(scene, plan)
    if scene.counted:
        notes.append(f"Thalweg's round took {seconds:.1f} s.")
    table = (("PODS", "EACH ASKS FOR", "THALWEG", "ONE BY ONE"), *rows)
    return Compared(
        scene, thalweg, one_by_one, ScenePage(scene.title, lines, table, notes, scene.claim(thalweg, one_by_one))
    )


def total(compared: list[Compared]) -> str:
    """What was gained in these scenes together, in one line."""
    asked = sum(pod_set.count for each in compared for pod_set in each.scene.sets)
    planned = sum(pod_set.satisfied(each.thalweg) for each in compared for pod_set in each.scene.sets)
    sequential = sum(pod_set.satisfied(each.one_by_one) for each in compared for pod_set in each.scene.sets)
    return f"{planned:,} of {counted(asked, 'pod')} run as they ask, not {sequential:,}."


def show(*, every: bool) -> None:
    """Prints the first scenes, or all.

    Raises:
        ClaimError: the figures of a scene do not support its claim.
    """
    console = stdout_console(wrap=True)
    console.print(
        "[bold]Thalweg plans all waiting pods at once.[/bold] One by one, each pod in its turn (priority, then age) "
        "gets the best node by kube-scheduler's filters and a model of its scores; no kube-scheduler runs here. "
        "Policies hold in both columns, but one by one knows no gangs and no sets that belong together.\n",
        highlight=False,
    )
    compared = []
    for scene in (*first_scenes(), *(more_scenes() if every else ())):
        compared.append(compare(scene))
        compared[-1].page.show(console, len(compared))
    if every:
        asyncio.run(extender_page(pods.gpu_node())).show(console, len(compared) + 1)
        replacing_page().show(console, len(compared) + 2)
        preemption_page().show(console, len(compared) + 3)
    else:
        console.print("[bold]thalweg demo --all[/bold] shows more scenes.", highlight=False)
    console.print(
        "[bold]thalweg plan -f FILE[/bold] plans a cluster dump; [bold]thalweg up[/bold] starts a local cluster.",
        highlight=False,
    )
    console.print(f"[green]Gained in scenes 1 to {len(compared)}:[/green] {total(compared)}", highlight=False)


def _reasons(scene: Scene, plan: RoundResult) -> list[str]:
    """Why pods wait: a line for each set and reason."""
    counts = Counter((scene.row(each.pod.key), each.reason) for each in plan.unplaced)
    sizes = {each.name: each.count for each in scene.sets}
    return [
        f"{name if sizes[name] == 1 else f'{count} {name}'} {'waits' if count == 1 else 'wait'}: {reason}"
        for (name, reason), count in counts.items()
    ]


def _label(name: str, count: int) -> str:
    return name if count == 1 else f"{count} {name}"
