"""Commands that dump what a scenario needs, for messages."""

from __future__ import annotations

#: Command that dumps all that a plan reads.
DUMP_COMMAND = "thalweg dump > now.json"
#: Command that dumps what metrics-server measured.
METRICS_COMMAND = "kubectl get nodes.metrics.k8s.io,pods.metrics.k8s.io -A -o json"
#: Command that adds the PriorityClasses to a dump.
ADD_PRIORITIES = "kubectl get priorityclasses -o json"
