"""Certificates of the extender: who trusts whom over the years, and what the command refuses at once."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import ExtensionPolicy, PolicyBuilder, Store, VerificationError
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import thalweg
from thalweg.certificates.rotation import OVERLAP, Authorities, renew, rotate
from thalweg_certificates import CLIENT, SERVER, KeyPair, Leaf, UnreadableCertificate, read_pair, to_pem

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
LIFE = 60 * DAY
SERVER_LEAF = Leaf("thalweg-extender", SERVER, LIFE * OVERLAP, ("thalweg-extender.thalweg-system.svc",))
CLIENT_LEAF = Leaf("kube-scheduler", CLIENT, LIFE * OVERLAP)


def verify_server(leaf: x509.Certificate, trusted: Sequence[x509.Certificate], now: datetime) -> None:
    """What kube-scheduler does with the extender's certificate."""
    builder = PolicyBuilder().store(Store(trusted)).time(now)
    builder.build_server_verifier(x509.DNSName(SERVER_LEAF.dns_names[0])).verify(leaf, [])


def verify_client(leaf: x509.Certificate, trusted: Sequence[x509.Certificate], now: datetime) -> None:
    """What the extender does with kube-scheduler's certificate, which has no name in it."""
    policies = PolicyBuilder().extension_policies(
        ca_policy=ExtensionPolicy.webpki_defaults_ca(), ee_policy=ExtensionPolicy.permit_all()
    )
    policies.store(Store(trusted)).time(now).build_client_verifier().verify(leaf, [])
    if list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) != [CLIENT]:
        raise VerificationError("it is not for clients")  # permit_all() permits this too


@settings(max_examples=10, deadline=None)
@given(gaps=st.lists(st.integers(1, 3), min_size=40, max_size=60), restarts=st.integers(5, 9))
def test_nobody_is_refused_while_everything_is_renewed(gaps: list[int], restarts: int) -> None:
    """Over one to three lives of a CA, each side trusts what the other shows, at each moment between two renewals.

    Files arrive one renewal late, and kube-scheduler reads its CAs only when it restarts, once in an overlap.
    """
    now, authorities = NOW, rotate(None, "ca", LIFE, NOW)
    server, client = renew(None, SERVER_LEAF, authorities, now)[0], renew(None, CLIENT_LEAF, authorities, now)[0]
    seen = read_by_kube_scheduler = authorities
    since_restart = timedelta()
    for gap in gaps:
        later = now + gap * DAY
        since_restart += gap * DAY
        if since_restart >= restarts * DAY:
            read_by_kube_scheduler, since_restart = seen, timedelta()
        old_server, old_client, old = server, client, seen
        seen = authorities = rotate(authorities, "ca", LIFE, later)
        server = renew(server, SERVER_LEAF, authorities, later)[0]
        client = renew(client, CLIENT_LEAF, authorities, later)[0]
        for moment in (now, later, later + DAY / 2):
            for shown in (old_server, server):
                if shown.certificate.not_valid_before_utc <= moment:
                    verify_server(shown.certificate, read_by_kube_scheduler.trusted, moment)
            for shown in (old_client, client):
                if shown.certificate.not_valid_before_utc <= moment:
                    verify_client(shown.certificate, old.trusted, moment)
                    verify_client(shown.certificate, seen.trusted, moment)
        now = later


def test_a_ca_signs_only_after_it_was_trusted_for_a_sixth_of_a_life() -> None:
    """Two thirds: the successor is trusted. Five sixths: it signs. The end: the old one is trusted no longer."""
    first = rotate(None, "ca", LIFE, NOW)
    assert rotate(first, "ca", LIFE, NOW + LIFE * 0.66) is first
    second = rotate(first, "ca", LIFE, NOW + LIFE * 0.67)
    assert second.successor is not None
    assert (second.signing, len(second.trusted)) == (first.signing, 2)
    assert rotate(second, "ca", LIFE, NOW + LIFE * 0.83) is second
    third = rotate(second, "ca", LIFE, NOW + LIFE * 0.84)
    assert (third.signing, third.successor) == (second.successor, None)
    assert third.trusted == (third.signing.certificate, first.signing.certificate)
    assert rotate(third, "ca", LIFE, NOW + LIFE).trusted == (third.signing.certificate,)


def test_a_renewal_that_comes_far_too_late_leaves_one_valid_ca() -> None:
    """After years without a renewal everything has ended: what is made then is valid, and trusts nothing that ended."""
    first = rotate(None, "ca", LIFE, NOW)
    late = NOW + 5 * LIFE
    again = rotate(first, "ca", LIFE, late)
    assert again.retired == ()
    pair, why = renew(renew(None, SERVER_LEAF, first, NOW)[0], SERVER_LEAF, again, late)
    assert why == "its CA is no longer trusted"
    verify_server(pair.certificate, again.trusted, late)


@pytest.mark.parametrize(
    ("leaf", "after", "why"),
    [
        (SERVER_LEAF, 0.66, ""),
        (SERVER_LEAF, 0.67, "two thirds of its life are over"),
        (Leaf("thalweg-extender", SERVER, DAY, ("another.name",)), 0.0, "other names or another purpose are wanted"),
        (CLIENT_LEAF, 0.0, "other names or another purpose are wanted"),
    ],
)
def test_a_certificate_is_made_again_when_it_must_be(leaf: Leaf, after: float, why: str) -> None:
    """At two thirds of its life, or if it is for something else; otherwise it is the same one."""
    authorities = rotate(None, "ca", LIFE, NOW)
    pair, _ = renew(None, SERVER_LEAF, authorities, NOW)
    again, reason = renew(pair, leaf, authorities, NOW + SERVER_LEAF.lifetime * after)
    assert (reason, again is pair) == (why, not why)


def test_a_certificate_is_refused_by_those_that_trust_another_ca_or_another_name() -> None:
    """The checks of this file can fail: a stranger's CA, a server's certificate in the hand of a client."""
    ours, strangers = rotate(None, "ca", LIFE, NOW), rotate(None, "ca", LIFE, NOW)
    pair, _ = renew(None, SERVER_LEAF, ours, NOW)
    with pytest.raises(VerificationError):
        verify_server(pair.certificate, strangers.trusted, NOW)
    with pytest.raises(VerificationError):
        verify_client(pair.certificate, ours.trusted, NOW)
    with pytest.raises(VerificationError):
        verify_server(pair.certificate, ours.trusted, NOW + SERVER_LEAF.lifetime + timedelta(seconds=1))


def test_no_certificate_outlives_its_ca() -> None:
    """Near the end of a CA a certificate is as short as what is left of the CA."""
    authorities = Authorities(rotate(None, "ca", LIFE, NOW).signing)
    pair, _ = renew(None, SERVER_LEAF, authorities, NOW + LIFE - DAY)
    assert pair.certificate.not_valid_after_utc == authorities.signing.certificate.not_valid_after_utc


def test_a_key_of_another_certificate_is_noticed() -> None:
    """A pair that was mixed up, text that is no PEM, and nothing at all."""
    authorities = rotate(None, "ca", LIFE, NOW)
    one, other = (renew(None, SERVER_LEAF, authorities, NOW)[0] for _ in range(2))
    assert read_pair(_pem(one), one.key_pem).certificate == one.certificate
    for certificate, key in ((_pem(one), other.key_pem), (b"", b""), (_pem(one), b"x"), (b"x", one.key_pem)):
        with pytest.raises(UnreadableCertificate):
            read_pair(certificate, key)


def _pem(pair: KeyPair) -> bytes:
    return to_pem([pair.certificate])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "Missing option '--dns-name'"),
        (("--dns-name", "not a name"), '"not a name" is not a DNS name'),
        (("--dns-name", "a.b", "--valid-days", "0"), "0 is not in the range"),
        (
            ("--dns-name", "a.b", "--client-valid-days", "700"),
            "--client-valid-days 700 is more than a sixth of --ca-valid-days 3650",
        ),
    ],
)
def test_options_that_cannot_be(options: tuple[str, ...], says: str) -> None:
    """They are refused before a cluster is asked."""
    done = thalweg("certificates", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in " ".join(done.stderr.split())
