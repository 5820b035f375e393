"""The flow network of a round: arrays, and the way back from flows to pods."""

from flowcore.network.slots import Network, build, decode, levels_for

__all__ = ["Network", "build", "decode", "levels_for"]
