"""Every object that the documentation shows is one that a real API server takes, field by field."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import collection_path

from flowcore.api.kinds import HYPER_NODE
from flowcore.model.gang_parents import BUILT_IN_GROUPS

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CLUSTER_SCOPED = {"FlowQueue", "FlowSchedulingPolicy", "PriorityClass"}
#: What no API server takes, and kinds of other projects; test_network_model plans the dump, test_numa creates a report,
#: test_way_back gives kube-scheduler its configuration.
NOT_SERVED = {"List", "NodeResourceTopology", "KubeSchedulerConfiguration"}
#: API groups of other projects; test_controllers_gangs and test_hyper_nodes make objects of these kinds.
OF_OTHERS = (BUILT_IN_GROUPS | {HYPER_NODE.group}) - {"batch"}
#: Each whole YAML block, indented ones in lists too.
BLOCK = re.compile(r"^( *)```yaml\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def shown() -> list[tuple[str, dict[str, Any]]]:
    """Objects with a kind; blocks without one are parts of files of others."""
    found = []
    for page in PAGES:
        for _, block in BLOCK.findall(page.read_text()):
            objects = [each for each in yaml.safe_load_all(block) if isinstance(each, dict) and "kind" in each]
            objects = [each for each in objects if each["kind"] not in NOT_SERVED]
            objects = [each for each in objects if each["apiVersion"].rpartition("/")[0] not in OF_OTHERS]
            found += [(str(page.relative_to(ROOT)), each) for each in objects]
    return found


async def test_objects_of_the_docs(plane: tuple[ControlPlane, Api]) -> None:
    """Created as a dry run, with unknown fields refused."""
    objects = shown()
    assert {"Job", "Deployment", "FlowSchedulingPolicy", "Pod"} <= {each["kind"] for _, each in objects}
    _, api = plane
    for page, manifest in objects:
        params = {"dryRun": "All", "fieldValidation": "Strict"}
        if manifest["kind"] not in CLUSTER_SCOPED:
            manifest["metadata"]["namespace"] = "default"  # that of the page need not exist here
        made = await api.request("POST", collection_path(manifest), manifest, params=params)
        assert made["kind"] == manifest["kind"], page
