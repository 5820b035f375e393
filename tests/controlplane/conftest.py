from support.controlplane import binaries

__all__ = ["binaries"]
