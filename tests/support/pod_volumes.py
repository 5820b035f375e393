"""Volumes of pods as folders: Secrets, ConfigMaps, projected volumes and emptyDirs, updated as by a kubelet."""

import base64
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from support.helm import Manifest
from thalweg_controlplane import Api, ApiError

_DATA: Final = "..data"


class MissingVolume(Exception):
    """An object or a key that a volume needs does not exist yet."""


class PodVolumes:
    """The volumes of one pod.

    Args:
        authority: file of the API server's CA. It stands for the ConfigMap kube-root-ca.crt, which this control plane
            has not: its controller manager knows no CA.
    """

    def __init__(self, api: Api, pod: Manifest, folder: Path, authority: Path) -> None:
        self._api, self._pod, self._folder, self._authority = api, pod, folder, authority
        self._namespace = pod["metadata"]["namespace"]
        self._group = pod["spec"].get("securityContext", {}).get("fsGroup", 0)
        self._token, self._versions = "", 0
        self._written: dict[str, Mapping[str, bytes]] = {}

    async def refresh(self) -> None:
        """Makes all volumes, and writes those that changed again. Raises MissingVolume."""
        for volume in self._pod["spec"].get("volumes", ()):
            folder = self.path(volume["name"])
            folder.mkdir(parents=True, exist_ok=True)
            if "emptyDir" in volume:
                os.chown(folder, -1, self._group)
                folder.chmod(0o2777)
                continue
            files = await self._files(volume)
            if self._written.get(volume["name"]) != files:
                self._write(folder, files)
                self._written[volume["name"]] = files

    def path(self, name: str) -> Path:
        """The folder of a volume."""
        return self._folder / name

    async def _files(self, volume: Manifest) -> dict[str, bytes]:
        if "secret" in volume:
            return await self._object("secrets", volume["secret"]["secretName"], volume["secret"])
        if "configMap" in volume:
            return await self._object("configmaps", volume["configMap"]["name"], volume["configMap"])
        files: dict[str, bytes] = {}
        for source in volume["projected"]["sources"]:
            if "serviceAccountToken" in source:
                files[source["serviceAccountToken"]["path"]] = (await self._service_account_token()).encode()
            elif "configMap" in source:
                files |= await self._object("configmaps", source["configMap"]["name"], source["configMap"])
            else:
                files |= {each["path"]: self._field(each).encode() for each in source["downwardAPI"]["items"]}
        return files

    def _field(self, item: Manifest) -> str:
        assert item["fieldRef"]["fieldPath"] == "metadata.namespace", item
        return str(self._namespace)

    async def _object(self, plural: str, name: str, source: Manifest) -> dict[str, bytes]:
        if name == "kube-root-ca.crt":
            return {"ca.crt": self._authority.read_bytes()}
        try:
            found = await self._api.get(f"/api/v1/namespaces/{self._namespace}/{plural}/{name}")
        except ApiError as error:
            raise MissingVolume(f"{plural} {name}: {error}") from error
        data = found.get("data") or {}
        decoded = {key: base64.b64decode(text) if plural == "secrets" else text.encode() for key, text in data.items()}
        items = source.get("items") or [{"key": key, "path": key} for key in decoded]
        missing = [item["key"] for item in items if item["key"] not in decoded]
        if missing:
            raise MissingVolume(f"{plural} {name} has no {missing}")
        return {item["path"]: decoded[item["key"]] for item in items}

    async def _service_account_token(self) -> str:
        if not self._token:
            metadata = self._pod["metadata"]
            bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
            account = self._pod["spec"]["serviceAccountName"]
            request = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": [], "expirationSeconds": 3607, "boundObjectRef": bound},
            }
            path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
            answer = await self._api.request("POST", path, request)
            self._token = str(answer["status"]["token"])
        return self._token

    def _write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """As a kubelet does: a new folder, and one link that is replaced at once."""
        self._versions += 1
        version = folder / f"..version-{self._versions}"
        version.mkdir(mode=0o755)
        for name, data in files.items():
            path = version / name
            path.write_bytes(data)
            os.chown(path, 0, self._group)
            path.chmod(0o640)
            link = folder / name
            if not link.is_symlink():
                link.symlink_to(Path(_DATA) / name)
        old = (folder / _DATA).resolve() if (folder / _DATA).is_symlink() else None
        new = folder / "..new"
        new.symlink_to(version.name)
        new.replace(folder / _DATA)
        if old is not None:
            shutil.rmtree(old)
