"""A real control plane, the real Helm, the image, and a kubelet of our own that runs it: one of each a module.

Thalweg's own pods run on the node ``kubelet``. The pods that tests make go to nodes of KWOK.
"""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.controlplane import binaries, running
from support.helm import NAMESPACE, Helm, helm
from support.image import Image, NoImage, build_image, read_image
from support.kubelet import NODE, running_kubelet
from support.release import TAINT, Release
from thalweg_controlplane import Binaries
from thalweg_controlplane.client.objects import node

__all__ = ["binaries", "helm"]


@pytest.fixture(scope="session")
def image() -> Image:
    """The image. Where it cannot be built these tests are skipped, but never in CI."""
    try:
        return read_image(build_image())
    except NoImage as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no image to test with: {error}", pytrace=False)
        pytest.skip(f"no image to test with: {error}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def release(
    binaries: Binaries, image: Image, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Release]:
    folder = tmp_path_factory.mktemp("kubelet")
    async with running(binaries) as (plane, api), running_kubelet(plane, api, image, binaries, folder) as kubelet:
        await api.patch(f"/api/v1/nodes/{NODE}", {"spec": {"taints": [TAINT]}})
        # Room for all pods that arrive meanwhile, however long an upgrade takes.
        await api.create_many([node(f"w{number}", cpu="900", memory="8Ti", pods=5_000) for number in range(4)])
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
        await api.wait_for(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default", lambda _: True)
        yield Release(plane, api, kubelet, helm)
