"""Storage objects as last seen. It knows which ones the worker lacks, and which ones may let a pod be placed."""

from __future__ import annotations

from collections import Counter

from flowcore.model.pods import Pod
from flowcore.model.volumes import (
    Claim,
    ClaimKey,
    ClaimVolume,
    CsiDriver,
    StorageKey,
    StorageObject,
    VolumeAttachment,
    key_of,
)


class StorageIndex:
    """Storage objects by their keys, and the claims of pods that wait."""

    def __init__(self) -> None:
        self.objects: dict[StorageKey, StorageObject] = {}
        self._dirty: set[StorageKey] = set()
        #: How many pods that may be placed wait with each claim.
        self._wanted_claims: Counter[ClaimKey] = Counter()

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

    def take_changes(self) -> tuple[list[StorageObject], list[StorageKey]]:
        """What came or changed, and what went, since the last call."""
        dirty, self._dirty = sorted(self._dirty), set()
        put = [self.objects[key] for key in dirty if key in self.objects]
        return put, [key for key in dirty if key not in self.objects]

    def mark_all_dirty(self) -> None:
        """The next ``take_changes`` returns everything."""
        self._dirty.update(self.objects)
