"""``thalweg scheduler-config``: the configuration with which kube-scheduler asks Thalweg, as commented YAML.

Source: kube-scheduler ``config/v1/types.go`` (Extender, KubeSchedulerProfile); what the values do was read in
``pkg/scheduler/extender.go`` and ``schedule_one.go`` of 1.36.
"""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass

from flowcore.model.policies import STEERED_NAME


def holds_certificate(pem: bytes) -> bool:
    """Whether there is a certificate in a PEM file, which kube-scheduler could verify by."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError):  # UnicodeDecodeError is a ValueError
        return False
    return True


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What the configuration says.

    Attributes:
        url: of the extender, as kube-scheduler reaches it.
        kubeconfig: path of kube-scheduler's own, where it runs.
        ignorable: whether pods are scheduled without Thalweg when it does not answer.
        scheduler_name: of the profile for steered pods.
        node_sample: percentage of nodes that an attempt at a steered pod looks for.
        bind: whether kube-scheduler leaves binding to Thalweg.
        authority: certificates (PEM) that the extender's must be signed by, where the URL is https.
        client_certificate, client_key: paths of what kube-scheduler shows the extender, where it runs; "" is nothing.
        qps: requests a second that kube-scheduler may make.
        leader_elect: whether several replicas choose one.
        beside: whether the cluster's own kube-scheduler goes on serving all other pods, without Thalweg.
    """

    url: str
    kubeconfig: str
    ignorable: bool = False
    scheduler_name: str = STEERED_NAME
    node_sample: int = 1
    bind: bool = False
    authority: bytes = b""
    client_certificate: str = ""
    client_key: str = ""
    qps: int = 500
    leader_elect: bool = True
    beside: bool = False

    def __str__(self) -> str:
        parts = (
            _HEAD,
            _BESIDE if self.beside else _DEFAULT_PROFILE,
            _STEERED_PROFILE,
            _EXTENDER,
            _BIND if self.bind else "",
            _TLS if self.url.startswith("https:") else "",
            _CLIENT if self.client_certificate else "",
        )
        words = {
            "URL": json.dumps(self.url.rstrip("/")),
            "KUBECONFIG": json.dumps(self.kubeconfig),
            "IGNORABLE": "true" if self.ignorable else "false",
            "WHEN_AWAY": _IGNORABLE if self.ignorable else _STRICT,
            "NAME": json.dumps(self.scheduler_name),
            "SAMPLE": str(self.node_sample),
            "QPS": str(self.qps),
            "BURST": str(2 * self.qps),
            "ELECT": "true" if self.leader_elect and not self.beside else "false",
            "AUTHORITY": base64.b64encode(self.authority).decode(),
            "CERTIFICATE": json.dumps(self.client_certificate),
            "KEY": json.dumps(self.client_key),
        }
        text = "".join(parts)
        for word, value in words.items():
            text = text.replace(f"<{word}>", value)
        return text


_HEAD = """\
# kube-scheduler with Thalweg as its extender: kube-scheduler --config THIS_FILE
# With --config its other flags are ignored, but for those of leader election, serving and authentication.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: <ELECT>
clientConnection:
  # Needed here: the flag --kubeconfig does not count beside --config.
  kubeconfig: <KUBECONFIG>
  # kube-scheduler's own default of 50 requests a second holds it to less than 50 pods a second.
  qps: <QPS>
  burst: <BURST>
"""

_BESIDE = """\
# This one runs beside the cluster's own kube-scheduler, in one replica: it has no lease of its own to choose by. All
# other pods are the other one's, which does not ask Thalweg: give each a set of nodes of its own, or both may fill a
# node at once.
profiles:
"""

_DEFAULT_PROFILE = """\
profiles:
  # Pods that name no scheduler: as before.
  - schedulerName: default-scheduler
"""

_STEERED_PROFILE = """\
  # Pods with `schedulerName: <NAME>`, which a FlowSchedulingPolicy with `delivery: Extender` selects.
  - schedulerName: <NAME>
    # How many percent of the nodes an attempt looks for before it asks Thalweg; at least 100 nodes, whatever it says. A
    # pod with a plan is tried on its planned node alone, so all that this bounds is what an attempt before the plan
    # costs: 1 is the cheapest. `steering: Prefer` wants 100: where the planned node does not hold, all are compared.
    percentageOfNodesToScore: <SAMPLE>
"""

_EXTENDER = """\
extenders:
  # Shared by all profiles: every pod comes along, those that no policy governs too. They are answered at once, without
  # the nodes that are full of planned pods.
  - urlPrefix: <URL>
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    # Thalweg scores nodes 0 to 10; times this and times 10 they stand beside kube-scheduler's own scores of several
    # hundred.
    weight: 20
    # Thalweg knows the nodes: send their names only. It refuses requests with whole nodes.
    nodeCacheCapable: true
    # kube-scheduler takes one pod at a time and waits this long for an answer; a few milliseconds are usual.
    httpTimeout: 5s
<WHEN_AWAY>    ignorable: <IGNORABLE>
"""

_STRICT = """\
    # Strict: while Thalweg does not answer NO pod is scheduled, of any profile, Thalweg's own among them; each is tried
    # again after 1 to 10 seconds. Nothing is ever placed against a plan. See to it that Thalweg's own pod starts
    # without this kube-scheduler, or use --ignorable.
"""

_IGNORABLE = """\
    # Ignorable: while Thalweg does not answer kube-scheduler schedules all pods by itself, governed ones too, as if
    # there were no plan: nothing stands still, and what the plan promises (gangs, limits between pods, who goes first)
    # does not hold. Pods behind Thalweg's scheduling gate (`waiting: Gate`) wait all the same.
"""

_BIND = """\
    # kube-scheduler leaves the binding of ALL pods to Thalweg: while it is away nothing is bound. Only one extender
    # may have this. `thalweg run --extender-bind` must serve it.
    bindVerb: bind
"""

_TLS = """\
    enableHTTPS: true
    tlsConfig:
      # Without it kube-scheduler would not verify whom it talks to, and not say so.
      caData: <AUTHORITY>
"""

_CLIENT = """\
      # What kube-scheduler shows Thalweg, signed by the CA of `thalweg run --extender-client-ca`. kube-scheduler reads
      # both files where it runs, and again when they change.
      certFile: <CERTIFICATE>
      keyFile: <KEY>
"""
