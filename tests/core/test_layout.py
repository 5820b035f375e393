"""What the shape of the repository promises."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
from thalweg.crds import custom_resource_definitions
from thalweg_operator.policies.gate_manifests import NEW_POD_RULES

from flowcore.api import STORAGE_KINDS
from flowcore.api.kinds import DEVICE_CLASS, KINDS, NODE, POD_GROUPS, POLICY, QUEUE, STORAGE
from flowcore.api.policies import PLURAL, parse_policy
from flowcore.api.queues import WireQueue, to_queue
from flowcore.costs import BUILT_IN_MODELS, MODELS
from flowcore.model.cost_policy import CostWeights, DataLocality, UnscheduledPrice
from flowcore.model.gang_spec import GangSource
from flowcore.model.policies import Delivery, Policy, Selects
from flowcore.model.queues import Queue
from flowcore.model.running_pods import EvictionKind

ROOT = Path(__file__).parents[2]


def _schema(plural: str = PLURAL) -> dict[str, Any]:
    (definition,) = (each for each in custom_resource_definitions() if each["spec"]["names"]["plural"] == plural)
    (version,) = definition["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


def _defaults(schema: dict[str, Any]) -> Any:
    """A value with all of the schema's defaults filled in, as the API server fills them."""
    if schema.get("type") != "object" or "properties" not in schema:
        return schema.get("default")
    filled = {name: _defaults(field) for name, field in schema["properties"].items() if "default" in field}
    return {**schema.get("default", {}), **filled}


def test_operator_is_a_folder_not_a_package() -> None:
    """An ``__init__.py`` there would shadow the standard library's operator from the root of the repository."""
    assert not list((ROOT / "operator").glob("*.py"))


def test_importing_operator_gives_the_standard_librarys() -> None:
    """Even with the root first on the path."""
    code = "import operator; print(operator.__file__); operator.add(1, 2); import operator as o; o.itemgetter"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent == Path(subprocess.__file__).parent


def test_the_definitions_travel_with_the_package() -> None:
    """``thalweg up`` finds them, and they are those of the group that the operator watches and writes."""
    for definition, kind in zip(custom_resource_definitions(), (QUEUE, POLICY, NEW_POD_RULES), strict=True):
        assert definition["spec"]["group"] == kind.group
        assert definition["spec"]["names"]["plural"] == kind.plural
        assert definition["spec"]["names"]["kind"] == kind.kind
        assert definition["metadata"]["name"] == f"{kind.plural}.{kind.group}"
        assert tuple(version["name"] for version in definition["spec"]["versions"]) == kind.versions


def test_defaults_in_the_schema_are_the_cores() -> None:
    """A field that is left out means the same to the API server and to ``plan``."""
    schema = _schema()
    cost, price = schema["cost"], schema["unscheduled"]
    names = schema["selects"]["properties"]["schedulerNames"]
    # No default in the schema: it would hide whether the user named any (an empty ``selects`` governs nothing).
    assert "default" not in names
    assert f"The default is [{', '.join(Selects().scheduler_names)}]" in names["description"]
    assert (
        parse_policy("p", {"selects": {"podSelector": {}}}, BUILT_IN_MODELS).selects.scheduler_names
        == Selects().scheduler_names
    )
    assert schema["precedence"]["default"] == Policy("").precedence
    assert schema["delivery"]["default"] == Policy("").delivery
    assert _defaults(cost)["model"] == Policy("").cost.model
    weights = {
        "leastRequested": CostWeights().least_requested,
        "balance": CostWeights().balance,
        "nodePreference": CostWeights().node_preference,
        "taintPreference": CostWeights().taint_preference,
        "podAffinity": CostWeights().pod_affinity,
        "spread": CostWeights().spread,
        "imageLocality": CostWeights().image_locality,
        "deviceAlternatives": CostWeights().device_alternatives,
        "freeStorage": CostWeights().free_storage,
        "idleResources": CostWeights().idle_resources,
    }
    assert _defaults(cost)["weights"] == weights
    prices = {
        "base": UnscheduledPrice().base,
        "perPriority": UnscheduledPrice().per_priority,
        "perWaitingSecond": UnscheduledPrice().per_waiting_second,
        "agingCrossesPriorities": UnscheduledPrice().aging_crosses_priorities,
        "waitForCheaperNode": UnscheduledPrice().wait_for_cheaper_node,
    }
    assert _defaults(price) == prices
    # No default in the schema: it depends on another field.
    assert "default" not in price["properties"]["per"]
    assert [UnscheduledPrice(wait_for_cheaper_node=waits).counts_pods for waits in (False, True)] == [False, True]
    assert "dataLocality" not in _defaults(cost)
    assert Policy("").cost.data_locality is None
    given = {"cost": {"dataLocality": _defaults(cost["properties"]["dataLocality"])}}
    assert parse_policy("p", given, BUILT_IN_MODELS).cost.data_locality == DataLocality()


def test_a_queue_with_the_schemas_defaults_is_the_queue_without() -> None:
    """The same of queues, whose fields all have a default of the core's."""
    filled = {name: _defaults(field) for name, field in _schema(QUEUE.plural).items() if "default" in field}
    for spec in ({}, filled):
        assert to_queue(msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, WireQueue)) == Queue("q")


def test_a_policy_with_the_schemas_defaults_is_the_policy_without() -> None:
    """What the API server stores is read as what was written."""
    filled = {name: _defaults(field) for name, field in _schema().items() if "default" in field}
    assert parse_policy("p", filled, BUILT_IN_MODELS) == parse_policy("p", {}, BUILT_IN_MODELS)


def test_what_the_schema_lets_one_choose_exists() -> None:
    """Each delivery and no other; each cost model passes and is told of, and so may those that plug-ins add."""
    model = _schema()["cost"]["properties"]["model"]
    for name in MODELS:
        assert re.search(model["pattern"], name)
        assert f"{name}: " in model["description"]
    assert set(_schema()["delivery"]["enum"]) == {delivery.value for delivery in Delivery}


def test_the_table_of_kinds_agrees_with_the_parsers() -> None:
    """Each storage kind has a parser and each parser a kind; each source with PodGroups is followed."""
    assert {each.kind for each in STORAGE} == set(STORAGE_KINDS)
    assert set(POD_GROUPS) == {source for source in GangSource if source.has_pod_groups}
    assert len({each.paths for each in KINDS}) == len(KINDS)
    assert {each.paths[0] for each in (NODE, DEVICE_CLASS, POLICY)} == {
        "/api/v1/nodes",
        "/apis/resource.k8s.io/v1/deviceclasses",
        "/apis/scheduling.thalweg/v1alpha1/flowschedulingpolicies",
    }


def test_the_status_has_every_reason_to_evict() -> None:
    """What a policy would evict is told with the reason; the API server refuses a word that the enum lacks."""
    (definition,) = (each for each in custom_resource_definitions() if each["spec"]["names"]["plural"] == PLURAL)
    (version,) = definition["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    proposed = status["rescheduling"]["properties"]["proposals"]["items"]["properties"]
    assert set(proposed["kind"]["enum"]) == set(EvictionKind)


def _undescribed(schema: dict[str, Any], path: str) -> list[str]:
    """Fields at every depth without a description, as ``kubectl explain`` shows them."""
    inner = [(f"{path}.{name}", field) for name, field in schema.get("properties", {}).items()]
    found = [where for where, field in inner if not str(field.get("description", "")).strip().endswith((".", "]"))]
    inner += [
        (f"{path}[]", schema[word]) for word in ("items", "additionalProperties") if isinstance(schema.get(word), dict)
    ]
    return [*found, *(each for where, field in inner for each in _undescribed(field, where))]


def test_kubectl_explain_describes_every_field() -> None:
    """A whole sentence for each, at each depth. The API server describes metadata itself, and refuses that we do."""
    for definition in custom_resource_definitions():
        (version,) = definition["spec"]["versions"]
        kind = definition["spec"]["names"]["kind"]
        assert _undescribed(version["schema"]["openAPIV3Schema"], kind) == [f"{kind}.metadata"]
