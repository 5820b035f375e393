"""A real Prometheus that scrapes one operator."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from support.operator import free_address, until
from thalweg_controlplane.processes import Child

#: Labels of the target, as a PodMonitor would give them.
JOB, NAMESPACE = "thalweg", "thalweg-system"


class Prometheus:
    """Its HTTP API."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self._address, self._session = address, session

    @property
    def url(self) -> str:
        """Of its API."""
        return f"http://{self._address}"

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now; a wrong expression fails the test."""
        answer = await self._get("/api/v1/query", query=expression)
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    async def rules(self) -> list[dict[str, Any]]:
        """All alerting rules with their state."""
        answer = await self._get("/api/v1/rules", type="alert")
        return [rule for group in answer["data"]["groups"] for rule in group["rules"]]

    async def ready(self) -> bool:
        """Whether it answers queries."""
        try:
            async with self._session.get(f"{self.url}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        async with self._session.get(f"{self.url}{path}", params=parameters) as answer:
            body: dict[str, Any] = await answer.json()
        assert body["status"] == "success", f"{parameters}: {body}"
        return body


@asynccontextmanager
async def running_prometheus(
    executable: Path, folder: Path, target: str, rules: Path | None = None
) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes ``target`` (host:port) every three seconds; its files are in the folder."""
    config = {
        "global": {"scrape_interval": "3s", "scrape_timeout": "3s", "evaluation_interval": "3s"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [
            {"job_name": JOB, "static_configs": [{"targets": [target], "labels": {"namespace": NAMESPACE}}]}
        ],
    }
    file, address = folder / "prometheus.yaml", free_address()
    file.write_text(yaml.safe_dump(config))
    child = Child(
        "prometheus",
        [
            executable,
            f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ],
        folder / "prometheus.log",
    )
    child.start()
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
            prometheus = Prometheus(address, session)

            async def ready() -> bool:
                child.check()
                return await prometheus.ready()

            await until(ready, 60, lambda: f"Prometheus to be ready:\n{child.tail()}")
            yield prometheus
    finally:
        await child.stop()
