"""Storage objects as last seen. It knows which ones the worker lacks, and which ones may let a pod be placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from flowcore.cluster.arrays.storage import promised_claim, promised_volume
from flowcore.model.pods import Pod
from flowcore.model.volumes import (
    Claim,
    ClaimKey,
    ClaimVolume,
    CsiDriver,
    PersistentVolume,
    StorageKey,
    StorageObject,
    VolumeAttachment,
    VolumeChoice,
    claim_key,
    key_of,
    volume_key,
)


@dataclass(slots=True)
class Promise:
    """What a claim is to get for pods that are on their way to a node.

    Attributes:
        pods: keys of these pods.
    """

    choice: VolumeChoice
    node: str
    pods: set[str] = field(default_factory=set)


class StorageIndex:
    """Storage objects by their keys, the claims of pods that wait, and what is promised to claims.

    Attributes:
        objects: as the watch shows them.
        promises: by the claim's key.
    """

    def __init__(self) -> None:
        self.objects: dict[StorageKey, StorageObject] = {}
        self._dirty: set[StorageKey] = set()
        #: How many pods that may be placed wait with each claim.
        self._wanted_claims: Counter[ClaimKey] = Counter()
        self.promises: dict[ClaimKey, Promise] = {}
        #: The claims that volumes are promised to.
        self._promised_volumes: dict[str, ClaimKey] = {}

    def put(self, stored: StorageObject) -> bool:
        """Takes an object. Returns whether it is new or differs from the one before."""
        key = key_of(stored)
        if self.objects.get(key) == stored:
            return False
        self.objects[key] = stored
        self._dirty.add(key)
        return True

    def drop(self, key: StorageKey) -> StorageObject | None:
        """An object is gone; None: it was not there."""
        dropped = self.objects.pop(key, None)
        if dropped is not None:
            self._dirty.add(key)
        return dropped

    def track_claims(self, pod: Pod, delta: int) -> None:
        """A pod waits (by 1) or does so no longer (by -1)."""
        if pod.blocked_reason or pod.unsupported_reason:
            return
        for source in pod.pod_class.volumes:
            if isinstance(source, ClaimVolume):
                self._wanted_claims[source.key] += delta
                if not self._wanted_claims[source.key]:
                    del self._wanted_claims[source.key]

    def may_unblock(self, stored: StorageObject, *, gone: bool) -> bool:
        """Whether a waiting pod may be placed after an object came, changed or went.

        Source: EventsToRegister of kube-scheduler's plugins volumebinding, volumezone, volumerestrictions and
        nodevolumelimits; a CSIDriver that goes takes the watch on capacity along, which they leave out.
        """
        if not self._wanted_claims:
            return False
        match stored:
            case Claim():
                return not gone and (stored.namespace, stored.name) in self._wanted_claims
            case VolumeAttachment():
                return gone
            case CsiDriver():
                return True
        return not gone

    # --- promises ---

    def promise(self, choice: VolumeChoice, node: str, pod: str) -> None:
        """A pod, by its key, is on its way to a node, and a claim of it gets this. Rounds see it as if it were so."""
        promise = self.promises.get(choice.key)
        if promise is None:
            promise = self.promises[choice.key] = Promise(choice, node)
            if choice.volume:
                self._promised_volumes[choice.volume] = choice.key
            self._dirty.update(self._changed_by(choice))
        promise.pods.add(pod)

    def take_back(self, choice: VolumeChoice, pod: str) -> None:
        """A pod is not on its way any more."""
        promise = self.promises[choice.key]
        promise.pods.discard(pod)
        if not promise.pods:
            del self.promises[choice.key]
            self._promised_volumes.pop(promise.choice.volume, None)
            self._dirty.update(self._changed_by(promise.choice))

    def promised_to(self, volume: str) -> ClaimKey | None:
        """The claim that a volume is promised to; None: to none."""
        return self._promised_volumes.get(volume)

    def pods_that_await(self, key: StorageKey) -> AbstractSet[str]:
        """Keys of the pods on their way that get something by this object."""
        kind, namespace, name = key
        claim: ClaimKey | None = None
        if kind == "PersistentVolumeClaim":
            claim = namespace, name
        elif kind == "PersistentVolume":
            claim = self._promised_volumes.get(name) or _claim_of(self.objects.get(key))
        promise = None if claim is None else self.promises.get(claim)
        return frozenset() if promise is None else promise.pods

    @staticmethod
    def _changed_by(choice: VolumeChoice) -> tuple[StorageKey]:
        return (volume_key(choice.volume) if choice.volume else claim_key(*choice.key),)

    def _as_promised(self, stored: StorageObject) -> StorageObject:
        """The object as it is once what was promised is done."""
        match stored:
            case PersistentVolume(claim=None) if stored.name in self._promised_volumes:
                return promised_volume(stored, self.promises[self._promised_volumes[stored.name]].choice)
            case Claim(bound=False, selected_node=None):
                promise = self.promises.get((stored.namespace, stored.name))
                if promise is not None and not promise.choice.volume:
                    return promised_claim(stored, promise.node)
        return stored

    def as_promised(self) -> list[StorageObject]:
        """All objects as they are once what was promised is done."""
        objects = self.objects.values()
        return [self._as_promised(stored) for stored in objects] if self.promises else list(objects)

    def take_changes(self) -> tuple[list[StorageObject], list[StorageKey]]:
        """What came or changed, and what went, since the last call."""
        dirty, self._dirty = sorted(self._dirty), set()
        put = [self._as_promised(self.objects[key]) for key in dirty if key in self.objects]
        return put, [key for key in dirty if key not in self.objects]

    def mark_all_dirty(self) -> None:
        """The next ``take_changes`` returns everything."""
        self._dirty.update(self.objects)


def _claim_of(stored: StorageObject | None) -> ClaimKey | None:
    claim = stored.claim if isinstance(stored, PersistentVolume) else None
    return None if claim is None else (claim.namespace, claim.name)
