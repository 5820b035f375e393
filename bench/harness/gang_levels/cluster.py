"""GPUs of hosts in racks of blocks: all that a placement of gangs takes and gives back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
#: Host -> pods of one gang there.
Places = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """How many blocks there are, racks of a block, hosts of a rack, and GPUs of a host."""

    blocks: int
    racks: int
    hosts: int
    gpus: int

    @property
    def nodes(self) -> int:
        """Hosts of all blocks."""
        return self.blocks * self.racks * self.hosts

    @property
    def all_gpus(self) -> int:
        """GPUs of all hosts."""
        return self.nodes * self.gpus


class Hosts:
    """What is free. Hosts are numbered rack by rack, and racks block by block.

    Attributes:
        free: int64[hosts], free GPUs.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.free = np.full(shape.nodes, shape.gpus, dtype=np.int64)

    def room(self, gpus: int) -> Int64s:
        """int64[hosts]: how many pods with so many GPUs each host has room for."""
        return self.free // gpus

    def by_rack(self, values: Int64s) -> Int64s:
        """int64[racks]: sums of int64[hosts]."""
        sums: Int64s = values.reshape(-1, self.shape.hosts).sum(axis=1)
        return sums

    def by_block(self, values: Int64s) -> Int64s:
        """int64[blocks]: sums of int64[racks]."""
        sums: Int64s = values.reshape(-1, self.shape.racks).sum(axis=1)
        return sums

    def hosts_of(self, rack: int) -> range:
        """The hosts of a rack."""
        return range(rack * self.shape.hosts, (rack + 1) * self.shape.hosts)

    def racks_of(self, block: int) -> range:
        """The racks of a block."""
        return range(block * self.shape.racks, (block + 1) * self.shape.racks)

    def rack_of(self, host: int) -> int:
        """The rack of a host."""
        return host // self.shape.hosts

    def block_of(self, host: int) -> int:
        """The block of a host."""
        return host // (self.shape.hosts * self.shape.racks)

    def change(self, places: Places, gpus: int) -> None:
        """Pods with so many GPUs come (gpus above zero), or end (below)."""
        for host, pods in places.items():
            self.free[host] -= pods * gpus

    @property
    def whole_racks(self) -> int:
        """Racks all of whose GPUs are free."""
        return int((self.by_rack(self.free) == self.shape.hosts * self.shape.gpus).sum())

    @property
    def used(self) -> int:
        """GPUs that are not free."""
        return self.shape.all_gpus - int(self.free.sum())
