"""Whose certificates the extender shows and takes, and how they are renewed."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from structlog.testing import capture_logs
from support.callers import HERE, PASSING_ADVICE, Refusals, files, post_filter, trusting
from support.extender import StubPlanView, filter_request, served
from thalweg_controlplane.certificates import Authority
from thalweg_extender import CertificateFiles, Certificates, ExtenderError, listening


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


async def test_both_sides_verify_each_other(ours: Authority, tmp_path: Path) -> None:
    """Our certificate by the caller's CA, the caller's by ours; nobody else is answered."""
    theirs = Authority(tmp_path, "theirs")
    client, stranger = ours.client("client"), theirs.client("stranger")
    guide, refused = StubPlanView(PASSING_ADVICE), Refusals()
    async with served(guide, certificates=Certificates(files(ours)), on_refused=refused) as address:
        assert await post_filter(address, trusting(ours.certificate, client)) == 200
        for wrong in (
            trusting(ours.certificate),
            trusting(ours.certificate, stranger),
            trusting(ours.certificate, ours.server("serves", HERE)),  # a server's certificate is no client's
            trusting(theirs.certificate, client),
        ):
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await post_filter(address, wrong)
        with pytest.raises(aiohttp.ClientError):
            await post_filter(address.replace("https", "http"))
    assert len(guide.asked) == 1
    assert refused.fields == {"TLS handshake": 5}


async def test_without_a_client_ca_callers_need_no_certificate(ours: Authority) -> None:
    """They verify us all the same."""
    async with served(StubPlanView(PASSING_ADVICE), certificates=Certificates(files(ours, verifies=False))) as address:
        assert await post_filter(address, trusting(ours.certificate)) == 200


async def test_when_the_callers_certificate_ends_is_known(ours: Authority) -> None:
    """With each request, so that its end can be told in time; callers without a certificate tell nothing."""
    client, ends = ours.client("client"), list[float]()
    read = x509.load_pem_x509_certificate(client.certificate.read_bytes())
    async with served(
        StubPlanView(PASSING_ADVICE), certificates=Certificates(files(ours)), on_client=ends.append
    ) as address:
        assert await post_filter(address, trusting(ours.certificate, client)) == 200
    assert ends == [read.not_valid_after_utc.timestamp()]
    for certificates in (None, Certificates(files(ours, verifies=False))):
        async with served(StubPlanView(PASSING_ADVICE), certificates=certificates, on_client=ends.append) as address:
            assert await post_filter(address, trusting(ours.certificate)) == 200
    assert len(ends) == 1


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 10.0  # each look is due
        return self.now


def renew(to: CertificateFiles, authority: Authority) -> None:
    """As a certificate's renewal writes files: one after the other, each in place of the former."""
    pair = authority.server("renewed", HERE)
    for new, old in ((pair.certificate, to.certificate), (pair.key, to.key)):
        shutil.copy(new, f"{old}.new")
        Path(f"{old}.new").rename(old)


async def test_certificates_are_read_again_without_a_dropped_request(tmp_path: Path) -> None:
    """Certificate, key and CA change while requests come on one connection: each is answered, and then by the new."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    used = files(old)
    both = tmp_path / "both.crt"
    both.write_bytes(old.certificate.read_bytes() + new.certificate.read_bytes())
    keeps_old, has_new = old.client("keeps-old"), new.client("has-new")
    guide = StubPlanView(PASSING_ADVICE)
    async with (
        served(guide, certificates=Certificates(used, Clock())) as address,
        aiohttp.ClientSession() as http,
    ):

        async def again(tls: ssl.SSLContext, times: int = 20) -> None:
            for _ in range(times):
                async with http.post(f"{address}/filter", data=filter_request(["n1"]), ssl=tls) as answer:
                    assert answer.status == 200

        trusts_both = trusting(both, keeps_old)
        asking = asyncio.create_task(again(trusts_both, 200))
        await again(trusts_both)
        renew(used, new)
        await asking
        await again(trusts_both)
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await post_filter(address, trusting(old.certificate, keeps_old))  # it is not the old certificate any more
        shutil.copy(new.certificate, old.certificate)  # the CA of callers changes too
        # A connection that the old CA let in is closed with its answer, and no other is let in.
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await again(trusts_both)
        assert await post_filter(address, trusting(new.certificate, has_new)) == 200
    assert len(guide.asked) == 20 + 200 + 20 + 2


@pytest.mark.parametrize("how", ["no PEM", "gone", "another key", "CA without PEM"])
async def test_files_that_cannot_be_used_leave_the_former_ones_in_use(ours: Authority, how: str) -> None:
    """One sentence in the log for each version of them; mended, they are used."""
    used = files(ours)
    assert used.client_authority is not None
    good, authority = used.key.read_bytes(), used.client_authority.read_bytes()
    client = trusting(ours.certificate, ours.client("client"))
    async with served(StubPlanView(PASSING_ADVICE), certificates=Certificates(used, Clock())) as address:
        with capture_logs() as lines:
            match how:
                case "no PEM":
                    used.key.write_text("what?")
                case "gone":
                    used.key.unlink()
                case "another key":
                    shutil.copy(ours.client("another").key, used.key)
                case _:
                    used.client_authority.write_text("what?")
            for _ in range(3):
                assert await post_filter(address, client) == 200
        assert [line["log_level"] for line in lines] == ["error"]
        assert "cannot be used" in lines[0]["problem"]
        used.key.write_bytes(good)
        used.client_authority.write_bytes(authority)
        with capture_logs() as lines:
            assert await post_filter(address, client) == 200
        assert [line["log_level"] for line in lines] == ["info"]


def test_files_that_cannot_be_used_at_the_start(ours: Authority, tmp_path: Path) -> None:
    """They are an error that names them."""
    used = files(ours)
    (tmp_path / "empty").touch()
    for wrong in (
        replace(used, key=tmp_path / "missing"),
        replace(used, certificate=tmp_path / "empty"),
        replace(used, client_authority=tmp_path / "empty"),
    ):
        with pytest.raises(ExtenderError, match=r"cannot be used"):
            Certificates(wrong)


async def test_an_address_that_is_taken() -> None:
    """It is an error that names the address."""
    async with listening(HERE, 0, StubPlanView(PASSING_ADVICE)) as port:
        with pytest.raises(ExtenderError, match=f"cannot listen on {HERE}:{port}"):
            async with listening(HERE, port, StubPlanView(PASSING_ADVICE)):
                pass


async def test_when_certificates_expire(ours: Authority, tmp_path: Path) -> None:
    """The first to expire of each file, as openssl reads it; of new files after they changed."""

    def by_openssl(path: Path) -> float:
        done = subprocess.run(
            ["openssl", "x509", "-noout", "-enddate", "-in", path], capture_output=True, text=True, check=True
        )
        return ssl.cert_time_to_seconds(done.stdout.strip().removeprefix("notAfter="))

    given = files(ours)
    assert given.client_authority is not None
    certificates = Certificates(given, Clock())
    assert certificates.files == ["certificate", "client CA"]
    assert certificates.expiration("certificate") == by_openssl(given.certificate)
    assert certificates.expiration("client CA") == by_openssl(given.client_authority)
    # The chain is served with the certificate: the CA's own end counts there too.
    chain = given.certificate.read_text() + given.client_authority.read_text()
    given.certificate.write_text(chain)
    ends = (by_openssl(given.certificate), by_openssl(given.client_authority))
    assert certificates.expiration("certificate") == min(ends)
    assert Certificates(files(ours, verifies=False)).files == ["certificate"]
