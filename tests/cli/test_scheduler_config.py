"""`thalweg scheduler-config` prints a file that kube-scheduler takes, and says what its lines do."""

import base64
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from support.cli import thalweg
from support.extender import StubPlanView
from thalweg_controlplane.certificates import Authority
from thalweg_extender.extender_limits import DEFAULT_LIMITS
from thalweg_extender.server import VerbDispatcher

from flowcore.model.advice import Advice
from flowcore.model.policies import MARK

PLAIN = ("--url", "http://127.0.0.1:8081/extender")


def printed(*arguments: str | Path) -> dict[str, Any]:
    """The configuration, read as YAML."""
    done = thalweg("scheduler-config", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A CA's certificate."""
    return Authority(tmp_path, "ca").certificate


def test_the_defaults(authority: Path) -> None:
    """Strict, verified, the default profile as it was, steered pods with the smallest sample, and it binds itself."""
    config = printed("--ca-file", authority)
    assert config["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert config["clientConnection"]["kubeconfig"] == "/etc/kubernetes/scheduler.conf"
    assert config["leaderElection"] == {"leaderElect": True}
    assert config["profiles"] == [
        {"schedulerName": "default-scheduler"},
        {"schedulerName": "thalweg-steered", "percentageOfNodesToScore": 1},
    ]
    assert config["extenders"] == [
        {
            "urlPrefix": "https://thalweg.thalweg-system:8443/extender",
            "filterVerb": "filter",
            "preemptVerb": "preempt",
            "nodeCacheCapable": True,
            "httpTimeout": "5s",
            "ignorable": False,
            "enableHTTPS": True,
            "tlsConfig": {"caData": base64.b64encode(authority.read_bytes()).decode()},
        }
    ]


def test_pods_of_others_are_not_asked_about(authority: Path) -> None:
    """By the mark that the API server puts on governed pods; the comments say what others may do, and what batches."""
    config = printed("--ca-file", authority, "--ask-for", "Governed")
    (extender,) = config["extenders"]
    assert extender["managedResources"] == [{"name": MARK, "ignoredByScheduler": True}]
    governed = thalweg("scheduler-config", *PLAIN, "--ask-for", "Governed").stdout
    assert "they may take room that a plan promised" in governed
    assert "NO pod of any profile is scheduled" not in governed
    every = thalweg("scheduler-config", *PLAIN, "--ask-for", "All").stdout
    assert every == thalweg("scheduler-config", *PLAIN).stdout
    beside = thalweg("scheduler-config", *PLAIN, "--beside").stdout
    assert ["batches equal pods in no profile" in text for text in (every, governed, beside)] == [True, True, False]


def test_every_verb_that_is_answered_is_asked(authority: Path) -> None:
    """kube-scheduler asks only what its configuration names: for scores where it compares nodes."""
    (extender,) = printed("--ca-file", authority, "--node-sample", "100")["extenders"]
    asked = {value for name, value in extender.items() if name.endswith("Verb")}
    told = Mock()
    dispatcher = VerbDispatcher(StubPlanView(Advice()), DEFAULT_LIMITS, on_answer=told, on_refused=told)
    assert asked == {verb for verb, _ in dispatcher._verbs.values()}


def test_what_is_asked_for(authority: Path) -> None:
    """Each option reaches its line; an https extender is always verified."""
    odd = '/etc/it is: "odd"'
    config = printed(
        *("--url", "https://10.0.0.1:8443/extender/", "--kubeconfig-path", odd, "--ignorable"),
        *("--scheduler-name", "mine", "--node-sample", "100", "--ca-file", authority),
        *("--client-cert-file", "/etc/it is/a.crt", "--client-key-file", "/etc/it is/a.key"),
    )
    assert config["clientConnection"]["kubeconfig"] == odd
    assert config["profiles"][1] == {"schedulerName": "mine", "percentageOfNodesToScore": 100}
    (extender,) = config["extenders"]
    assert extender["urlPrefix"] == "https://10.0.0.1:8443/extender"
    assert (extender["ignorable"], extender["enableHTTPS"]) == (True, True)
    assert base64.b64decode(extender["tlsConfig"].pop("caData")) == authority.read_bytes()
    assert extender["tlsConfig"] == {"certFile": "/etc/it is/a.crt", "keyFile": "/etc/it is/a.key"}


def test_a_second_kube_scheduler() -> None:
    """It serves steered pods alone, and never fights for the lease of the cluster's own."""
    config = printed("--beside", *PLAIN)
    assert [each["schedulerName"] for each in config["profiles"]] == ["thalweg-steered"]
    assert config["leaderElection"] == {"leaderElect": False}


def test_replicas_of_a_second_kube_scheduler_in_pods(tmp_path: Path) -> None:
    """A lease of its own, its pod's account, and paths of certificates; written where only the owner can read it."""
    output = tmp_path / "scheduler.yaml"
    output.touch(0o644)
    done = thalweg(
        *("scheduler-config", "--beside", "--lease", "system/second", "--kubeconfig-path", "", "--output", output),
        *("--ca-path", "/c/ca.crt", "--client-cert-file", "/c/tls.crt", "--client-key-file", "/c/tls.key"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert output.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(output.read_text())
    election = {"leaderElect": True, "resourceNamespace": "system", "resourceName": "second"}
    assert config["leaderElection"] == election
    assert "kubeconfig" not in config["clientConnection"]
    files = {"caFile": "/c/ca.crt", "certFile": "/c/tls.crt", "keyFile": "/c/tls.key"}
    assert config["extenders"][0]["tlsConfig"] == files


def test_its_comments_say_what_happens_without_us() -> None:
    """Either way in plain words, and only those that are so."""
    strict = thalweg("scheduler-config", *PLAIN).stdout
    ignorable = thalweg("scheduler-config", *PLAIN, "--ignorable").stdout
    assert "NO pod of any profile is scheduled" in strict
    assert "NO pod of any profile is scheduled" not in ignorable
    assert "schedules all pods without a plan" in ignorable
    assert "schedules all pods without a plan" not in strict
    for text in (strict, ignorable):
        assert "<" not in text
        assert max(map(len, text.splitlines())) <= 132


@pytest.mark.parametrize(
    "words",
    [
        ("--url", "thalweg:8080"),
        ("--ca-file",),
        ("--ca-file", __file__, "--url", "https://10.0.0.1/extender"),
        ("--client-cert-file", "a.crt", *PLAIN),
        ("--client-cert-file", "a.crt", "--client-key-file", "a.key", *PLAIN),
        ("--node-sample", "0"),
        ("--scheduler-name", "default-scheduler", *PLAIN),
        ("--scheduler-name", "thalweg", *PLAIN),
        ("--ca-file", "/no/such/file"),
        ("--ca-path", "/ca.crt", *PLAIN),
        ("--ca-path", "/ca.crt", "--certificates", "a/b"),
        ("--client-cert-file", "/c", "--client-key-file", "/k", "--certificates", "a/b"),
        ("--service", "a/b", *PLAIN),
        ("--service", "b"),
        ("--store", "a/b", "--output", "never-written.yaml", "--ca-path", "/ca.crt"),
        ("--output", "/no/such/folder/x", "--ca-path", "/ca.crt"),
    ],
)
def test_mistakes(words: tuple[str, ...]) -> None:
    """Answered with usage, nothing printed that could be taken for a configuration."""
    done = thalweg("scheduler-config", *(words if len(words) > 1 else ()))
    assert (done.returncode, done.stdout) == (2, "")
    assert words[0] in done.stderr
