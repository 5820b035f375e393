"""A what-if of the operator knows the templates that its pods name, as one of a dump does."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from support.device_clusters import API, GPU, claim, slice_of
from support.fake_api import serving
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of
from thalweg.sources.claim_templates import with_claim_templates

from flowcore.questions.scenario.alternatives.what_if import WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import Cordon, PutObjects
from flowcore.questions.scenario.plan_listing import PlanQuery

Manifest = dict[str, Any]


def of_template(name: str, template: str) -> Manifest:
    """A pod with a claim of a template; a controller has made nothing yet."""
    pod = manifest_pod(name)
    pod["apiVersion"] = "v1"
    pod["spec"]["schedulerName"] = "thalweg"
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return pod


def template(name: str, count: int) -> Manifest:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"spec": claim("c", count)["spec"]}}


async def completed(query: msgspec.Struct, folder: Path, templates: dict[str, web.Response]) -> msgspec.Struct:
    """A question with what an API server has of these templates; any other is not there."""

    async def answer(request: web.Request) -> web.Response:
        return templates.pop(request.match_info["name"], web.Response(status=404))

    app = web.Application()
    app.router.add_get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates/{name}", answer)
    async with serving(app, folder) as connection:
        return await with_claim_templates(connection, query)


@pytest.mark.parametrize("count", [2, 5])
async def test_pods_are_planned_with_their_templates(tmp_path: Path, count: int) -> None:
    """Node a has four GPUs: a pod with two is placed, a pod with five waits for devices and not for its claim."""
    scenario = scenario_of(
        [
            manifest_node("a", "z", cpu="16"),
            {**API, "kind": "DeviceClass", **GPU},
            {**API, "kind": "ResourceSlice", **slice_of("a", 4)},
        ]
    )
    scenario.complete = True  # as an operator knows its cluster
    query = WhatIfQuery([PutObjects([of_template("p", "t") | {"kind": "Pod"}])])
    assert answer_what_if(scenario, query, AnswerContext(NOW)).after.waiting == 1
    asked = await completed(query, tmp_path, {"t": web.json_response(template("t", count))})
    assert isinstance(asked, WhatIfQuery)
    answer = answer_what_if(scenario, asked, AnswerContext(NOW))
    assert answer.after.waiting == (count > 4)
    assert count < 4 or "cannot allocate all claims" in answer.reasons["default/p"]


async def test_templates_that_the_question_brings(tmp_path: Path) -> None:
    """They count as they are given; the API server is not asked for them, nor for those of a question without pods."""
    brought = {**API, "kind": "ResourceClaimTemplate", **template("t", 1)}
    query = WhatIfQuery([PutObjects([of_template("p", "t")]), PutObjects([brought])])
    templates = {"t": web.json_response(template("t", 3))}
    assert await completed(query, tmp_path, templates) is query
    assert templates
    for other in (WhatIfQuery([Cordon("a")]), PlanQuery()):
        assert await completed(other, tmp_path, templates) is other


async def test_templates_that_are_not_to_be_had(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is not there is the pod's reason, as in a cluster; one that may not be read is a warning."""
    query = WhatIfQuery([PutObjects([of_template("p", "gone"), of_template("q", "secret")])])
    assert await completed(query, tmp_path, {"secret": web.Response(status=403)}) is query
    assert capsys.readouterr().err.startswith("Warning: ResourceClaimTemplate default/secret is not read: 403")
