"""Label selectors in policies: what Kubernetes would refuse is refused here, with the field."""

from __future__ import annotations

from flowcore.model.selectors import LabelSelector, is_label_key, is_label_value
from flowcore.model.wire import WireLabelSelector, to_label_selector
from thalweg_operator.errors import PolicyError


def selector(wire: WireLabelSelector, field: str) -> LabelSelector:
    """The selector.

    Args:
        field: where it is, as ``kubectl explain`` would write it.

    Raises:
        PolicyError: it cannot be parsed.
    """
    for key, value in (wire.match_labels or {}).items():
        if not is_label_key(key):
            raise PolicyError(f'{field}.matchLabels: "{key}" is not a label key')
        if not is_label_value(value):
            raise PolicyError(f'{field}.matchLabels.{key}: "{value}" is not a label value')
    for index, requirement in enumerate(wire.match_expressions or ()):
        where = f"{field}.matchExpressions[{index}]"
        if requirement.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise PolicyError(
                f'{where}.operator: "{requirement.operator}" is not one of In, NotIn, Exists, DoesNotExist'
            )
        if not is_label_key(requirement.key):
            raise PolicyError(f'{where}.key: "{requirement.key}" is not a label key')
        if (requirement.operator in ("In", "NotIn")) != bool(requirement.values):
            raise PolicyError(
                f"{where}.values: In and NotIn need at least one value; Exists and DoesNotExist take none"
            )
    return to_label_selector(wire)
