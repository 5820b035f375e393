"""What-if and headroom over HTTP: the same answers as for a dump on the command line."""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of
from thalweg.view.view import dump_source
from thalweg_view.callers.access import OneToken
from thalweg_view.web.serving import serving

from flowcore.questions.scenario.alternatives.headroom import HeadroomAnswer, HeadroomQuery, answer_headroom
from flowcore.questions.scenario.alternatives.what_if import WhatIfAnswer, WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import AddNodes, Change, Drain

OBJECTS = [*(manifest_node(name, "z") for name in "ab"), manifest_pod("web", "a", "3"), manifest_pod("large", cpu="9")]


async def test_a_question_over_http_has_the_answer_of_a_dump() -> None:
    """The bodies are JSON of the queries; a name that is not there and a change of no kind are told apart."""
    source = dump_source(scenario_of(OBJECTS), "now.json")
    async with serving("127.0.0.1", 0, source, OneToken("secret"), page={}) as port:
        url, headers = f"http://127.0.0.1:{port}/api/v1/", {"Authorization": "Bearer secret"}
        async with aiohttp.ClientSession(url, headers=headers) as client:

            async def ask(operation: str, query: Any) -> tuple[int, bytes]:
                body = msgspec.json.encode(query)
                json = {"Content-Type": "application/json"}
                async with client.post(operation, data=body, headers=json) as response:
                    return response.status, await response.read()

            context, changes = AnswerContext(now=NOW), list[Change]([Drain("a")])
            status, body = await ask("what-if", WhatIfQuery(changes))
            told = msgspec.json.decode(body, type=WhatIfAnswer)
            expected = answer_what_if(scenario_of(OBJECTS), WhatIfQuery(changes), context)
            assert (status, told.moved) == (200, expected.moved)
            status, body = await ask("headroom", HeadroomQuery(requests={"cpu": "1"}))
            room = msgspec.json.decode(body, type=HeadroomAnswer)
            wanted = answer_headroom(scenario_of(OBJECTS), HeadroomQuery(requests={"cpu": "1"}), context)
            assert (status, room.fits, room.nodes) == (200, wanted.fits, wanted.nodes)
            status, body = await ask("what-if", {"changes": [{"kind": "Drain", "node": "n9"}]})
            assert (status, msgspec.json.decode(body)["error"]) == (404, "there is no node n9")
            status, _ = await ask("what-if", {"changes": [{"kind": "Explode", "node": "a"}]})
            assert status == 400
            status, _ = await ask("what-if", {"changes": [{"kind": "Drain", "node": "a", "when": "now"}]})
            assert status == 400
            status, body = await ask("what-if", WhatIfQuery([AddNodes(6000, "a"), AddNodes(6000, "b")]))
            problem = "changes[1].count: the changes up to this one add 12000 nodes; a question may add 10000"
            assert (status, msgspec.json.decode(body)["error"]) == (400, problem)
