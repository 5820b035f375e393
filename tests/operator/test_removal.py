"""What is left where the API server refuses a part of the removal, or is busy."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.fake_api import refusal, serving
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.policies import removal
from thalweg_operator.policies.gate_admission import BINDINGS_PATH
from thalweg_operator.policies.removal import Removed, remove

from flowcore.model.policies import GATE

OTHER = "example.com/other"


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No waiting for API servers that do not exist."""
    monkeypatch.setattr(removal, "_SETTLED", 0.05)
    return iter(())


class Cluster:
    """Admission objects, policies and pods by name.

    Attributes:
        faults: statuses that the next requests to a path are answered with; 200 with a page of a proxy.
        order: what was changed, in order.
    """

    def __init__(self, pods: dict[str, list[str]]) -> None:
        self.pods = pods
        self.objects = {
            "mutatingadmissionpolicies": {"thalweg-gate"},
            "mutatingadmissionpolicybindings": {"thalweg-gate"},
        }
        self.objects["flowschedulingpolicies"] = {"a", "b"}
        self.objects["newpodrules"] = {"thalweg"}
        self.faults: dict[str, list[int]] = {}
        self.order: list[str] = []
        self.requests: Counter[str] = Counter()
        self.app = web.Application(middlewares=[self._fault])
        self.app.router.add_get("/api/v1/pods", self._list_pods)
        self.app.router.add_patch("/api/v1/namespaces/{namespace}/pods/{name}", self._open)
        self.app.router.add_get("/apis/{group}/{version}/{kind}", self._list)
        self.app.router.add_delete("/apis/{group}/{version}/{kind}/{name}", self._delete)

    @web.middleware
    async def _fault(self, request: web.Request, handler: Any) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        self.requests[name] += 1
        if faults := self.faults.get(name):
            status = faults.pop(0)
            return web.Response(body=b"<html>") if status == 200 else refusal(status, f"no {name}")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _list_pods(self, request: web.Request) -> web.Response:
        assert request.query["fieldSelector"] == "spec.nodeName="
        names, start, limit = sorted(self.pods), int(request.query.get("continue", "0")), 2
        items = [
            {
                "metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {"schedulingGates": [{"name": gate} for gate in self.pods[name]]},
            }
            for name in names[start : start + limit]
        ]
        more = {"continue": str(start + limit)} if start + limit < len(names) else {}
        return web.json_response({"metadata": more, "items": items})

    async def _open(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        assert (await request.json())["metadata"]["uid"] == name
        self.pods[name].remove(GATE)
        self.order.append("gate")
        return web.json_response({})

    async def _list(self, request: web.Request) -> web.Response:
        items = [{"metadata": {"name": name}} for name in sorted(self.objects[request.match_info["kind"]])]
        return web.json_response({"metadata": {}, "items": items})

    async def _delete(self, request: web.Request) -> web.Response:
        names, name = self.objects[request.match_info["kind"]], request.match_info["name"]
        if name not in names:
            return refusal(404, f"no {name}")
        names.remove(name)
        self.order.append(request.match_info["kind"])
        return web.json_response({})


async def removed(cluster: Cluster, folder: Path, *, policies: bool = False) -> Removed:
    async with serving(cluster.app, folder) as connection:
        return await remove(connection, lambda _line: None, policies=policies)


async def test_admission_first_then_gates_then_policies(tmp_path: Path) -> None:
    """So that no new pod is gated meanwhile; gates of others stay; a busy server is asked again."""
    cluster = Cluster({f"p{n}": [OTHER, GATE] if n % 2 else [GATE] for n in range(5)} | {"q": [OTHER], "r": []})
    cluster.faults = {"p1": [429, 500], "pods": [503], "mutatingadmissionpolicybindings": [429]}
    done = await removed(cluster, tmp_path, policies=True)
    assert (done.admission_objects, done.gates_opened, done.policies, done.problems) == (2, 5, 2, [])
    assert cluster.order == [
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "newpodrules",
        *["gate"] * 5,
        *["flowschedulingpolicies"] * 2,
    ]
    assert cluster.pods == {"p0": [], "p1": [OTHER], "p2": [], "p3": [OTHER], "p4": [], "q": [OTHER], "r": []}
    again = await removed(cluster, tmp_path)
    assert again == Removed()


async def test_what_is_refused_is_said_and_keeps_nothing_else(tmp_path: Path) -> None:
    """A pod that may not be opened, one that went, an object that may not be deleted."""
    cluster = Cluster({f"p{n}": [GATE] for n in range(5)})
    cluster.faults = {"p1": [403] * 9, "p3": [404], "thalweg-gate": [403]}
    done = await removed(cluster, tmp_path)
    assert done.gates_opened == 4
    assert done.problems == [
        f"{BINDINGS_PATH}/thalweg-gate is not deleted: no thalweg-gate",
        "the gate of pod default/p1 is not opened: no p1",
    ]
    assert cluster.requests["p1"] == 1


async def test_a_server_without_admission_policies(tmp_path: Path) -> None:
    """404 for the kinds: gates are opened all the same."""
    cluster = Cluster({"p": [GATE]})
    cluster.faults = {"mutatingadmissionpolicies": [404], "mutatingadmissionpolicybindings": [404]}
    done = await removed(cluster, tmp_path)
    assert (done.admission_objects, done.gates_opened, done.problems) == (0, 1, [])


async def test_pods_that_may_not_be_listed(tmp_path: Path) -> None:
    """It ends with the API server's words."""
    cluster = Cluster({"p": [GATE]})
    cluster.faults = {"pods": [403]}
    with pytest.raises(Refused, match="403: no pods"):
        await removed(cluster, tmp_path)


async def test_an_answer_that_is_no_list(tmp_path: Path) -> None:
    """It ends with a sentence, not with a decoder's error."""
    cluster = Cluster({"p": [GATE]})
    cluster.faults = {"pods": [200]}
    with pytest.raises(ConnectionLost, match="the API server's answer is no list"):
        await removed(cluster, tmp_path)
