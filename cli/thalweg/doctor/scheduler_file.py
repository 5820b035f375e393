"""The fields of a KubeSchedulerConfiguration that matter for Thalweg.

Source: kube-scheduler 1.36 ``config/v1/types.go`` (KubeSchedulerConfiguration, Extender) and ``schedule_one.go``
(``numFeasibleNodesToFind``).
"""

from __future__ import annotations

import msgspec
import yaml
from thalweg_extender.server import PREFIX

KIND = "KubeSchedulerConfiguration"
#: kube-scheduler's minFeasibleNodesToFind: fewest nodes that an attempt looks for, whatever the percentage.
FEWEST_NODES = 100
#: kube-scheduler's minFeasibleNodesPercentageToFind, where no percentage is set.
_LEAST_PERCENTAGE = 5


class SchedulerFileError(Exception):
    """The text is no KubeSchedulerConfiguration; the message says why."""


class TLSConfig(msgspec.Struct, frozen=True, rename="camel"):
    """TLS of an extender. Paths are paths on kube-scheduler's machine; data is base64."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: str = ""
    key_data: str = ""
    ca_data: str = ""


class ManagedResource(msgspec.Struct, frozen=True, rename="camel"):
    """An extended resource by which kube-scheduler finds the pods that it asks an extender about."""

    name: str


class ConfiguredExtender(msgspec.Struct, frozen=True, rename="camel"):
    """An extender of kube-scheduler."""

    url_prefix: str
    bind_verb: str = ""
    node_cache_capable: bool = False
    ignorable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    tls_config: TLSConfig | None = None


class Profile(msgspec.Struct, frozen=True, rename="camel"):
    """A profile of kube-scheduler."""

    scheduler_name: str = "default-scheduler"
    percentage_of_nodes_to_score: int | None = None


class SchedulerFile(msgspec.Struct, frozen=True, rename="camel"):
    """A KubeSchedulerConfiguration."""

    kind: str
    percentage_of_nodes_to_score: int | None = None
    profiles: tuple[Profile, ...] = (Profile(),)
    extenders: tuple[ConfiguredExtender, ...] = ()

    @property
    def thalweg_extenders(self) -> tuple[ConfiguredExtender, ...]:
        """The extenders whose URL has Thalweg's path."""
        return tuple(each for each in self.extenders if each.url_prefix.rstrip("/").endswith(PREFIX))

    def profile(self, scheduler_name: str) -> Profile | None:
        """The profile of this name; None without one."""
        return next((each for each in self.profiles if each.scheduler_name == scheduler_name), None)

    def node_sample(self, profile: Profile, nodes: int) -> int:
        """Number of feasible nodes that an attempt at a pod of the profile looks for.

        Args:
            nodes: number of nodes of the cluster.
        """
        if nodes < FEWEST_NODES:
            return nodes
        percentage = profile.percentage_of_nodes_to_score
        if percentage is None:
            percentage = self.percentage_of_nodes_to_score or 0
        if percentage == 0:
            percentage = max(50 - nodes // 125, _LEAST_PERCENTAGE)
        return max(nodes * percentage // 100, FEWEST_NODES)


def parse(text: str) -> SchedulerFile:
    """The configuration of a YAML or JSON text.

    Raises:
        SchedulerFileError: it is none.
    """
    try:
        parsed = msgspec.convert(yaml.safe_load(text), SchedulerFile)
    except yaml.YAMLError as error:
        raise SchedulerFileError(f"not valid YAML: {' '.join(str(error).split())}") from error
    except msgspec.ValidationError as error:
        raise SchedulerFileError(str(error)) from error
    if parsed.kind != KIND:
        raise SchedulerFileError(f'kind is "{parsed.kind}", not {KIND}')
    return parsed
