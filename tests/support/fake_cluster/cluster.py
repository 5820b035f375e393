"""A world around the operator's ledger: an API server, a watch that lags, writes, kube-scheduler, rounds and a clock.

Nothing here is chosen: a test says what happens. After each event everything is checked (``checks.py``). Of this
folder, from the bottom up:

- ``driven_ledger``: cluster and ledger behind a shell, without an API server: events go straight in;
- ``claims``: devices and claims to them, as our writes, drivers and others change them; ``volumes``: volumes likewise;
- ``api_server``: objects, a watch that lags, writes that are answered; ``rounds``: plans; here kube-scheduler;
- ``steered``: one policy, and plans that a test makes by hand;
- ``machine``: rules from which hypothesis draws histories of it;
- ``eviction_scene``: a driven ledger with the real round loop, for pods that leave.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from support.fake_cluster.rounds import Rounds
from thalweg_extender.answers import FilterOutcome, to_filter
from thalweg_operator.reservations.events import SchedulerAsks
from thalweg_operator.reservations.ledger.ledger import KeysOnTheWay
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.steering.advise import awaits_help, awaits_plan
from thalweg_operator.reservations.steering.gangs_under_way import has_begun

from flowcore.model.advice import HELD_MESSAGE, Advice, ExtenderPod
from flowcore.model.pods import Pod


def asked(pod: Pod) -> ExtenderPod:
    """What kube-scheduler sends of a pod that it knows so."""
    return ExtenderPod(pod.namespace, pod.name, pod.uid, dict(pod.labels), pod.scheduler_name, pod.nominated_node)


class FakeCluster(Rounds):
    """See the module. Here are kube-scheduler, and the end of all that is under way.

    Attributes:
        attempts: pods that kube-scheduler is trying: UID, and nodes that passed.
        answers_late: whether answers wait for no round any more: they waited too long.
    """

    answers_late = False

    def start(self, *, policies_first: bool = False) -> None:
        """See ApiServer. kube-scheduler's attempts end."""
        self.attempts: dict[str, tuple[str, list[str]]] = {}
        super().start(policies_first=policies_first)

    # --- kube-scheduler ---

    def extender_pod(self, key: str, *, nominated: str | None = None) -> ExtenderPod:
        """A pod as kube-scheduler knows it.

        Args:
            nominated: the node that it is nominated for; None: as the API server has it.
        """
        pod = self.api[key]
        return asked(pod if nominated is None else msgspec.structs.replace(pod, nominated_node=nominated))

    def advise(self, pod: ExtenderPod, fits: Sequence[str]) -> Advice:
        """Advice changes nothing, and is the same when it is asked for again."""
        if not self.shell.checked:
            return self.view.advise(pod, fits)
        with self.shell.checks.unchanged():
            advice = self.view.advise(pod, fits)
            assert self.view.advise(pod, fits) == advice
        return advice

    def filter(self, pod: ExtenderPod, fits: Sequence[str]) -> tuple[FilterOutcome, list[str]]:
        """kube-scheduler asks which of the nodes pass."""
        for _ in range(2 if self.answers_late else 1):
            if awaits_plan(self.cluster, self.ledger, pod) or awaits_help(self.shell.state, pod):
                self.apply(SchedulerAsks(pod, fits))
        advice = self.advise(pod, fits)
        outcome, passed, _ = to_filter(advice, fits)
        if outcome is FilterOutcome.STEERED:
            self._check_whole(pod.key)
        self.view.answered(pod, advice, outcome, passed)
        return outcome, passed

    def _check_whole(self, key: str) -> None:
        """No pod goes where we reserved room for it before its gang is whole, or has begun."""
        gang, reservation = self.cluster.waiting[key].gang, self.ledger.reservations[key]
        if gang is not None and reservation.owner is Owner.STEERING:
            lacks = self.cluster.gangs.lacks_pods(gang.key, KeysOnTheWay(self.ledger))
            assert not lacks or has_begun(self.cluster, self.ledger, gang.key), f"{key} goes without its gang"

    def ask(self, key: str, fits: Sequence[str], *, nominated: str | None = None) -> tuple[FilterOutcome, list[str]]:
        """kube-scheduler asks about a pod; see ``extender_pod``."""
        return self.filter(self.extender_pod(key, nominated=nominated), fits)

    def schedulable(self) -> list[str]:
        """Pods that kube-scheduler may try now."""
        return [
            key
            for key, pod in self.api.items()
            if not (pod.node_name or pod.gated or pod.deleting or pod.terminal or key in self.attempts)
        ]

    def schedule(self, key: str, fits: Sequence[str] | None = None) -> tuple[FilterOutcome, list[str]]:
        """kube-scheduler tries a pod: its nominated node first, then all that its own filters pass.

        Args:
            fits: the latter; None: all nodes.

        Returns:
            What it was answered last, and which nodes passed then.
        """
        fits = list(self.nodes) if fits is None else fits
        nominated, last = self.api[key].nominated_node, (FilterOutcome.HELD, list[str]())
        if nominated in fits:
            last = self.ask(key, [nominated])
        if not last[1] and fits:
            last = self.ask(key, fits)
        return last

    def attempt(self, key: str, fits: Sequence[str]) -> None:
        """kube-scheduler tries a pod; the attempt ends later."""
        self.attempts[key] = self.api[key].uid, self.schedule(key, fits)[1]

    def end_attempt(self, key: str, *, fails: bool, message: str = HELD_MESSAGE) -> None:
        """The attempt ends: the pod is bound, or kube-scheduler writes why not, and clears its nomination."""
        uid, passed = self.attempts.pop(key)
        pod = self.api.get(key)
        if pod is None or pod.uid != uid or pod.node_name:
            return
        if passed and not fails:
            self.change_pod(key, node_name=passed[0], usage=pod.pod_class.requests)
        else:
            self.change_pod(key, nominated_node="", unschedulable_message=message)

    # --- the end ---

    def settle(self) -> None:
        """Attempts end, every write is carried out, and the watch shows everything."""
        for key in list(self.attempts):
            self.end_attempt(key, fails=True)
        while self.plan is not None:
            self.deliver(10)
        for _ in range(1_000):
            self.show()
            self.remove_deleting_pods()
            if not self.writes and not self.watch:
                return
            if self.writes:
                self.send(0)
        raise AssertionError(f"writes without end: {self.writes}")

    def wait(self, seconds: float, step: float = 0.2) -> None:
        """Time passes; whatever is written is carried out and seen at once."""
        for _ in range(round(seconds / step)):
            self.pass_time(step)
            self.settle()
