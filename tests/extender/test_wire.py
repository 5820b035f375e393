"""Requests as Go marshals them, and answers to the byte as Go's types read them."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.extender import filter_request, pod, preempt_request
from thalweg_extender import wire
from thalweg_extender.errors import BadRequest

from flowcore.model.advice import ExtenderPod


def test_a_filter_request_is_read() -> None:
    """As kube-scheduler sends it with nodeCacheCapable, escapes and fields that nobody reads included."""
    of = pod(nominatedNodeName="n2")
    args = wire.decode(wire.extender_args, filter_request(["n1", "n2"], of))
    assert args.node_names == ["n1", "n2"]
    assert wire.to_extender_pod(args.pod) == ExtenderPod(
        namespace="shop",
        name="web-0",
        uid="uid-of-web-0",
        labels={"app": "web", "tier": "front"},
        scheduler_name="steered",
        nominated="n2",
    )


@pytest.mark.parametrize(
    "text",
    [
        b'{"Pod":{"metadata":{"name":"p"}},"NodeNames":[]}',
        (
            b'{"Pod":{"metadata":{"name":"p","namespace":null,"uid":null,"labels":null},"spec":null,"status":null},'
            b'"Nodes":null,"NodeNames":[]}'
        ),
        (
            b'{"Pod":{"metadata":{"name":"p"},"spec":{"schedulerName":null},"status":{"nominatedNodeName":null}},'
            b'"NodeNames":[],"ANewField":{"of":["a newer","version"]}}'
        ),
    ],
)
def test_what_is_missing_or_null_is_empty(text: bytes) -> None:
    """Go leaves out empty fields with omitempty, and writes nil as null without."""
    asked = wire.to_extender_pod(wire.decode(wire.extender_args, text).pod)
    assert (asked.key, asked.uid, asked.labels, asked.scheduler_name, asked.nominated) == ("/p", "", {}, "", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"NodeNames":["\xff"]}', "not JSON"),
        (b'{"NodeNames":["\\udc00"]}', "not JSON"),
        (b'{"Pod":' + b'{"a":' * 100_000, "not JSON"),
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b'{"NodeNames":[null]}', "$.NodeNames[0]"),
        (b'{"NodeNames":"n1"}', "$.NodeNames"),
        (b'{"Pod":null,"NodeNames":[]}', "has no pod with a name"),
        (b'{"NodeNames":[]}', "has no pod with a name"),
        (b'{"Pod":{},"NodeNames":[]}', "has no pod with a name"),
        (b'{"Pod":{"metadata":{}},"NodeNames":[]}', "has no pod with a name"),
        (b'{"Pod":{"metadata":{"name":"p","labels":{"a":1}}},"NodeNames":[]}', "$.Pod.metadata.labels[...]"),
    ],
)
def test_what_cannot_be_read_is_told(text: bytes, says: str) -> None:
    """With the place, where there is one."""
    with pytest.raises(BadRequest) as problem:
        wire.to_extender_pod(wire.decode(wire.extender_args, text).pod)
    assert says in str(problem.value)
    assert problem.value.status == 400


def test_a_preemption_request_is_read() -> None:
    """Victims by their UIDs."""
    text = preempt_request({"n1": {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 1}, "n2": None})
    assert wire.decode(wire.preemption_args, text).node_name_to_meta_victims == {
        "n1": wire.MetaVictims([wire.MetaPod("u1"), wire.MetaPod("u2")], 1),
        "n2": None,
    }


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            wire.ExtenderFilterResult(node_names=[], failed_and_unresolvable_nodes={"n1": "why"}),
            b'{"Nodes":null,"NodeNames":[],"FailedNodes":null,"FailedAndUnresolvableNodes":{"n1":"why"},"Error":""}',
        ),
        (
            wire.ExtenderFilterResult(error="what"),
            b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":"what"}',
        ),
        ([], b"[]"),
        ([wire.HostPriority("n1", 10), wire.HostPriority("n2", 0)],
         b'[{"Host":"n1","Score":10},{"Host":"n2","Score":0}]'),
        (wire.ExtenderPreemptionResult({}), b'{"NodeNameToMetaVictims":{}}'),
        (
            wire.ExtenderPreemptionResult({"n1": wire.MetaVictims([wire.MetaPod("u1")], 2)}),
            b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"u1"}],"NumPDBViolations":2}}}',
        ),
    ],
)  # fmt: skip
def test_answers_are_written_as_go_reads_them(answer: object, text: bytes) -> None:
    """Field names of extender/v1, a real empty list where null would mean something else."""
    assert wire.encode(answer) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(
            st.sampled_from(["Pod", "NodeNames", "metadata", "name", "labels", "spec", "status", "x"]), each
        ),
    )
)  # fmt: skip
def test_any_json_is_read_or_refused(value: object) -> None:
    """Nothing else is raised, whatever its shape."""
    text = json.dumps(value).encode()
    for decoder in (wire.extender_args, wire.preemption_args):
        with suppress(BadRequest):
            found = wire.decode(decoder, text)
            if isinstance(found, wire.ExtenderArgs):
                wire.to_extender_pod(found.pod)
