"""Reads kube-scheduler's configuration, the certificate that it shows to the extender, and its feature gates."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path

import aiohttp
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from thalweg.doctor.facts import ClientCertificate, SchedulerFacts
from thalweg.doctor.scheduler_file import SchedulerFileError, TLSConfig, parse


class NotReadError(Exception):
    """A fact that does not come from the API server could not be read."""


def read_config_file(path: Path) -> SchedulerFacts:
    """The configuration in a file.

    Raises:
        NotReadError: it has none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotReadError(f"{path}: {error}") from error
    return _config(str(path), text, chosen=True)


def read_config_secret(secret: str, data: Mapping[str, str], key: str) -> SchedulerFacts:
    """The configuration in the data of a Secret.

    Args:
        secret: NAMESPACE/NAME, for messages.

    Raises:
        NotReadError: it has none.
    """
    try:
        text = base64.b64decode(data[key]).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise NotReadError(f"Secret {secret}: data.{key}: {error}") from error
    return _config(f"Secret {secret}", text, chosen=False)


def _config(source: str, text: str, *, chosen: bool) -> SchedulerFacts:
    try:
        return SchedulerFacts(source, chosen, parse(text))
    except SchedulerFileError as error:
        raise NotReadError(f"{source}: {error}") from error


def config_certificates(facts: SchedulerFacts) -> Iterator[ClientCertificate]:
    """The client certificates of a configuration's extenders; those that cannot be read here are left out."""
    for entry in facts.config.thalweg_extenders:
        tls = entry.tls_config or TLSConfig()
        try:
            pem = base64.b64decode(tls.cert_data) if tls.cert_data else Path(tls.cert_file).read_bytes()
            yield certificate(facts.source, pem)
        except (OSError, ValueError):  # the check `extender` says so
            continue


def certificate(source: str, pem: bytes) -> ClientCertificate:
    """The life of a certificate.

    Raises:
        ValueError: it is none.
    """
    read = x509.load_pem_x509_certificate(pem)
    return ClientCertificate(source, read.not_valid_before_utc, read.not_valid_after_utc)


async def read_features(url: str, seconds: float) -> Mapping[str, bool]:
    """kube-scheduler's feature gates, from its metric kubernetes_feature_enabled.

    Raises:
        NotReadError: no answer within ``timeout`` seconds, or none of metrics.
    """
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        # Nothing secret is sent, and kube-scheduler's certificate is usually self-signed.
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=False) as response:
            text = await response.text()
            if response.status != 200:
                raise NotReadError(f"{url} answers {response.status}")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise NotReadError(f"{url}: {error or f'no answer within {seconds:g} s'}") from error
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {each.labels["name"]: each.value > 0 for each in samples if each.name == "kubernetes_feature_enabled"}
