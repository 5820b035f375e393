"""Request and response types of kube-scheduler's extender API.

Source: k8s.io/kube-scheduler extender/v1 types.go (1.36). These types have no JSON tags, so keys are Go's field names.
Go writes a nil slice, map or pointer as null, so these fields may be None. Only the pod fields for ``ExtenderPod`` are
decoded.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from flowcore.model.advice import ExtenderPod
from thalweg_extender.errors import BadRequest

_NULL: Final = msgspec.Raw(b"null")

_T = TypeVar("_T")


class _Wire(msgspec.Struct, rename="pascal"):
    """Base class of the request and response types."""


class PodMeta(msgspec.Struct):
    """A pod's metadata."""

    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None


class Spec(msgspec.Struct, rename="camel"):
    """A pod's spec."""

    scheduler_name: str | None = None


class PodStatus(msgspec.Struct, rename="camel"):
    """A pod's status."""

    nominated_node_name: str | None = None


class Pod(msgspec.Struct):
    """The decoded fields of a pod."""

    metadata: PodMeta | None = None
    spec: Spec | None = None
    status: PodStatus | None = None


class ExtenderArgs(_Wire):
    """Request of filter and prioritize.

    Attributes:
        nodes: whole Node objects; sent instead of names without ``nodeCacheCapable``.
    """

    pod: Pod | None = None
    nodes: msgspec.Raw = _NULL
    node_names: list[str] | None = None


class ExtenderFilterResult(_Wire):
    """Response of filter: the nodes that pass, and the reasons of rejected nodes."""

    nodes: None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class HostPriority(_Wire, gc=False):
    """Score of a node, 0..10. The response of prioritize is a list of them."""

    host: str
    score: int


class MetaPod(_Wire):
    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(_Wire):
    """Victims of a preemption on a node."""

    pods: list[MetaPod | None] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class ExtenderPreemptionArgs(_Wire):
    """Request of preempt.

    Attributes:
        node_name_to_victims: whole pods; sent instead of their UIDs without ``nodeCacheCapable``.
    """

    pod: Pod | None = None
    node_name_to_victims: msgspec.Raw = _NULL
    node_name_to_meta_victims: dict[str, MetaVictims | None] | None = None


class ExtenderPreemptionResult(_Wire):
    node_name_to_meta_victims: dict[str, MetaVictims]


extender_args: Final = msgspec.json.Decoder(ExtenderArgs)
preemption_args: Final = msgspec.json.Decoder(ExtenderPreemptionArgs)
encode: Final = msgspec.json.Encoder().encode


def decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    """Decodes the body of a request.

    Raises:
        BadRequest: the body is not JSON, or not of this type; the message says where.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the request is not one of kube-scheduler's: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request is not JSON: {error}") from error


def to_extender_pod(pod: Pod | None) -> ExtenderPod:
    """The pod of a request.

    Raises:
        BadRequest: the request has no pod, or the pod has no name.
    """
    if pod is None or pod.metadata is None or not pod.metadata.name:
        raise BadRequest("the request has no pod with a name")
    return ExtenderPod(
        namespace=pod.metadata.namespace or "",
        name=pod.metadata.name,
        uid=pod.metadata.uid or "",
        labels=pod.metadata.labels or {},
        scheduler_name=(pod.spec.scheduler_name if pod.spec is not None else None) or "",
        nominated=(pod.status.nominated_node_name if pod.status is not None else None) or "",
    )
