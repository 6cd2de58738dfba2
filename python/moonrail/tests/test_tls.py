"""TLS through the Python API: who gets through, and what the others are told."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from pathlib import Path
from typing import Any

import moonrail
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LEN = 4096


class Authority:
    """An authority of the test's own, and the folder its certificates lie in."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.ca = self._put(f"{name}.pem", self._sign(self.name, self.key, ca=True), 0o644)

    def issue(self, name: str, host: str = "127.0.0.1") -> dict[str, Any]:
        """What an engine takes to be a member."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        try:
            known: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            known = x509.DNSName(host)
        public = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._put(f"{name}.pin", hashlib.sha256(public).hexdigest().encode(), 0o644)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "tls_cert": self._put(f"{name}.pem", self._sign(subject, key, known=known), 0o644),
            "tls_key": self._put(f"{name}.key", secret, 0o600),
            "tls_ca": self.ca,
        }

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        ca: bool = False,
        known: x509.GeneralName | None = None,
    ) -> bytes:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if known is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([known]), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _put(self, name: str, data: bytes, mode: int) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        path.chmod(mode)
        return path


def refused(engine: moonrail.Engine, peer: str) -> str:
    with pytest.raises(moonrail.AccessError) as caught:
        engine.connect(peer)
    assert caught.value.peer == peer
    return caught.value.code


def test_members_exchange_bytes_and_strangers_do_not(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    with moonrail.Engine("127.0.0.1", **ours.issue("target")) as target:
        memory = target.allocate(LEN, name="pool")
        memory.view[:] = b"T" * LEN
        with moonrail.Engine("127.0.0.1", **ours.issue("member")) as member, member.allocate(LEN) as mine:
            far = member.connect(target.name)
            assert far.path == "tcp"
            far.read(mine, far.buffer("pool"))
            assert bytes(mine.view) == b"T" * LEN
            mine.view[:] = b"M" * LEN
            far.write(mine, far.buffer("pool"))
            assert bytes(memory.view) == b"M" * LEN
        strangers: list[tuple[dict[str, Any], str]] = [
            ({}, "TLS_REQUIRED"),
            (theirs.issue("other"), "TLS_UNTRUSTED"),
            ({**theirs.issue("stranger"), "tls_ca": [ours.ca, theirs.ca]}, "TLS_REFUSED"),
            ({**ours.issue("strict"), "tls_name": "elsewhere.test"}, "TLS_UNTRUSTED"),
        ]
        for options, code in strangers:
            with moonrail.Engine("127.0.0.1", **options) as stranger:
                assert refused(stranger, target.name) == code
        with moonrail.Engine("127.0.0.1") as plain:
            with moonrail.Engine("127.0.0.1", **ours.issue("again")) as member:
                assert refused(member, plain.name) == "TLS_NOT_OFFERED"
            with moonrail.Engine("127.0.0.1", **ours.issue("lenient"), allow=["clear"]) as lenient:
                assert lenient.connect(plain.name).name == plain.name
        assert bytes(memory.view) == b"M" * LEN


def test_pins_and_names(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    one, two = authority.issue("one", "moonrail.test"), authority.issue("two", "moonrail.test")
    pinned = {**one, "tls_ca": None, "tls_pins": tmp_path / "two.pin"}
    with moonrail.Engine("127.0.0.1", **pinned) as target:
        options = {**two, "tls_ca": None, "tls_pins": str(tmp_path / "one.pin")}
        with moonrail.Engine("127.0.0.1", **options) as member:
            member.connect(target.name)
        with moonrail.Engine("127.0.0.1", **two, tls_name="moonrail.test") as member:
            member.connect(target.name)
        with moonrail.Engine("127.0.0.1", **two) as member:
            assert refused(member, target.name) == "TLS_UNTRUSTED"


def test_files_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Authority(tmp_path, "authority").issue("good")
    with pytest.raises(moonrail.InvalidArgumentError, match="given together"):
        moonrail.Engine("127.0.0.1", tls_cert=good["tls_cert"])
    with pytest.raises(moonrail.InvalidArgumentError, match="check peers against"):
        moonrail.Engine("127.0.0.1", tls_cert=good["tls_cert"], tls_key=good["tls_key"])
    good["tls_key"].chmod(0o644)
    with pytest.raises(moonrail.InvalidArgumentError, match="mode 0644"):
        moonrail.Engine("127.0.0.1", **good)
    good["tls_key"].chmod(0o600)
    monkeypatch.setenv("MOONRAIL_TLS_CERT", str(good["tls_cert"]))
    with pytest.raises(moonrail.InvalidArgumentError, match="MOONRAIL_TLS_KEY"):
        moonrail.Engine("127.0.0.1")
    monkeypatch.setenv("MOONRAIL_TLS_KEY", str(good["tls_key"]))
    monkeypatch.setenv("MOONRAIL_TLS_CA", str(good["tls_ca"]))
    with moonrail.Engine("127.0.0.1") as one, moonrail.Engine("127.0.0.1") as two:
        assert one.connect(two.name).path == "tcp"
