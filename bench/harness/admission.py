"""Our admission policies on a control plane: which of them are there, what they decide by, and when they are asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any, Final

from thalweg.crds import rights_by_file
from thalweg_controlplane import Api, ApiError
from thalweg_controlplane.client.api import APPLY_PATCH
from thalweg_controlplane.client.objects import Manifest, collection_path, object_path, pod
from thalweg_operator.api.writes.events import timestamp
from thalweg_operator.policies.gate_admission import NEW_POD_RULES_PATH
from thalweg_operator.policies.gate_manifests import NEW_POD_RULES, RULES_NAME, new_pod_rules

from flowcore.api.policies import parse_policy
from flowcore.costs import BUILT_IN_MODELS
from harness.errors import BenchError

#: Files of rights/ with admission policies, which are rows of the benchmarks too.
GATES, CONFINEMENT = "gates", "confinement"
FILES: Final = (GATES, CONFINEMENT)
#: Of new pods and writes to pods: the API server counts them for each admission policy.
_ASKED = "apiserver_admission_match_condition_evaluation_seconds_count{"
_SPEC: Final[dict[str, Any]] = {
    "selects": {"schedulerNames": ["default-scheduler"], "podSelector": {}},
    "delivery": "Extender",
}
_PATIENCE_SECONDS = 30.0


def admission_policies(stem: str) -> list[Manifest]:
    """The admission policy of a file of rights/, and its binding."""
    return [each for each in rights_by_file()[stem] if "AdmissionPolicy" in each["kind"]]


async def install(api: Api, wanted: Collection[str]) -> None:
    """Applies the admission policies of these files, and deletes the others: each costs the writes of everybody."""
    for stem in FILES:
        for each in admission_policies(stem):
            if stem in wanted:
                await api.apply(each)
            else:
                try:
                    await api.delete(object_path(each))
                except ApiError as error:
                    if error.status != 404:
                        raise


async def govern(api: Api, count: int = 1) -> None:
    """Has so many policies govern the default scheduler's pods, as the admission policy reads them.

    It says what the operator would: pods of gangs are gated, from now on for half a minute.
    """
    policies = [parse_policy(f"governing-{number}", _SPEC, BUILT_IN_MODELS) for number in range(count)]
    said = {
        "apiVersion": NEW_POD_RULES.api_version,
        "kind": NEW_POD_RULES.kind,
        "metadata": {"name": RULES_NAME},
        "heartbeat": timestamp(),
        "order": new_pod_rules(policies)[0],
    }
    params = {"fieldManager": "bench", "force": "true"}
    await api.request("PATCH", NEW_POD_RULES_PATH, said, params=params, content_type=APPLY_PATCH)


async def forget(api: Api) -> None:
    """Deletes what the admission policy reads."""
    await api.delete(NEW_POD_RULES_PATH)


async def until_asked(api: Api, wanted: Collection[str]) -> None:
    """Returns once the API server asks the admission policies of these files once about a new pod, and no others.

    It takes a moment to notice what was applied and deleted.

    Raises:
        BenchError: it does not.
    """
    probe = pod("probe", scheduler="nobody")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        before = await _asked(api)
        await api.request("POST", collection_path(probe), probe, params={"dryRun": "All"})
        asked = await _asked(api)
        found = {stem: asked[stem] - before[stem] for stem in FILES}
        if found == {stem: int(stem in wanted) for stem in FILES}:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"the API server asks {found} for a pod, not {sorted(wanted)} once")
        await asyncio.sleep(0.1)


async def _asked(api: Api) -> dict[str, int]:
    """How often the API server has asked the admission policy of each file, and the answer was no."""
    lines = [each for each in str(await api.get("/metrics")).splitlines() if each.startswith(_ASKED)]
    names = {stem: admission_policies(stem)[0]["metadata"]["name"] for stem in FILES}
    return {
        stem: sum(int(float(each.rpartition(" ")[2])) for each in lines if f'name="{name}"' in each)
        for stem, name in names.items()
    }
