"""The check of the faults that no pod is bound to two nodes finds one that is."""

import json

import pytest
from support.binding_requests import check_bindings
from support.proxy import ProxiedRequest


def binding(when: float, node: str, status: int) -> ProxiedRequest:
    body = json.dumps({"metadata": {"uid": "u"}, "target": {"name": node}}).encode()
    return ProxiedRequest(when, "POST", "/api/v1/namespaces/ns/pods/p/binding", status, body)


@pytest.mark.parametrize("status", [201, 0, 504])
def test_another_node_after_a_binding_that_may_stand(status: int) -> None:
    """Carried out, or not answered, or answered with an error of the server."""
    with pytest.raises(AssertionError, match="bound to a, and then to be bound to b"):
        check_bindings([binding(1, "a", status), binding(2, "b", 409)], since=0)


@pytest.mark.parametrize(("status", "since"), [(404, 0), (429, 0), (0, 1.5)])
def test_another_node_after_a_binding_that_does_not(status: int, since: float) -> None:
    """Refused for certain, or sent by an operator that was killed."""
    requests = [binding(1, "a", status), binding(2, "b", 201), binding(3, "b", 409)]
    assert check_bindings(requests, since) == {("u", "a"), ("u", "b")}
