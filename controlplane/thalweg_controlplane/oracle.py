"""kube-scheduler's own filters as a function, for comparison with Thalweg's filters. See go/oracle.go."""

import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Self, TypeAlias

import msgspec

from thalweg_controlplane.building.build import Binaries
from thalweg_controlplane.errors import OracleError
from thalweg_controlplane.processes import die_with_parent


class OracleVerdict(msgspec.Struct, frozen=True):
    """Whether a pod fits a node; if not, the plugin that rejects it, with reason and status code."""

    fits: bool
    filter: str = ""
    reason: str = ""
    """All reasons, sorted, joined by a comma."""
    code: str = ""
    """Unschedulable, UnschedulableAndUnresolvable or Error; empty when it fits."""


Verdicts: TypeAlias = dict[str, dict[str, dict[str, OracleVerdict]]]
"""Filter ("" for the whole default profile) -> "namespace/pod" -> node -> verdict."""


Scores: TypeAlias = dict[str, dict[str, dict[str, int]]]
"""Plugin -> "namespace/pod" -> node -> raw score; without pods that the plugin refuses to score."""


Totals: TypeAlias = dict[str, dict[str, dict[str, int]]]
""""namespace/pod" -> node that it fits -> plugin -> points of its score, normalised and weighted."""


class OracleDecision(msgspec.Struct, frozen=True):
    """What kube-scheduler does with a pod.

    Attributes:
        node: where it goes; "": it waits.
        victims: keys of the pods that are evicted for it, the most important first.
        violations: how many of them a PodDisruptionBudget protects, as DefaultPreemption counts.
        error: that scheduling the pod ended with; it waits then.
    """

    node: str = ""
    victims: tuple[str, ...] = ()
    violations: int = 0
    error: str = ""


class OracleSelection(msgspec.Struct, frozen=True):
    """What an expression says of a device.

    Attributes:
        stage: `compile` or `runtime` for an expression that says nothing; empty if it does.
    """

    matches: bool
    stage: str = ""
    error: str = ""


class OracleDevices(msgspec.Struct, frozen=True, rename="camel"):
    """What kube-scheduler's allocator of devices says.

    Attributes:
        allocations: one for each claim, as the API has it; None if they cannot be had.
        error: that ended the attempt, or, `on_node_only`, a reason against this node alone.
        timed_out: the search was not finished.
        selections: for each expression what it says of each device.
    """

    allocations: list[dict[str, Any]] | None = None
    error: str = ""
    on_node_only: bool = False
    timed_out: bool = False
    selections: list[list[OracleSelection]] = []


class OraclePlugin(msgspec.Struct, frozen=True):
    """A plugin of the default profile.

    Attributes:
        weight: of its scores; 0: it does not score.
    """

    name: str
    weight: int


class OracleGate(msgspec.Struct, frozen=True):
    """A feature gate as it is unless somebody sets it.

    Attributes:
        stage: ALPHA, BETA or DEPRECATED; "": generally available.
    """

    enabled: bool
    stage: str


class OracleDefaults(msgspec.Struct, frozen=True):
    """What kube-scheduler does where its configuration says nothing.

    Attributes:
        configuration: field of a configuration file -> value.
        plugins: of the one profile, in their order.
        arguments: plugin -> field -> value.
        gates: all of Kubernetes, by name; not the scheduler's alone.
    """

    configuration: dict[str, Any]
    plugins: tuple[OraclePlugin, ...]
    arguments: dict[str, dict[str, Any]]
    gates: dict[str, OracleGate]


class _OracleReply(msgspec.Struct):
    verdicts: Verdicts | None = None
    scores: Scores | None = None
    totals: Totals | None = None
    decisions: dict[str, OracleDecision] | None = None
    devices: OracleDevices | None = None
    defaults: OracleDefaults | None = None
    error: str = ""


class Oracle:
    """A child process that judges cases one after another. Use it in a `with`, from one thread.

    The oracle does not set the API server's defaults (requests from limits, a toleration's operator, maxSkew and so
    on), so pass manifests as the API server stores them.

    Attributes:
        minor_version: of Kubernetes, such as 1.36.
    """

    def __init__(self, binaries: Binaries) -> None:
        self.minor_version = binaries.minor_version
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the child lives
        self._process = subprocess.Popen(  # noqa: S603 - our own argument list, no shell
            [binaries.controlplane, "oracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only calls prctl
            process_group=0,
        )
        self._decoder = msgspec.json.Decoder(_OracleReply)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def judge(
        self,
        nodes: Sequence[Mapping[str, Any]],
        pods: Sequence[Mapping[str, Any]],
        pending: Sequence[Mapping[str, Any]],
        filters: Sequence[str] = (),
        namespaces: Sequence[Mapping[str, Any]] = (),
        storage: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        devices: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    ) -> Verdicts:
        """Asks whether each pending pod fits each node, with `pods` on their nodes.

        `filters` are names of plugins, such as NodeResourcesFit, and each is judged separately. Without names the
        default profile is judged as a whole; it stops at the first plugin that rejects. No pending pod is placed before
        another is judged. `storage` holds persistentVolumes, persistentVolumeClaims, storageClasses, csiNodes,
        volumeAttachments, csiDrivers and csiStorageCapacities under these names, `devices` slices, classes and claims:
        DynamicResources is judged with these alone. Raises OracleError.
        """
        case = {
            "nodes": nodes,
            "pods": pods,
            "pending": pending,
            "filters": filters,
            "namespaces": namespaces,
            "storage": storage or {},
            "deviceObjects": devices,
        }
        answer = self._request(case)
        if answer.verdicts is None:
            raise OracleError("the oracle gave no verdicts")
        return answer.verdicts

    def score(
        self,
        plugins: Sequence[str],
        nodes: Sequence[Mapping[str, Any]],
        pods: Sequence[Mapping[str, Any]],
        pending: Sequence[Mapping[str, Any]],
        namespaces: Sequence[Mapping[str, Any]] = (),
    ) -> Scores:
        """Ask for the raw scores of plugins, before they are normalised and weighted, over all nodes.

        Raises OracleError.
        """
        case = {"nodes": nodes, "pods": pods, "pending": pending, "scores": plugins, "namespaces": namespaces}
        answer = self._request(case)
        if answer.scores is None:
            raise OracleError("the oracle gave no scores")
        return answer.scores

    def total(
        self,
        nodes: Sequence[Mapping[str, Any]],
        pods: Sequence[Mapping[str, Any]],
        pending: Sequence[Mapping[str, Any]],
        namespaces: Sequence[Mapping[str, Any]] = (),
        storage: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        devices: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        owners: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    ) -> Totals:
        """Asks what the default profile gives each node that a pending pod fits, plugin by plugin, as if it came alone.

        `owners` holds services, replicationControllers, replicaSets and statefulSets under these names; the rest is as
        in `judge`. Raises OracleError.
        """
        case = {
            "nodes": nodes,
            "pods": pods,
            "pending": pending,
            "namespaces": namespaces,
            "storage": storage or {},
            "deviceObjects": devices,
            "owners": owners or {},
            "totals": True,
        }
        answer = self._request(case)
        if answer.totals is None:
            raise OracleError("the oracle gave no totals")
        return answer.totals

    def defaults(self) -> OracleDefaults:
        """Asks what kube-scheduler does where its configuration says nothing. Raises OracleError."""
        answer = self._request({"defaults": True})
        if answer.defaults is None:
            raise OracleError("the oracle gave no defaults")
        return answer.defaults

    def decide(
        self,
        nodes: Sequence[Mapping[str, Any]],
        pods: Sequence[Mapping[str, Any]],
        pending: Sequence[Mapping[str, Any]],
        namespaces: Sequence[Mapping[str, Any]] = (),
        storage: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        budgets: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, OracleDecision]:
        """Asks what kube-scheduler does with each pending pod, by its key, as if no other pod waited.

        A pod that fits goes to the node with the highest score, the first of equal ones. Otherwise DefaultPreemption
        chooses among all nodes, not among a sample of them. `budgets` are PodDisruptionBudgets. Raises OracleError.
        """
        case = {
            "nodes": nodes,
            "pods": pods,
            "pending": pending,
            "namespaces": namespaces,
            "storage": storage or {},
            "decide": True,
            "budgets": budgets,
        }
        answer = self._request(case)
        if answer.decisions is None:
            raise OracleError("the oracle gave no decisions")
        return answer.decisions

    def allocate(
        self,
        node: Mapping[str, Any],
        slices: Sequence[Mapping[str, Any]],
        classes: Sequence[Mapping[str, Any]],
        claims: Sequence[Mapping[str, Any]],
        others: Sequence[Mapping[str, Any]] = (),
        gates_off: Collection[str] = (),
    ) -> OracleDevices:
        """Asks which devices of a node claims can have, while `others` have theirs. Raises OracleError."""
        case = {"node": node, "slices": slices, "classes": classes, "claims": claims, "others": others}
        return self._devices({**case, "gatesOff": sorted(gates_off)})

    def select(self, expressions: Sequence[str], slices: Sequence[Mapping[str, Any]]) -> list[list[OracleSelection]]:
        """Asks whether each expression holds for each device of the slices. Raises OracleError."""
        return self._devices({"expressions": expressions, "slices": slices}).selections

    def _devices(self, case: Mapping[str, Any]) -> OracleDevices:
        answer = self._request({"devices": case})
        if answer.devices is None:
            raise OracleError("the oracle gave no devices")
        return answer.devices

    def _request(self, case: Mapping[str, Any]) -> _OracleReply:
        if self._process.stdin is None or self._process.stdout is None:
            raise OracleError("the oracle has no pipes")
        try:
            self._process.stdin.write(msgspec.json.encode(case) + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except (OSError, ValueError) as error:
            raise OracleError(f"the oracle has ended: {error}\n{self._log_tail()}") from error
        if not line:
            raise OracleError(f"the oracle has ended:\n{self._log_tail()}")
        answer = self._decoder.decode(line)
        if answer.error:
            raise OracleError(answer.error)
        return answer

    def close(self) -> None:
        """Ends the child: it exits at the end of its input."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # closing flushes, and the child may have exited
                    pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _log_tail(self) -> str:
        self._log.seek(0)
        return "\n".join(self._log.read().decode(errors="replace").splitlines()[-20:])
