"""The command ``thalweg headroom``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from thalweg import options
from thalweg.sources import completion

if TYPE_CHECKING:
    from thalweg.sources.source import SourceOptions


#: Kinds of new nodes, and nodes that are worth nothing, where no pods are to be counted.
_SCALE_UPS, _UNNEEDED = 3, 10


@click.command()
@options.source()
@click.option("--like", metavar="[NAMESPACE/]POD", default="", shell_complete=completion.pods,
              help="Count pods like this one, waiting or running.")  # fmt: skip
@click.option("--cpu", metavar="AMOUNT", help="Count pods that request so much cpu, such as 500m.")
@click.option("--memory", metavar="AMOUNT", help="... and so much memory, such as 4Gi.")
@click.option("--gpu", metavar="COUNT", help="... and so many nvidia.com/gpu.")
@click.option("--request", "requests", multiple=True, metavar="RESOURCE=AMOUNT",
              help="... and so much of another resource. May be given several times.")  # fmt: skip
@click.option("--tolerate", multiple=True, metavar="KEY",
              help="... and that tolerate taints with this key. May be given several times.")  # fmt: skip
@click.option("--limit", type=int, default=10_000, show_default=True, help="Stop counting at so many pods.")
@click.option("--scale-ups", type=click.IntRange(min=0),
              help="Plan at most so many kinds of new nodes for the pods that wait. "
                   "Default: 3; with pods to count: 0.")  # fmt: skip
@click.option("--unneeded", type=click.IntRange(0, 1000),
              help="Name at most so many nodes without which everything still fits. "
                   "Default: 10; with pods to count: 0.")  # fmt: skip
@click.option("--gang", metavar="[NAMESPACE/]NAME", default="", help="The gang that --write is for.")
@click.option("--write", type=click.Choice(["ProvisioningRequest"]),
              help="Print the object that asks cluster-autoscaler for nodes for a gang, all or none, with its "
                   "PodTemplates. Nothing is created.")  # fmt: skip
@options.nodes_listed
@options.watch
def headroom(
    source: SourceOptions,
    like: str,
    cpu: str | None,
    memory: str | None,
    gpu: str | None,
    requests: tuple[str, ...],
    tolerate: tuple[str, ...],
    limit: int,
    scale_ups: int | None,
    unneeded: int | None,
    gang: str,
    write: str | None,
    output: str,
    *,
    watch: bool,
) -> None:
    """Show how many more pods fit, and what nodes would help.

    The waiting pods are planned first. What is counted fits beside that plan, and no running pod leaves for it. The
    pods to count are like an existing pod, with all its rules, or pods without rules that request the given amounts.
    These tolerate taints that are named as an extended resource that they request, such as nvidia.com/gpu: the
    admission plug-in ExtendedResourceToleration of the API server lets real ones. The number is exact: so many are
    placed, and of one more not all. This is the whole answer, unless --scale-ups or --unneeded ask for more.

    Without --like and without requests nothing is counted, and the answer is about nodes.

    New nodes are like existing ones, with the pods that each such node has. Each line is a plan, the same as that of
    what-if --add-nodes: so many nodes place so many of the pods that wait now, and one node less places fewer.

    Nodes that are worth nothing now can be drained. They are named together, with a plan of the cluster without all of
    them: each pod that has a node has one there. Others may be worth nothing, too.

    --write ProvisioningRequest prints objects that `kubectl apply -f -` takes. A plan with new nodes was made first: it
    places all pods of the gang. Where none does, the line of error says why.

    Exit code 2: the files, the API server or the operator cannot be read, or there is no answer, for example because a
    pod is not there.

    \b
    Examples:
      thalweg headroom -f now.json --like shop/cart-0
      thalweg headroom -f now.json --cpu 2 --memory 4Gi
      thalweg headroom -f now.json --gpu 1 --tolerate dedicated
      thalweg headroom -f now.json --gpu 8 --request networking.thalweg/bandwidth=10G -o json
      thalweg headroom -f now.json --gang ml/train --write ProvisioningRequest
      thalweg headroom
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from flowcore.questions.scenario.alternatives.headroom import HeadroomQuery
    from thalweg.questions.headroom import run_headroom
    from thalweg.questions.provisioning_request import run_provisioning_request

    amounts = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpu}
    given = {name: amount for name, amount in amounts.items() if amount is not None}
    for request in requests:
        name, equals, amount = request.partition("=")
        if not name or not equals:
            raise click.UsageError(f'--request "{request}": expected RESOURCE=AMOUNT, such as example.com/license=1')
        given[name] = amount
    if like and given:
        raise click.UsageError("give either --like or amounts: a pod that is like another requests what that requests")
    if tolerate and not given:
        raise click.UsageError("--tolerate describes pods together with amounts, such as --gpu 1")
    if (write is None) != (not gang):
        raise click.UsageError("--gang and --write need each other: a request is for one gang")
    if gang:
        if like or given or watch:
            raise click.UsageError("--write prints one request: leave out --like, amounts and --watch")
        run_provisioning_request(source, gang, output)
        return
    counts = bool(like or given)
    asked = HeadroomQuery(
        like,
        given,
        limit=limit,
        scale_ups=(0 if counts else _SCALE_UPS) if scale_ups is None else scale_ups,
        tolerate=[*tolerate],
        unneeded=(0 if counts else _UNNEEDED) if unneeded is None else unneeded,
    )
    run_headroom(source, asked, output, watch=watch)
