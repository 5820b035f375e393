"""The chart's alerts: Prometheus accepts them, each fires when it should and not before, each has a runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client import generate_latest
from support.repository import ROOT
from thalweg_operator.metrics import Metrics

FILE = ROOT / "charts" / "thalweg" / "files" / "alerts.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks"
RULES = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]
#: Series as promtool expands them, a value each minute for half an hour.
Series = dict[str, str]


class Case(NamedTuple):
    """Series with which an alert fires after half an hour, series with which it does not, and the labels it has."""

    fires: Series
    quiet: Series
    labels: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple's default is not changed


def constant(value: float) -> str:
    return f"{value}x30"


def rising(by: float) -> str:
    return f"0+{by}x30"


def histogram(name: str, labels: str, below: str, by: float) -> Series:
    """A histogram to which ``by`` observations come a minute, all in the bucket with this upper edge."""
    edges = {"0.001": 0.001, "1.0": 1, "10.0": 10, "+Inf": float("inf")}
    return {
        f'{name}_bucket{{{labels}le="{edge}"}}': rising(by if value >= float(below) else 0)
        for edge, value in edges.items()
    }


def answers(outcome: str, by: float) -> Series:
    return {f'thalweg_extender_answers_total{{verb="filter", outcome="{outcome}"}}': rising(by)}


def bindings(answer: str, by: float) -> Series:
    return {f'thalweg_bindings_total{{answer="{answer}"}}': rising(by)}


DAY = 86_400
CLIENT_ENDS = 'thalweg_extender_client_certificate_expiration_timestamp_seconds{pod="a"}'
CASES = {
    "ThalwegNoLeader": Case(
        {'thalweg_leader{pod="a"}': constant(0), 'thalweg_leader{pod="b"}': constant(0)},
        {'thalweg_leader{pod="a"}': constant(0), 'thalweg_leader{pod="b"}': constant(1)},
    ),
    "ThalwegSnapshotStale": Case(
        {'thalweg_watch_age_seconds{kind="pods"}': constant(91)},
        {
            'thalweg_watch_age_seconds{kind="pods"}': constant(75),
            'thalweg_watch_age_seconds{kind="podgroups.scheduling.k8s.io"}': constant(1e9),
            'thalweg_watch_age_seconds{kind="resourceclaims"}': constant(1e9),
        },
        {"kind": "pods"},
    ),
    "ThalwegWatchLags": Case(
        histogram("thalweg_watch_lag_seconds", "", "10.0", 50), histogram("thalweg_watch_lag_seconds", "", "1.0", 50)
    ),
    "ThalwegRoundsFail": Case(
        {'thalweg_rounds_failed_total{cause="memory"}': rising(1)},
        {'thalweg_rounds_failed_total{cause="memory"}': rising(0.1)},
        {"cause": "memory"},
    ),
    "ThalwegWorkerRestarts": Case(
        {"thalweg_worker_restarts_total": rising(1)}, {"thalweg_worker_restarts_total": rising(0.1)}
    ),
    "ThalwegPodsQuarantined": Case({"thalweg_quarantined": constant(1)}, {"thalweg_quarantined": constant(0)}),
    "ThalwegPodsWaitLong": Case(
        {'thalweg_longest_wait_seconds{reason="NodeAffinity"}': "3000+60x30"},
        {'thalweg_longest_wait_seconds{reason="NodeAffinity"}': "0+60x30"},
        {"reason": "NodeAffinity"},
    ),
    "ThalwegPodsCouldRun": Case(
        {'thalweg_regret_pods{at="least"}': constant(3), "thalweg_regret_open_pods": constant(2)},
        {
            'thalweg_regret_pods{at="least"}': constant(3),
            'thalweg_regret_pods{at="most"}': constant(9),
            "thalweg_regret_open_pods": constant(3),
        },
    ),
    "ThalwegBindingsFail": Case(
        bindings("bound", 90) | bindings("403", 20), bindings("bound", 90) | bindings("403", 5) | bindings("409", 50)
    ),
    "ThalwegExtenderFails": Case(
        answers("passed", 90) | answers("unready", 10), answers("passed", 90) | answers("failed", 1), {"verb": "filter"}
    ),
    "ThalwegExtenderSlow": Case(
        histogram("thalweg_extender_seconds", 'verb="filter", outcome="passed", ', "1.0", 50),
        histogram("thalweg_extender_seconds", 'verb="filter", outcome="passed", ', "0.001", 50),
        {"verb": "filter"},
    ),
    "ThalwegExtenderCertificateExpires": Case(
        {'thalweg_extender_certificate_expiration_timestamp_seconds{file="client CA"}': constant(6 * DAY)},
        {'thalweg_extender_certificate_expiration_timestamp_seconds{file="client CA"}': constant(8 * DAY)},
        {"file": "client CA"},
    ),
    "ThalwegClientCertificateExpires": Case(
        {CLIENT_ENDS: constant(13 * DAY), 'thalweg_leader{pod="a"}': constant(1)},
        {
            CLIENT_ENDS: constant(15 * DAY),
            'thalweg_leader{pod="a"}': constant(1),
            # It has led before, and nobody has asked it since.
            CLIENT_ENDS.replace('"a"', '"b"'): constant(DAY),
            'thalweg_leader{pod="b"}': constant(0),
            # Nobody has asked it yet.
            CLIENT_ENDS.replace('"a"', '"c"'): constant(0),
            'thalweg_leader{pod="c"}': constant(1),
        },
        {"pod": "a"},
    ),
    "ThalwegEventLoopLags": Case(
        histogram("thalweg_event_loop_lag_seconds", "", "1.0", 50),
        histogram("thalweg_event_loop_lag_seconds", "", "0.001", 50),
    ),
    "ThalwegWritesQueue": Case(
        {'thalweg_queued_writes{queue="bindings", state="due"}': "0+100x30"},
        {
            'thalweg_queued_writes{queue="bindings", state="due"}': "3000-50x30",
            'thalweg_queued_writes{queue="events", state="due"}': "0+100x30",
        },
        {"queue": "bindings"},
    ),
    "ThalwegInputsRefused": Case(
        {'thalweg_refused_inputs_total{kind="pod", field="spec"}': rising(2)},
        {'thalweg_refused_inputs_total{kind="pod", field="spec"}': rising(0.5)},
        {"kind": "pod", "field": "spec"},
    ),
    "ThalwegMemoryNearLimit": Case(
        {"thalweg_worker_memory_bytes": constant(950), "thalweg_worker_memory_limit_bytes": constant(1000)},
        {
            "thalweg_worker_memory_bytes": constant(850),
            "thalweg_worker_memory_limit_bytes": constant(1000),
            "process_resident_memory_bytes": constant(200),
            "thalweg_memory_limit_bytes": constant(0),
        },
    ),
}
#: The other ways to fire.
MORE = {
    "ThalwegNoLeader": Case({}, {"thalweg_leader": constant(1)}),
    "ThalwegMemoryNearLimit": Case(
        {
            "thalweg_worker_memory_bytes": constant(850),
            "process_resident_memory_bytes": constant(900),
            "thalweg_memory_limit_bytes": constant(1900),
        },
        {"thalweg_worker_memory_bytes": constant(850), "thalweg_worker_memory_limit_bytes": constant(0)},
    ),
}


def run(promtool: Path, *arguments: str | Path, stdin: bytes | None = None) -> str:
    done = subprocess.run([promtool, *arguments], input=stdin, capture_output=True, check=False)
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output


def rule_test(name: str, series: Series, labels: dict[str, str], *, fires: bool) -> dict[str, Any]:
    """A group of promtool's: after half an hour the alert fires with these labels and its severity, or not at all."""
    (severity,) = (rule["labels"]["severity"] for rule in RULES if rule["alert"] == name)
    shown = {"alertname": name, "alertstate": "firing", "severity": severity, **labels}
    sample = {"labels": "ALERTS" + str(shown).replace("': ", "=").replace(", '", ", ").replace("{'", "{"), "value": 1}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{name}", alertstate="firing"}}',
                "eval_time": "30m",
                "exp_samples": [sample] if fires else [],
            }
        ],
    }


def test_each_alert_fires_when_it_should_and_not_before(promtool: Path, tmp_path: Path) -> None:
    """Of each alert: series with which it fires, and series just short of it. The grammar is right too."""
    assert set(CASES) == {rule["alert"] for rule in RULES}
    run(promtool, "check", "rules", FILE)
    tests = [
        rule_test(name, series, case.labels, fires=fires)
        for cases in (CASES, MORE)
        for name, case in cases.items()
        for series, fires in ((case.fires, True), (case.quiet, False))
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": tests}))
    run(promtool, "test", "rules", file)


def test_metrics_follow_the_conventions(promtool: Path) -> None:
    """The lint of promtool finds nothing in what an operator exports."""
    run(promtool, "check", "metrics", stdin=generate_latest(Metrics().registry))


def test_every_alert_has_a_runbook() -> None:
    """Each alert has a page, each page an alert; the link leads there once the base is known."""
    names = [rule["alert"] for rule in RULES]
    assert sorted(names) == sorted(path.stem for path in RUNBOOKS.glob("*.md"))
    for rule in RULES:
        assert rule["annotations"]["runbook_url"] == f"RUNBOOK_BASE/{rule['alert']}.md"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_a_runbook_says_what_to_do(page: Path) -> None:
    """It has its four parts, a way out before the diagnosis if it needs one, commands, and a metric of the alert."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    parts = [each for each in headings if each != "Get out first"]
    assert parts == [page.stem, "Meaning", "Impact", "Diagnosis", "Mitigation"]
    assert "```sh\n" in text
    (expression,) = (rule["expr"] for rule in RULES if rule["alert"] == page.stem)
    metrics = {name.removesuffix("_bucket") for name in re.findall(r"\bthalweg_\w+", expression)}
    assert any(name in text for name in metrics), metrics
