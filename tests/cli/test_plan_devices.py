"""``thalweg plan`` says which devices placed pods get."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.cli import Manifest, node, pod, thalweg
from support.device_clusters import API, GPU, claim, slice_of
from thalweg.main import main

from flowcore.planning import plan_document


def claims_of(name: str, count: int) -> list[Manifest]:
    """A pod with a claim that was made for it."""
    waiting = pod(name, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    waiting["metadata"]["uid"] = name
    waiting["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    return [waiting, {**API, "kind": "ResourceClaim", **claim(f"{name}-gpu", count, owner=name)}]


def test_devices_of_placed_pods() -> None:
    """In JSON each with claim and request; in the table of the pods the first ones, where any pod has one."""
    objects = [
        node("a", "16"),
        {**API, "kind": "DeviceClass", **GPU},
        {**API, "kind": "ResourceSlice", **slice_of("a", 6)},
        *claims_of("p", 5),
        pod("plain"),
    ]
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    done = thalweg("plan", "-f", "-", "-o", "json", stdin=dump)
    assert done.returncode == 0, done.stderr
    placed = {each["pod"]: each["devices"] for each in json.loads(done.stdout)["placed"]}
    assert placed["default/plain"] == []
    device = {"claim": "p-gpu", "request": "r", "driver": "gpu.example.com", "pool": "a"}
    assert placed["default/p"] == [{**device, "device": f"gpu-{number}"} for number in range(5)]
    table = [line.split() for line in thalweg("plan", "-f", "-", "--pods", stdin=dump).stdout.splitlines()]
    assert ["POD", "NODE", "COST", "DEVICES", "REMARK"] in table
    rows = {row[0]: " ".join(row[3:]) for row in table if len(row) > 3}
    assert rows["default/plain"].startswith("- ")
    assert rows["default/p"].startswith("a/gpu-0, a/gpu-1, a/gpu-2")


def test_parameters_that_are_nested_deep() -> None:
    """Anybody may write them into a claim of their own. They are a driver's alone: the dump is planned all the same."""
    deep = '{"a":' * 4000 + "1" + "}" * 4000
    waiting, made = claims_of("p", 1)
    made["spec"]["devices"]["config"] = [{"opaque": {"driver": "gpu.example.com", "parameters": "DEEP"}}]
    gpu = {**API, "kind": "DeviceClass", **GPU}
    objects = [node("a", "16"), gpu, {**API, "kind": "ResourceSlice", **slice_of("a", 1)}, waiting, made]
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).replace('"DEEP"', deep)
    done = thalweg("plan", "-f", "-", "-o", "json", stdin=dump)
    assert done.returncode == 0, done.stderr
    assert [each["device"] for each in json.loads(done.stdout)["placed"][0]["devices"]] == ["gpu-0"]


def test_devices_that_are_not_listed_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A plan looks for those of 2,000 pods at most, here of one, and says of how many it did not."""
    monkeypatch.setattr(plan_document, "_MOST_PODS_WITH_DEVICES", 1)
    gpu = {**API, "kind": "DeviceClass", **GPU}
    slices = {**API, "kind": "ResourceSlice", **slice_of("a", 6)}
    objects = [node("a", "16"), gpu, slices, *claims_of("p", 1), *claims_of("q", 1), *claims_of("r", 1)]
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    done = CliRunner().invoke(main, ["plan", "-f", str(path), "-o", "json"])
    answer = json.loads(done.stdout)
    assert sum(bool(each["devices"]) for each in answer["placed"]) == 1
    said = "the devices of 2 placed pods are not listed: a plan has those of the first 2,000 pods with claims"
    assert said in answer["warnings"]
