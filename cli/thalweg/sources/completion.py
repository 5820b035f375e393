"""What the shell proposes at Tab: names of the dump that -f gives, or of the cluster; nothing where that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

#: Seconds that an API server has to answer. Nobody waits longer for a proposal.
_PATIENCE: Final = 0.7
_MOST: Final = "500"

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _quietly(names: Callable[[click.Context], Iterator[str]]) -> Completer:
    """A completer that proposes nothing where its names cannot be had, whatever the reason."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            return sorted({name for name in names(context) if name.startswith(incomplete)})
        except Exception:  # noqa: BLE001 - a shell that completes shows no errors
            return []

    return complete


def _objects(context: click.Context, kind: str) -> list[dict[str, Any]]:
    """The objects of a kind, "Node", "Pod" or "Namespace", of the files or of the cluster."""
    files = context.params.get("files") or ()
    if not files:
        return asyncio.run(_listed(context, kind))
    from thalweg.dumps.files import parse_objects, read_text  # noqa: PLC0415 - help must be instant

    named = [name for name in files if name != "-"]
    return [item for name in named for item in parse_objects(read_text(name), name) if item["kind"] == kind]


async def _listed(context: click.Context, kind: str) -> list[dict[str, Any]]:
    from thalweg_operator.api.client import connect  # noqa: PLC0415 - help must be instant

    from thalweg.kubeconfig import users_kubeconfig  # noqa: PLC0415

    given = context.params.get("kubeconfig")
    kubeconfig, _ = users_kubeconfig(Path(given) if given else None)
    async with asyncio.timeout(_PATIENCE), connect(kubeconfig, 1, context=context.params.get("context")) as client:
        plural = f"{kind.lower()}s"
        answer = await client.request("GET", f"/api/v1/{plural}", params={"limit": _MOST})
        return list(msgspec.json.decode(answer)["items"])


def _names(context: click.Context, kind: str) -> Iterator[str]:
    for item in _objects(context, kind):
        yield str(item["metadata"]["name"])


def _namespaces(context: click.Context) -> Iterator[str]:
    """Of a dump those of its pods too: it need not have namespaces."""
    yield from _names(context, "Namespace")
    if context.params.get("files"):
        yield from (pod["metadata"].get("namespace") or "default" for pod in _objects(context, "Pod"))


def _pods(context: click.Context) -> Iterator[str]:
    """All pods, as ``--like`` takes them."""
    namespace = context.params.get("namespace") or ""
    for item in _objects(context, "Pod"):
        name, of_pod = item["metadata"]["name"], item["metadata"].get("namespace") or "default"
        if not namespace:
            yield f"{of_pod}/{name}"
        elif of_pod == namespace:
            yield str(name)


def _targets(context: click.Context) -> Iterator[str]:
    """Waiting pods, and the workloads of waiting pods, as ``why`` takes them."""
    from flowcore.api import Interner, WirePod, to_pod  # noqa: PLC0415 - help must be instant
    from flowcore.model.workloads import controller_of, workload_of  # noqa: PLC0415

    namespace, interner = context.params.get("namespace") or "", Interner()
    for item in _objects(context, "Pod"):
        if item.get("spec", {}).get("nodeName"):
            continue
        pod = to_pod(msgspec.convert(item, WirePod), interner)
        if pod.terminal or (namespace and pod.namespace != namespace):
            continue
        yield pod.name if namespace else pod.key
        for owner in (controller_of(pod), workload_of(pod)):
            kind, _, rest = owner.partition("/")
            if owner and kind != "pod":
                yield f"{kind}/{rest.partition('/')[2]}" if namespace else owner


def _contexts(context: click.Context) -> Iterator[str]:
    import yaml  # noqa: PLC0415 - help must be instant

    from thalweg.kubeconfig import users_kubeconfig  # noqa: PLC0415

    given = context.params.get("kubeconfig")
    kubeconfig, _ = users_kubeconfig(Path(given) if given else None)
    if kubeconfig is not None:
        document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        yield from (str(each["name"]) for each in document["contexts"])


nodes = _quietly(lambda context: _names(context, "Node"))
namespaces = _quietly(_namespaces)
pods = _quietly(_pods)
targets = _quietly(_targets)
contexts = _quietly(_contexts)
