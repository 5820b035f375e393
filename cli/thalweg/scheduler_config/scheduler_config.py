"""``thalweg scheduler-config``: prints kube-scheduler's configuration for the extender, as commented YAML.

Source: kube-scheduler 1.36 ``config/v1/types.go`` (Extender, KubeSchedulerProfile), ``pkg/scheduler/extender.go`` and
``schedule_one.go``.
"""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from io import StringIO
from typing import TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from flowcore.model.policies import MARK, STEERED_NAME


def holds_certificate(pem: bytes) -> bool:
    """Whether a PEM file has a certificate that kube-scheduler can verify with."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError):  # UnicodeDecodeError is a ValueError
        return False
    return True


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Values of the configuration. Paths are paths on kube-scheduler's machine.

    Attributes:
        url: URL of the extender.
        kubeconfig: path of kube-scheduler's kubeconfig; "": the account of its pod.
        ignorable: whether pods are scheduled without Thalweg when it does not answer.
        scheduler_name: name of the profile for steered pods.
        node_sample: percentageOfNodesToScore of that profile; 1: kube-scheduler asks for no scores, about any pod.
        authority: CA of the extender's certificate, as contents (PEM) or as a path; b"" for http.
        client_certificate, client_key: kube-scheduler's certificate and key, as contents or as paths; "": none.
        server_name: name in the extender's certificate; "": the host of the URL.
        qps: requests per second that kube-scheduler may send to the API server.
        leader_elect: whether replicas elect a leader.
        lease: NAMESPACE/NAME of the lease of the election; "": its own, or none for a second kube-scheduler.
        second_scheduler: whether this is a second kube-scheduler, for steered pods alone.
        governed_only: whether kube-scheduler asks about pods with our mark only (``thalweg run --ask-for Governed``).
    """

    url: str
    kubeconfig: str
    ignorable: bool = False
    scheduler_name: str = STEERED_NAME
    node_sample: int = 1
    authority: bytes | str = b""
    client_certificate: bytes | str = ""
    client_key: bytes | str = ""
    server_name: str = ""
    qps: int = 500
    leader_elect: bool = True
    lease: str = ""
    second_scheduler: bool = False
    governed_only: bool = False

    def __str__(self) -> str:
        """Commented YAML."""
        config = _mapping(
            0,
            ("apiVersion", "kubescheduler.config.k8s.io/v1", _HEAD),
            ("kind", "KubeSchedulerConfiguration", ""),
            ("leaderElection", self._election(), ""),
            ("clientConnection", self._connection(), ""),
            ("profiles", self._profiles(), self._second_scheduler_comment() if self.second_scheduler else ""),
            ("extenders", CommentedSeq([self._extender()]), ""),
        )
        comment = _EXTENDER_GOVERNED if self.governed_only else _EXTENDER
        if not self.second_scheduler:
            comment = f"{comment}\n{_BATCHING}"
        config["extenders"].yaml_set_comment_before_after_key(0, before=comment, indent=2)
        text = StringIO()
        _yaml().dump(config, text)
        return text.getvalue()

    def _election(self) -> CommentedMap:
        elects = self.leader_elect and (bool(self.lease) or not self.second_scheduler)
        entries: list[_Entry] = [("leaderElect", elects, "")]
        if self.lease:
            namespace, _, name = self.lease.partition("/")
            entries += [("resourceNamespace", namespace, ""), ("resourceName", name, "")]
        return _mapping(2, *entries)

    def _connection(self) -> CommentedMap:
        kubeconfig: list[_Entry] = [("kubeconfig", DoubleQuotedScalarString(self.kubeconfig), _KUBECONFIG)]
        return _mapping(
            2, *(kubeconfig if self.kubeconfig else []), ("qps", self.qps, _QPS), ("burst", 2 * self.qps, "")
        )

    def _second_scheduler_comment(self) -> str:
        return _SECOND_SCHEDULER.format(
            election="with a lease of its own" if self.lease else "in one replica, without leader election"
        )

    def _profiles(self) -> CommentedSeq:
        name = DoubleQuotedScalarString(self.scheduler_name)
        steered = _mapping(4, ("schedulerName", name, ""), ("percentageOfNodesToScore", self.node_sample, _NODE_SAMPLE))
        profiles = (
            [] if self.second_scheduler else [(_mapping(4, ("schedulerName", "default-scheduler", "")), _DEFAULT)]
        )
        profiles.append((steered, _STEERED.format(name=self.scheduler_name)))
        sequence = CommentedSeq([profile for profile, _ in profiles])
        for position, (_, comment) in enumerate(profiles):
            sequence.yaml_set_comment_before_after_key(position, before=comment, indent=2)
        return sequence

    def _extender(self) -> CommentedMap:
        entries: list[_Entry] = [
            ("urlPrefix", DoubleQuotedScalarString(self.url.rstrip("/")), ""),
            ("filterVerb", "filter", ""),
            # Only pods of `steering: Prefer` are scored, and those need more nodes than the smallest sample.
            *([("prioritizeVerb", "prioritize", ""), ("weight", 20, _WEIGHT)] if self.node_sample > 1 else []),
            ("preemptVerb", "preempt", ""),
            *([("managedResources", self._mark(), _MARK)] if self.governed_only else []),
            ("nodeCacheCapable", True, _NODE_CACHE),
            ("httpTimeout", "5s", _TIMEOUT),
            ("ignorable", self.ignorable, self._while_away()),
        ]
        if self.url.startswith("https:"):
            entries += [("enableHTTPS", True, ""), ("tlsConfig", self._tls(), "")]
        return _mapping(4, *entries)

    def _while_away(self) -> str:
        if self.ignorable:
            return _IGNORABLE
        return _STRICT_GOVERNED if self.governed_only else _STRICT

    def _mark(self) -> CommentedSeq:
        return CommentedSeq([_mapping(8, ("name", MARK, ""), ("ignoredByScheduler", True, ""))])

    def _tls(self) -> CommentedMap:
        entries = [_file_or_data("ca", self.authority, _AUTHORITY)]
        if self.client_certificate:
            inside = isinstance(self.client_certificate, bytes)
            entries.append(_file_or_data("cert", self.client_certificate, _CLIENT_INSIDE if inside else _CLIENT_FILES))
            entries.append(_file_or_data("key", self.client_key, ""))
        if self.server_name:
            entries.append(("serverName", self.server_name, _SERVER_NAME))
        return _mapping(6, *entries)


def _file_or_data(name: str, value: bytes | str, comment: str) -> _Entry:
    """The entry of a path, such as ``caFile``, or of contents, such as ``caData``."""
    if isinstance(value, bytes):
        return f"{name}Data", base64.b64encode(value).decode(), comment
    return f"{name}File", DoubleQuotedScalarString(value), comment


def _mapping(indent: int, *entries: _Entry) -> CommentedMap:
    """A mapping with these keys, each after its comment; ``indent``: columns before the comments."""
    mapping = CommentedMap()
    for key, value, comment in entries:
        mapping[key] = value
        if comment:
            mapping.yaml_set_comment_before_after_key(key, before=comment, indent=indent)
    return mapping


def _yaml() -> YAML:
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 2**20  # certificates stay on one line
    return yaml


#: Key, value and comment, "" for none.
_Entry: TypeAlias = tuple[str, object, str]

_HEAD = """\
kube-scheduler with Thalweg as its extender: kube-scheduler --config THIS_FILE
With --config, kube-scheduler ignores its other flags, except those of leader election, serving and authentication."""

_KUBECONFIG = "Required here: with --config, kube-scheduler ignores its flag --kubeconfig."

_QPS = "kube-scheduler's default, 50 requests a second, limits it to less than 50 pods a second."

_SECOND_SCHEDULER = """\
This kube-scheduler runs beside the cluster's kube-scheduler, {election}.
The cluster's kube-scheduler serves all other pods and does not ask Thalweg. Give each of the two its own nodes:
otherwise both may fill one node at the same time."""

_DEFAULT = "Pods that name no scheduler are scheduled as before."

_STEERED = "Pods with `schedulerName: {name}`. A FlowSchedulingPolicy with `delivery: Extender` selects them."

_NODE_SAMPLE = """\
Percentage of the nodes that an attempt looks for before it asks Thalweg. kube-scheduler looks for at least 100 nodes.
A pod with a plan is tried on its planned node only, so this limits the cost of attempts before the plan: 1 is the
cheapest, and kube-scheduler asks for no scores. Use 100 for `steering: Prefer`: if the planned node fails,
kube-scheduler compares all nodes."""

_EXTENDER = """\
All profiles share the extender: kube-scheduler asks about every pod, also about pods that no policy governs. Thalweg
answers these at once, without the nodes that planned pods fill."""

_EXTENDER_GOVERNED = """\
All profiles share the extender: kube-scheduler asks about each pod that has Thalweg's mark, whatever its profile. It
does not ask about others, so they may take room that a plan promised. Of planned pods only those with a nomination keep
theirs, from pods of lower or equal priority: pods of gangs, and pods that were tried in vain. The others are planned
again if that happens."""

_BATCHING = """\
kube-scheduler from 1.35 on batches equal pods in no profile of a configuration with an extender, whoever it is asked
about. Where that matters, give Thalweg a kube-scheduler of its own: thalweg scheduler-config --beside."""

_MARK = f"""\
The API server puts the mark on new governed pods where `thalweg run --ask-for Governed` runs and rights/gates.yaml is
installed (Kubernetes 1.36). A pod without it is placed without a plan. It asks for 0 of {MARK}: each node
has enough."""

_WEIGHT = """\
Thalweg scores nodes from 0 to 10. kube-scheduler multiplies the score by 10 and by this weight; its own scores add up
to some hundreds."""

_NODE_CACHE = "Send names of nodes only: Thalweg knows the nodes and refuses requests with whole nodes."

_TIMEOUT = "Longest wait for an answer, one pod at a time. Answers usually take a few milliseconds."

_STRICT = """\
Strict: while Thalweg does not answer, NO pod of any profile is scheduled, Thalweg's own pod included. kube-scheduler
tries each again after 1 to 10 seconds. No pod is ever placed against a plan. Make sure that Thalweg's own pod starts
without this kube-scheduler, or use --ignorable."""

_STRICT_GOVERNED = """\
Strict: while Thalweg does not answer, no pod with the mark is scheduled. kube-scheduler tries each again after 1 to 10
seconds. No such pod is ever placed against a plan. Pods without the mark are scheduled as before."""

_IGNORABLE = """\
Ignorable: while Thalweg does not answer, kube-scheduler schedules all pods without a plan, governed pods too. No pod
stops, but the promises of the plan (gangs, limits between pods, order) do not hold. Pods behind Thalweg's scheduling
gate (`waiting: Gate` or `Auto`) still wait."""

_AUTHORITY = "Without this CA, kube-scheduler does not verify the extender's certificate, and does not log that."

_CLIENT_FILES = """\
kube-scheduler's certificate, signed by the CA of `thalweg run --extender-client-ca`. kube-scheduler reads both files on
its own machine, and reads them again when they change."""

_CLIENT_INSIDE = """\
kube-scheduler's certificate, signed by the CA of `thalweg run --extender-client-ca`. Replace this file before the
certificate ends, and restart kube-scheduler."""

_SERVER_NAME = "The name in the extender's certificate, which does not contain the address of the URL."
