"""The rights that rights/ gives the operator's account, and that account's token."""

import json
from pathlib import Path
from typing import Any

import yaml
from thalweg_controlplane import Api, ControlPlane

RIGHTS = Path(__file__).parents[2] / "rights"
ACCOUNT = "/api/v1/namespaces/thalweg-system/serviceaccounts/thalweg"


async def grant(api: Api, *without: str) -> None:
    """Applies rights/, but for the files of these names."""
    for path in sorted(RIGHTS.glob("*.yaml")):
        if path.stem not in without:
            for each in yaml.safe_load_all(path.read_text()):
                await api.apply(each)


async def token(api: Api) -> str:
    """Of the account, for ten minutes."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    made = await api.request("POST", f"{ACCOUNT}/token", request)
    return str(made["status"]["token"])


async def kubeconfig(plane: ControlPlane, api: Api, folder: Path) -> Path:
    """The plane's, with the account's token."""
    config: dict[str, Any] = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": await token(api)}
    path = folder / "account-kubeconfig"
    path.write_text(json.dumps(config))
    return path
