"""Commands that dump what a scenario needs, for messages."""

from __future__ import annotations

#: Command that dumps the kinds that a plan reads and every cluster serves.
DUMP_COMMAND = (
    "kubectl get nodes,pods,namespaces,pdb,pc,pvc,pv,sc,csinodes,csidrivers,csistoragecapacities,volumeattachments "
    "-A -o json"
)
#: Command that dumps what metrics-server measured.
METRICS_COMMAND = "kubectl get nodes.metrics.k8s.io,pods.metrics.k8s.io -A -o json"
#: Command that adds the PriorityClasses to a dump.
ADD_PRIORITIES = "kubectl get priorityclasses -o json"
