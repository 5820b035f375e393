"""Tokens and kubeconfigs of service accounts."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from thalweg_controlplane.client.api import Api

#: Seconds: as long as the certificates of a local control plane.
_LIFETIME: Final = 30 * 24 * 3600


async def account_token(api: Api, namespace: str, name: str, audiences: Sequence[str] = ()) -> str:
    """A token of a service account, valid for 30 days; without audiences it is for the API server.

    Raises:
        ApiError: there is no such account.
    """
    spec = {"expirationSeconds": _LIFETIME, **({"audiences": list(audiences)} if audiences else {})}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
    return str(answer["status"]["token"])


def write_kubeconfig(path: Path, admin: Path, token: str) -> None:
    """Writes a kubeconfig with another user's token. Only the owner of the file can read it.

    Args:
        admin: kubeconfig of a control plane, with one user.
    """
    config = json.loads(admin.read_text())
    config["users"][0]["user"] = {"token": token}
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        json.dump(config, file, indent=2)
