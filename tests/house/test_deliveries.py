"""Which delivery a policy has is asked where it is parsed and where its delivery is made, nowhere else."""

import re
from pathlib import Path

from support.repository import ROOT

#: Where the members of the enum are named.
ALLOWED = {
    "flowcore/model/policies.py",
    "flowcore/api/policies.py",
    "operator/thalweg_operator/reservations/deliveries.py",
}


def test_nobody_else_asks_which_delivery_it_is() -> None:
    """Everybody else asks the delivery what it does."""
    named = {
        str(path.relative_to(ROOT))
        for folder in ("flowcore", "operator", "extender", "cli")
        for path in Path(ROOT / folder).rglob("*.py")
        if re.search(r"\bDelivery(?:Name)?\.(?:OBSERVE|BINDER|EXTENDER)\b", path.read_text())
    }
    assert named == ALLOWED
