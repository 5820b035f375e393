"""The command ``thalweg dump``."""

from __future__ import annotations

import click

from thalweg import options
from thalweg.sources.source import SourceOptions


@click.command(short_help="Write the objects of a cluster, for -f of the others.")
@options.cluster
@click.option("--redact", is_flag=True,
              help="Write only the fields that plans read: no environment variables, commands, other annotations or "
                   "addresses. Names, namespaces, labels and images stay.")  # fmt: skip
def dump(source: SourceOptions, *, redact: bool) -> None:
    """Write all objects of a cluster that plans depend on, as one JSON list.

    The file is what plan, why, what-if, headroom, network, audit, status and view read with -f. It has objects of these
    kinds: Node, Pod, Namespace, Service, PriorityClass, PodDisruptionBudget; for volumes PersistentVolume,
    PersistentVolumeClaim, StorageClass, CSINode, CSIDriver, CSIStorageCapacity, VolumeAttachment; for devices
    DeviceClass, ResourceSlice, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate; for NUMA zones
    NodeResourceTopology; for gangs PodGroup, HyperNode, Job, JobSet, LeaderWorkerSet, PyTorchJob,
    TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob, RayCluster, PodGang, and those that policies name in gangs.parents;
    FlowSchedulingPolicy, FlowQueue; and what metrics-server measured, NodeMetrics and PodMetrics.

    Kinds that the API server does not serve have no objects. Kinds that you may not list are named in warnings on
    standard error. Nodes and pods are needed.

    Secrets and ConfigMaps are not read. A pod's spec is written whole, with its environment variables: give --redact
    before you send a dump to others. Plans of a redacted dump are the same.

    Exit code 2: the API server cannot be read.

    \b
    Examples:
      thalweg dump > now.json
      thalweg dump --context staging --redact > now.json
      thalweg dump | thalweg plan -f -
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.questions.dump import run_dump

    run_dump(source, redact=redact)
