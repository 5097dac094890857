"""Certificates and keys: they say what they should, real TLS accepts them, and only them; private keys stay private."""

from __future__ import annotations

import os
import ssl
import stat
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from rpdp.deployment.files.certificates import (
    Authority,
    ServerCertificate,
    SiloKey,
    certificate_end,
    certificate_serial,
    is_signed_by,
    make_authority,
    make_server_certificate,
    make_silo_certificate,
    make_silo_key,
    revoked_serials,
)
from rpdp.deployment.files.issuing import Issuer
from rpdp.errors import InputError

NAMES = ["localhost", "fl.hospital.example", "127.0.0.1", "::1"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"), days=30)


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> ServerCertificate:
    return make_server_certificate(authority, tmp_path_factory.mktemp("server"), NAMES)


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def days_left(path: Path) -> float:
    return (read(path).not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def handshake(server: ServerCertificate, trusted: Path, name: str) -> None:
    """A TLS handshake in memory, as a SuperNode makes it; raises what the client would raise."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server.certificate, server.key)
    asking = ssl.create_default_context(cafile=trusted)
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    there = serving.wrap_bio(to_server, to_client, server_side=True)
    here = asking.wrap_bio(to_client, to_server, server_hostname=name)
    done: set[ssl.SSLObject] = set()
    for side in (here, there) * 4:
        try:
            side.do_handshake()
            done.add(side)
        except ssl.SSLWantReadError:
            continue
    assert done == {here, there}


@pytest.mark.parametrize("name", NAMES)
def test_tls_accepts_every_name(server: ServerCertificate, name: str) -> None:
    handshake(server, server.authority, name)


def test_tls_refuses_another_name(server: ServerCertificate) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        handshake(server, server.authority, "127.0.0.2")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, server.authority, "other.example")


def test_tls_refuses_a_foreign_authority_of_the_same_name(server: ServerCertificate, tmp_path: Path) -> None:
    foreign = make_authority(tmp_path)
    assert read(foreign.certificate).subject == read(server.authority).subject
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, foreign.certificate, "localhost")
    theirs = make_server_certificate(foreign, tmp_path, ["localhost"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(theirs, server.authority, "localhost")


def test_a_server_certificate_signs_nothing(server: ServerCertificate, tmp_path: Path) -> None:
    forged = make_server_certificate(Authority(server.certificate, server.key), tmp_path, ["localhost"])
    chain = tmp_path / "chain.crt"
    chain.write_bytes(forged.certificate.read_bytes() + server.certificate.read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ServerCertificate(server.authority, chain, forged.key), server.authority, "localhost")


def test_what_the_certificates_say(authority: Authority, server: ServerCertificate) -> None:
    assert sorted(server.names()) == sorted(NAMES)
    found = read(server.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(found.get_values_for_type(x509.IPAddress)) == {ip_address("127.0.0.1"), ip_address("::1")}
    read(server.certificate).verify_directly_issued_by(read(authority.certificate))
    for path, signs in ((authority.certificate, True), (server.certificate, False)):
        extensions = read(path).extensions
        assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is signs
        assert extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is signs
        key = read(path).public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp384r1"


def test_validity(authority: Authority, server: ServerCertificate, tmp_path: Path) -> None:
    assert 29.9 < days_left(authority.certificate) < 30.1
    assert read(server.certificate).not_valid_after_utc == read(authority.certificate).not_valid_after_utc
    longer = make_authority(tmp_path, days=825)
    short = make_server_certificate(longer, tmp_path, ["localhost"], days=7)
    assert 6.9 < days_left(short.certificate) < 7.1
    for days in (0, 3651):
        with pytest.raises(InputError, match=f"days={days} must be between 1 and 3,650"):
            make_authority(tmp_path / "no", days=days)
    for days in (0, 826):
        with pytest.raises(InputError, match=f"days={days} must be between 1 and 825"):
            make_server_certificate(longer, tmp_path / "no", ["localhost"], days=days)
    assert 1824.9 < days_left(make_authority(tmp_path / "default").certificate) < 1825.1


@pytest.mark.parametrize("wrong", ["", "https://fl.example", "fl.example:8443", "10.0.0", "a b", "-x.example"])
def test_wrong_names(authority: Authority, tmp_path: Path, wrong: str) -> None:
    with pytest.raises(InputError, match="neither a host name nor an IP address"):
        make_server_certificate(authority, tmp_path, ["localhost", wrong])
    assert list(tmp_path.iterdir()) == []


def test_no_names(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="names is empty"):
        make_server_certificate(authority, tmp_path, [])


def test_silo_key_in_the_formats_of_flower(tmp_path: Path) -> None:
    made = make_silo_key(tmp_path, "north")
    assert made == SiloKey(tmp_path / "north.key", tmp_path / "north.pub", tmp_path / "north.tls.key")
    private = load_ssh_private_key(made.private.read_bytes(), password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    assert load_ssh_public_key(made.public.read_bytes()) == private.public_key()
    assert made.public.read_text().startswith("ecdsa-sha2-nistp384 ")
    assert made.public.read_text().endswith(" north\n")
    with pytest.raises(InputError, match=r"name='\.\./x' must be"):
        make_silo_key(tmp_path, "../x")


def test_a_silo_certificate_is_made_from_the_public_half(authority: Authority, tmp_path: Path) -> None:
    key = make_silo_key(tmp_path, "north")
    made = make_silo_certificate(authority, tmp_path, "north", key.public)
    found = read(made)
    assert found.public_key() == load_ssh_public_key(key.public.read_bytes())
    assert load_pem_private_key(key.tls.read_bytes(), None).public_key() == found.public_key()
    assert [name.value for name in found.subject] == ["north"]
    purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]  # a silo cannot pose as the server
    assert is_signed_by(made, authority.certificate)
    assert not is_signed_by(made, make_authority(tmp_path / "other").certificate)
    (tmp_path / "rsa.pub").write_bytes(
        rsa.generate_private_key(65537, 2048).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    )
    for wrong, why in (("rsa.pub", "not an ECDSA key on P-384"), ("north.key", "not a readable public key")):
        with pytest.raises(InputError, match=why):
            make_silo_certificate(authority, tmp_path, "south", tmp_path / wrong)


def test_the_revocation_list_names_what_ended_early(authority: Authority, tmp_path: Path) -> None:
    issuer = Issuer(authority.certificate.parent)
    made = {}
    for name in ("north", "north-1"):
        key = make_silo_key(tmp_path, name)
        made[name] = issuer.issue(tmp_path, name, key.public)
    issuer.publish(tmp_path)
    assert revoked_serials(tmp_path / "clients.crl") == {}
    assert len(issuer.current("north")) == 1  # not that of north-1
    issuer.revoke(issuer.current("north"))
    issuer.publish(tmp_path)
    assert set(revoked_serials(tmp_path / "clients.crl")) == {certificate_serial(made["north"])}
    assert (issuer.current("north"), len(issuer.current("north-1"))) == ([], 1)
    found = x509.load_pem_x509_crl((tmp_path / "clients.crl").read_bytes())
    signer = read(authority.certificate).public_key()
    assert isinstance(signer, ec.EllipticCurvePublicKey)
    assert found.is_signature_valid(signer)
    assert found.next_update_utc == certificate_end(authority.certificate)  # an ended list would refuse everybody


def test_private_keys_are_their_owners_only(tmp_path: Path) -> None:
    before = os.umask(0)  # the worst one
    try:
        authority = make_authority(tmp_path / "new")
        server = make_server_certificate(authority, tmp_path / "new", ["localhost"])
        silo = make_silo_key(tmp_path / "new", "a")
    finally:
        os.umask(before)
    assert {mode(path) for path in (authority.key, server.key, silo.private, silo.tls)} == {0o600}
    assert {mode(path) for path in (authority.certificate, server.certificate, silo.public)} == {0o644}
    assert mode(tmp_path / "new") == 0o700


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    make_server_certificate(authority, tmp_path, ["localhost"])
    make_silo_key(tmp_path, "a")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"ca\.key exists already"):
        make_authority(tmp_path)
    with pytest.raises(InputError, match=r"server\.key exists already"):
        make_server_certificate(authority, tmp_path, ["localhost"])
    with pytest.raises(InputError, match=r"a\.key exists already"):
        make_silo_key(tmp_path, "a")
    (tmp_path / "b.pub").symlink_to("/nonexistent/elsewhere")
    with pytest.raises(InputError, match=r"b\.pub exists already"):
        make_silo_key(tmp_path, "b")
    assert not (tmp_path / "b.key").exists()
    assert {path: path.read_bytes() for path in before} == before


def test_a_key_of_another_authority(authority: Authority, tmp_path: Path) -> None:
    other = make_authority(tmp_path)
    with pytest.raises(InputError, match="is not the key of"):
        make_server_certificate(Authority(authority.certificate, other.key), tmp_path, ["localhost"])
    with pytest.raises(InputError, match="not a readable certificate"):
        make_server_certificate(Authority(other.key, other.key), tmp_path, ["localhost"])
    with pytest.raises(InputError, match="not a readable private key"):
        make_server_certificate(Authority(other.certificate, other.certificate), tmp_path, ["localhost"])
