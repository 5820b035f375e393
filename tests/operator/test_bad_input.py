"""What was refused is counted each time and logged once."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from structlog.testing import capture_logs
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.api.bad_input import FIRST_REFUSED, BadInput
from thalweg_operator.api.watches.sinks import PodSink, pod_decoder
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.waiting_codes import INVALID, blocked_code

from flowcore.api import Interner
from flowcore.api.base import to_seconds
from flowcore.model import pod_terms
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN, CHECKPOINTED_AT, DURING_EXECUTION, DuringExecution
from flowcore.model.selectors import LabelSelector
from flowcore.model.usage import MAX_FUTURE


def test_logged_once_for_each_kind_and_field_and_counted_always():
    """A thousand objects with the same flaw write one line; each of them is counted."""
    metrics = Metrics()
    refused = BadInput(metrics)
    with capture_logs() as logs:
        for number in range(1000):
            refused.refuse("pod", "metadata.labels", f"team/{number}", "the labels are longer than 16 KiB")
        refused.refuse("pod", "spec.affinity", "team/0", "more than 256 terms")
    assert [(each["kind"], each["field"], each["name"]) for each in logs] == [
        ("pod", "metadata.labels", "team/0"),
        ("pod", "spec.affinity", "team/0"),
    ]
    count = metrics.registry.get_sample_value
    assert count("thalweg_refused_inputs_total", {"kind": "pod", "field": "metadata.labels"}) == 1000
    assert count("thalweg_refused_inputs_total", {"kind": "pod", "field": "spec.affinity"}) == 1


def test_gang_annotations_that_cannot_be_read_are_counted() -> None:
    """Each pod has its reason, one line is written for each annotation, and pods beside them are not concerned."""
    metrics = Metrics()
    decode = pod_decoder(Interner(), BadInput(metrics))
    group = ",".join(f"g{number}" for number in range(100))
    said = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-group": group}
    unreadable = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "two"}
    with capture_logs() as logs:
        bad = [decode(_pod(f"p{number}", said)) for number in range(3)]
        bad.append(decode(_pod("two", unreadable)))
        good = decode(_pod("good", {"scheduling.thalweg/gang": "train"}))
    assert all(pod.blocked_reason for pod in bad)
    assert not good.blocked_reason
    field = "annotation scheduling.thalweg/gang-group"
    assert [(each["field"], each["name"]) for each in logs] == [
        (field, "default/p0"),
        ("annotation scheduling.thalweg/gang-min-member", "default/two"),
    ]
    assert metrics.registry.get_sample_value("thalweg_refused_inputs_total", {"kind": "pod", "field": field}) == 3


def test_words_of_users_do_not_change_the_code() -> None:
    """The text of an annotation that cannot be read is in the reason; it may be like that of another reason."""
    size = "its scheduling gates are closed"
    decode = pod_decoder(Interner(), BadInput(Metrics()))
    with capture_logs():
        bad = decode(_pod("p", {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": size}))
    assert size in bad.blocked_reason
    assert blocked_code(bad) == INVALID
    assert delivery_of(BUILT_IN).is_told(bad), "nobody else tells it"


def test_annotations_about_the_topology_of_a_gang_that_cannot_be_read_are_counted() -> None:
    """The pod says so itself where it waits with its gang, and is not blocked."""
    metrics = Metrics()
    decode = pod_decoder(Interner(), BadInput(metrics))
    gang, prefix = {"scheduling.thalweg/gang": "train"}, "scheduling.thalweg/gang-"
    with capture_logs() as logs:
        for number in range(3):
            decode(_pod(f"p{number}", {**gang, f"{prefix}topology": "no key"}))
        decode(_pod("size", {f"{prefix}slice-size": "2"}))
        decode(_pod("good", {**gang, f"{prefix}topology": "example.com/rack"}))
    assert [(each["field"], each["name"], each["problem"]) for each in logs] == [
        (f"annotation {prefix}topology", "default/p0", '"no key" is no key of a label'),
        (f"annotation {prefix}slice-size", "default/size", f"it needs {prefix}slice-topology beside it"),
    ]
    sample = {"kind": "pod", "field": f"annotation {prefix}topology"}
    assert metrics.registry.get_sample_value("thalweg_refused_inputs_total", sample) == 3


def test_an_unknown_value_of_during_execution_is_counted() -> None:
    """The pod counts as one that ignores broken rules, and is planned like any other."""
    metrics = Metrics()
    decode = pod_decoder(Interner(), BadInput(metrics))
    with capture_logs() as logs:
        bad, good = (decode(_pod(value, {DURING_EXECUTION: value})) for value in ("Sometimes", "Evict"))
    assert (bad.during_execution, bad.blocked_reason) == (DuringExecution.IGNORE, "")
    assert good.during_execution is DuringExecution.EVICT
    field = f"annotation {DURING_EXECUTION}"
    assert [(each["field"], each["name"]) for each in logs] == [(field, "default/Sometimes")]
    assert metrics.registry.get_sample_value("thalweg_refused_inputs_total", {"kind": "pod", "field": field}) == 1


@pytest.mark.parametrize(
    "text",
    ["yesterday", "", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00", "-1", "9" * 100_000, "2100-01-01T00:00:00Z"],
)
def test_a_checkpoint_that_is_no_time_or_in_the_future_is_counted(text: str) -> None:
    """It is told on the pod and counts as none; the pod is read like any other."""
    metrics, now = Metrics(), to_seconds(datetime(2026, 11, 26, tzinfo=UTC))
    decode = pod_decoder(Interner(), BadInput(metrics), lambda: now)
    with capture_logs() as logs:
        bad = decode(_pod("bad", {CHECKPOINTED_AT: text}))
        good = decode(_pod("good", {CHECKPOINTED_AT: "2026-11-25T23:59:59.5+00:00"}))
    assert (good.checkpointed, bad.blocked_reason) == (now - 0.5, "")
    assert bad.checkpointed == 0.0 or bad.checkpointed > now + MAX_FUTURE, "moves count it as none"
    field = f"annotation {CHECKPOINTED_AT}"
    assert [(each["field"], each["name"]) for each in logs] == [(field, "default/bad")]
    assert "it is ignored" in logs[0]["problem"]
    assert metrics.registry.get_sample_value("thalweg_refused_inputs_total", {"kind": "pod", "field": field}) == 1


def _pod(name: str, annotations: dict[str, str]) -> bytes:
    return msgspec.json.encode({"metadata": {"name": name, "annotations": annotations}, "spec": {}})


def test_terms_of_running_pods_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod that came too late is named once, and its status reports count; pods of other namespaces are not told."""
    monkeypatch.setattr(pod_terms, "MAX_TERMS_ABOUT_OTHERS", 1)
    metrics, state = Metrics(), DrivenLedger()
    sink = PodSink(state.shell, BadInput(metrics))
    with capture_logs() as logs:
        for number, namespace in enumerate(("mallory", "mallory", "other")):
            term = AffinityTerm(f"key{number}", LabelSelector(), (), LabelSelector())
            rules = InterPodConstraints(anti_affinity=(term,))
            pod = Pod(namespace, f"p{number}", f"u{number}", PodClass(), node_name="n", constraints=rules)
            sink.upsert(pod)
            sink.upsert(msgspec.structs.replace(pod, started=1.0))
    assert [(each["field"], each["name"]) for each in logs if each["event"] == FIRST_REFUSED] == [
        ("spec.affinity", "mallory/p1")
    ]
    count = metrics.registry.get_sample_value
    assert count("thalweg_refused_inputs_total", {"kind": "pod", "field": "spec.affinity"}) == 2
