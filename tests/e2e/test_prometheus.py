"""A real Prometheus scrapes a real operator at work: every expression of dashboard and alerts has an answer."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.cluster_scenario import ClusterScenario
from support.operator import Operator, running_operator, until
from support.prometheus import JOB, NAMESPACE, Prometheus, running_prometheus
from support.repository import ROOT
from support.steering import DelayingProxy
from support.tools import prometheus as executable

from flowcore.model.policies import GATE, SCHEDULER_NAME

__all__ = ["executable"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED: dict[str, str] = {}
PAGES = ROOT / "docs" / "reference"
FILES = ROOT / "charts" / "thalweg" / "files"
#: Metrics without samples here, and why.
WITHOUT_SAMPLES = {
    "thalweg_relists_total": "no watch fails",
    "thalweg_write_retries_total": "no write fails",
    "thalweg_claim_writes_total": "no pod has a claim",
    "thalweg_evictions_total": "no pod replaces another",
    "thalweg_eviction_dry_runs_total": "no pod leaves with others",
    "thalweg_moves_total": "no pod is moved",
    "thalweg_refused_inputs_total": "all objects can be read",
    "thalweg_unreadable_objects_total": "all objects can be read",
    "thalweg_saved_usage_total": "no policy asks for measured usage",
    "thalweg_usage_nodes": "no policy asks for measured usage",
    "thalweg_usage_reads_total": "no policy asks for measured usage",
    "thalweg_usage_poll_seconds": "no policy asks for measured usage",
    "thalweg_regret_closed_pods_total": "no placement closed a room",
    "thalweg_spans_total": "no endpoint for traces is configured",
    "thalweg_view_requests_total": "the view is off",
    "thalweg_extender_certificate_expiration_timestamp_seconds": "kube-scheduler asks over HTTP here",
    "thalweg_extender_client_certificate_expiration_timestamp_seconds": "kube-scheduler asks over HTTP here",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(
    account: Path, relay: DelayingProxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Operator]:
    """It audits, too."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    options = ("--extender-listen", relay.to, "--audit-interval", "1")
    async with running_operator(account, log, extender=options) as operator:
        yield operator


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prometheus(
    executable: Path, operator: Operator, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    async with running_prometheus(executable, folder, operator.address, FILES / "alerts.yaml") as prometheus:
        yield prometheus


def expressions() -> Iterator[str]:
    """Of the dashboard, with its variables chosen as Grafana does."""
    for panel in json.loads((FILES / "dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield (
                target["expr"].replace("$namespace", NAMESPACE).replace("$job", JOB).replace("$__rate_interval", "1m")
            )


async def test_every_expression_has_an_answer(scene: ClusterScenario, prometheus: Prometheus) -> None:
    """Pods are bound by the binder and by kube-scheduler, others wait: each panel shows something, each rule works."""
    await scene.nodes("a", "b", cpu="2")
    for number in range(3):
        await scene.create(f"bound-{number}", "200m", scheduler=SCHEDULER_NAME)
        await scene.create(f"steered-{number}", "200m")
    await scene.create("gated", "200m", schedulingGates=[{"name": GATE}])
    await scene.create("waits", "64", scheduler=SCHEDULER_NAME)
    await scene.nodes_of(*(f"{kind}-{number}" for kind in ("bound", "steered") for number in range(3)), "gated")
    await scene.reason_of("waits", "Insufficient cpu")

    missing = [each for each in expressions() if not any(name in each for name in WITHOUT_SAMPLES)]

    async def all_answered() -> bool:
        missing[:] = [each for each in missing if not await prometheus.query(each)]
        return not missing

    await until(all_answered, 120, lambda: f"samples for {missing}")
    for expression in expressions():
        await prometheus.query(expression)  # also the others are accepted
    (wait,) = await prometheus.query('thalweg_waiting_pods{reason="NodeResourcesFit"}')
    assert wait["value"][1] == "1"

    async def evaluated() -> bool:
        return all(rule["health"] != "unknown" for rule in await prometheus.rules())

    await until(evaluated, 30, lambda: "the rules to be evaluated")
    rules = {rule["name"]: rule for rule in await prometheus.rules()}
    assert rules.keys() == {
        rule["alert"]
        for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    }
    assert {rule["health"] for rule in rules.values()} == {"ok"}, rules
    assert rules["ThalwegNoLeader"]["state"] == rules["ThalwegSnapshotStale"]["state"] == "inactive"


async def test_tenants_add_no_series(scene: ClusterScenario) -> None:
    """No text of the objects of tenants is in a metric; other texts bring values of labels that are documented."""
    mark = "tenantmark"
    await scene.nodes("a", cpu="2")

    async def write(wave: int) -> None:
        text = f"{mark}{wave}"
        for number, changes in enumerate(
            (
                {"labels": {f"{text}/l": text}, "annotations": {f"{text}/a": text}},
                {"annotations": {"scheduling.thalweg/gang": text, "scheduling.thalweg/min-member": text}},
                {"annotations": {"scheduling.thalweg/replaces": text}},
                {"annotations": {"scheduling.thalweg/replaces": f"no name {text}"}},
                {"nodeSelector": {text: text}},
                {"nodeName": ""} | {"schedulingGates": [{"name": f"{text}/gate"}]},
                {"extended": {f"{text}.example/device": "1"}},
                {"tolerations": [{"key": text, "operator": "Exists"}], "cpu": "64"},
                {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": text, "whenUnsatisfiable": "DoNotSchedule",
                                                "labelSelector": {"matchLabels": {text: text}}}]},
            )
        ):  # fmt: skip
            for scheduler in (SCHEDULER_NAME, scene.scheduler):
                name = f"{text}-{number}-{scheduler}"
                await scene.create(name, **{"scheduler": scheduler, **changes})
                scene.ignored_reasons.add(name)
        await scene.policy(f"{mark}-{wave}", selects={"podSelector": {"matchLabels": {text: text}}})

    async def label_values() -> set[str]:
        _, text = await scene.operator.get("/metrics")
        return {
            value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            for label, value in sample.labels.items()
            if label != "le"
        }

    async def settled(wave: int) -> set[str]:
        await scene.create(f"last-{wave}", "10m", scheduler=SCHEDULER_NAME)
        await scene.node_of(f"last-{wave}")
        await scene.reason_of(f"{mark}{wave}-7-{SCHEDULER_NAME}", "Insufficient cpu")
        await scene.delete(*[each["metadata"]["name"] for each in await scene.pods()])
        return await label_values()

    await write(0)
    before = await settled(0)
    await write(1)
    after = await settled(1)
    assert not {value for value in after if mark in value}
    known = {
        word for page in ("metrics", "reasons") for word in re.findall(r"`([^`]+)`", (PAGES / f"{page}.md").read_text())
    }
    assert {value for value in after - before if not re.fullmatch(r"\d{3}", value)} <= known
