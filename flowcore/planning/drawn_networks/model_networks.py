"""Networks that cost models draw, as if the policies had drawn them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import CostModel
from flowcore.costs.network_model import NetworkModel, NetworkView
from flowcore.model.errors import PolicyError
from flowcore.model.network_checks import checked_network
from flowcore.model.networks import NetworkSpec
from flowcore.model.policies import Policy


def with_networks_of_models(
    policies: Mapping[str, Policy], models: Mapping[str, CostModel], snapshot: Snapshot
) -> dict[str, Policy]:
    """The policies by name, with networks for those whose cost model draws one and that draw none themselves."""
    drawn = dict(policies)
    for name, policy in policies.items():
        model = models.get(policy.cost.model)
        if policy.network is None and isinstance(model, NetworkModel):
            drawn[name] = msgspec.structs.replace(policy, network=_drawn(model, NetworkView(policy, snapshot)))
    return drawn


def _drawn(model: NetworkModel, view: NetworkView) -> NetworkSpec:
    method = f"method network of cost model {model.name}"
    try:
        return checked_network(model.network(view), "network")
    except PolicyError as error:
        return NetworkSpec(refused=f"{method} returned what is none: {error}")
    except Exception as error:  # noqa: BLE001 - whatever a stranger's code does, other policies are served
        return NetworkSpec(refused=f"{method} raised {error!r}")
