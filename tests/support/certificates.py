"""Certificates for tests, made with openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in files."""

    certificate: Path
    key: Path


def authority(folder: Path, name: str) -> Pair:
    """A certificate authority."""
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign"),
        *("-keyout", str(pair.key), "-out", str(pair.certificate)),
    )
    return pair


def issued(folder: Path, name: str, by: Pair) -> Pair:
    """A certificate for 127.0.0.1 and for this name, for servers and clients."""
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-CA", str(by.certificate), "-CAkey", str(by.key), "-subj", f"/CN={name}"),
        *("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"),
        *("-keyout", str(pair.key), "-out", str(pair.certificate)),
    )
    return pair


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
