"""Certificates and keys of a federation: they authenticate the SuperLink and the silos.

| what | file | ends after | who holds it |
|---|---|---|---|
| authority: signs certificates | `ca.crt`, `ca.key` | 5 years | `ca.crt`: everybody; `ca.key`: the operator, offline |
| server certificate: TLS of the server | `server.crt`, `server.key` | 397 days | the server's machine |
| loopback certificate: TLS from the proxy to the SuperLink | `loopback/` | 10 years | the server's machine |
| silo key: its node proves who it is | `NAME.key`, `NAME.pub` | when replaced | the silo; the server has `NAME.pub` |
| the same key for TLS | `NAME.tls.key` | when replaced | the silo |
| silo certificate for that key | `NAME.crt` | 397 days | the silo |
| revocation list: certificates that ended early | `clients.crl` | with the authority | the server's proxy |

A silo may make its own key: only the public half has to travel, since the certificate is made from it. All keys are
ECDSA on P-384. Private keys are created readable by their owner only, and no file is ever overwritten.
"""

from __future__ import annotations

import ipaddress
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rpdp.checks import require_count
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_DAYS = 397
"""About a year, the limit that browsers set for public certificates."""
MOST_DAYS = 825
AUTHORITY_DAYS = 1825
"""Five years. Replacing an authority touches every silo, so it lives longer than what it signs."""
MOST_AUTHORITY_DAYS = 3650
REVOCATION_LIST = "clients.crl"
_BACKDATED = timedelta(minutes=5)  # clocks of two machines differ
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_SILO_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Authority:
    """The federation's own certificate authority."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class ServerCertificate:
    """Certificate and key of a SuperLink, and the authority's certificate to check them with."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def of(cls, directory: str | Path) -> ServerCertificate:
        """The files of the server in a directory: `ca.crt`, `server.crt`, `server.key`."""
        home = Path(directory)
        return cls(home / "ca.crt", home / "server.crt", home / "server.key")

    def names(self) -> tuple[str, ...]:
        """The host names and addresses that the certificate is valid for."""
        found = (
            _read_certificate(self.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        )
        addresses = found.get_values_for_type(x509.IPAddress)
        return (*found.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))


@dataclass(frozen=True)
class SiloKey:
    """The key pair of a silo's node: `private` stays at the silo, `public` is registered at the SuperLink."""

    private: Path
    public: Path
    tls: Path


def make_authority(directory: str | Path, *, name: str = "rpdp federation", days: int = AUTHORITY_DAYS) -> Authority:
    """A new authority in `ca.crt` and `ca.key`, valid for `days`; it signs certificates of the server and of silos."""
    directory = Path(directory)
    made = Authority(directory / "ca.crt", directory / "ca.key")
    key = _new_key()
    subject = _subject(name)
    builder = (
        _signed(subject, subject, key.public_key(), _from_now(days, MOST_AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA384())
    _write_new({made.key: _pem(key)}, {made.certificate: certificate.public_bytes(serialization.Encoding.PEM)})
    return made


def make_server_certificate(
    authority: Authority, directory: str | Path, names: Iterable[str], *, days: int = DEFAULT_DAYS
) -> ServerCertificate:
    """A certificate for a SuperLink at these host names and IP addresses.

    It expires with its authority's certificate at the latest. A SuperLink that listens on all interfaces also connects
    to itself as 127.0.0.1: include that address.
    """
    directory = Path(directory)
    made = ServerCertificate(authority.certificate, directory / "server.crt", directory / "server.key")
    alternatives = [_alternative(name) for name in dict.fromkeys(names)]
    if not alternatives:
        raise InputError("names is empty: a server certificate needs at least one host name or IP address")
    key = _new_key()
    certificate = _issued(
        authority,
        "rpdp SuperLink",
        key.public_key(),
        days,
        ExtendedKeyUsageOID.SERVER_AUTH,
        x509.SubjectAlternativeName(alternatives),
    )
    _write_new({made.key: _pem(key)}, {made.certificate: certificate})
    return made


def make_loopback_certificate(directory: str | Path) -> ServerCertificate:
    """A certificate for a SuperLink that only its own machine reaches, as 127.0.0.1.

    It is apart from the federation's certificates, so renewing those never needs a new SuperLink, which would end the
    runs in progress. Its authority signs this one certificate; that authority's key is not kept.
    """
    directory = Path(directory)
    with TemporaryDirectory() as apart:
        made = make_authority(apart, name="rpdp loopback", days=MOST_AUTHORITY_DAYS)
        names = x509.SubjectAlternativeName([_alternative(name) for name in ("127.0.0.1", "localhost")])
        key, days = _new_key(), MOST_AUTHORITY_DAYS
        certificate = _issued(
            made, "rpdp SuperLink", key.public_key(), days, ExtendedKeyUsageOID.SERVER_AUTH, names, most=days
        )
        files = {directory / "ca.crt": made.certificate.read_bytes(), directory / "server.crt": certificate}
        _write_new({directory / "server.key": _pem(key)}, files)
    return ServerCertificate.of(directory)


def make_silo_certificate(
    authority: Authority, directory: str | Path, name: str, public_key: str | Path, *, days: int = DEFAULT_DAYS
) -> Path:
    """A certificate `NAME.crt` for the key of a silo, with which its node proves who it is in TLS.

    It is made from the public half, so a silo's private key never has to travel. It cannot be used as a server's.
    """
    made = Path(directory) / f"{_silo_name(name)}.crt"
    key = _read_public_key(Path(public_key))
    _write_new({}, {made: _issued(authority, name, key, days, ExtendedKeyUsageOID.CLIENT_AUTH)})
    return made


def write_revocation_list(authority: Authority, path: str | Path, revoked: Mapping[int, datetime]) -> None:
    """Write the list of certificates that ended early, by serial number. It replaces an older list in one step.

    It is valid as long as the authority: a proxy refuses every silo when its list has ended.
    """
    issuer, signer = _read_certificate(authority.certificate), _signing_key(authority)
    builder = x509.CertificateRevocationListBuilder(
        issuer_name=issuer.subject, last_update=datetime.now(UTC) - _BACKDATED, next_update=issuer.not_valid_after_utc
    ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    for serial, when in sorted(revoked.items()):
        builder = builder.add_revoked_certificate(x509.RevokedCertificateBuilder(serial, when).build())
    replace_file(path, builder.sign(signer, hashes.SHA384()).public_bytes(serialization.Encoding.PEM), 0o644)


def revoked_serials(path: str | Path) -> dict[int, datetime]:
    """The serial numbers on a revocation list, and since when; none if there is no list yet."""
    path = Path(path)
    if not path.exists():
        return {}
    try:
        found = x509.load_pem_x509_crl(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable revocation list ({error})") from error
    return {one.serial_number: one.revocation_date_utc for one in found}


def certificate_end(path: str | Path) -> datetime:
    """When a certificate ends."""
    return _read_certificate(Path(path)).not_valid_after_utc


def certificate_serial(path: str | Path) -> int:
    """The serial number of a certificate, by which it can be revoked."""
    return _read_certificate(Path(path)).serial_number


def is_signed_by(certificate: str | Path, authority: str | Path) -> bool:
    """Whether a certificate was signed by this authority."""
    try:
        _read_certificate(Path(certificate)).verify_directly_issued_by(_read_certificate(Path(authority)))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def make_silo_key(directory: str | Path, name: str) -> SiloKey:
    """A key pair for the node of this silo, in OpenSSH format, which Flower reads."""
    directory = Path(directory)
    _silo_name(name)
    made = SiloKey(directory / f"{name}.key", directory / f"{name}.pub", directory / f"{name}.tls.key")
    key = _new_key()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write_new({made.private: private, made.tls: _pem(key)}, {made.public: public + f" {name}\n".encode()})
    return made


def replace_file(path: str | Path, content: bytes, mode: int) -> None:
    """Write a file in one step: a reader finds the old content or the new, never a part."""
    path = Path(path)
    part = path.with_name(f".{path.name}.new")
    part.unlink(missing_ok=True)  # of a call that was interrupted
    _write(part, content, mode)
    part.replace(path)


def _silo_name(name: str) -> str:
    if not _SILO_NAME.fullmatch(name):
        raise InputError(f"name={name!r} must be up to 64 letters, digits, dots, dashes or underscores")
    return name


def _issued(
    authority: Authority,
    name: str,
    key: ec.EllipticCurvePublicKey,
    days: int,
    purpose: x509.ObjectIdentifier,
    *extensions: x509.ExtensionType,
    most: int = MOST_DAYS,
) -> bytes:
    """A certificate that the authority signs for one purpose. It ends with the authority's at the latest."""
    issuer, signer = _read_certificate(authority.certificate), _signing_key(authority)
    until = min(_from_now(days, most), issuer.not_valid_after_utc)
    builder = (
        _signed(_subject(name), issuer.subject, key, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    for one in extensions:
        builder = builder.add_extension(one, critical=False)
    return builder.sign(signer, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)


def _signing_key(authority: Authority) -> ec.EllipticCurvePrivateKey:
    signer = _read_key(authority.key)
    if signer.public_key() != _read_certificate(authority.certificate).public_key():
        raise InputError(f"{authority.key} is not the key of {authority.certificate}")
    return signer


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _from_now(days: int, most: int = MOST_DAYS) -> datetime:
    return datetime.now(UTC) + timedelta(days=require_count("days", days, most=most))


def _signed(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=datetime.now(UTC) - _BACKDATED,
        not_valid_after=until,
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    if not _HOST_NAME.fullmatch(name) or name.rpartition(".")[2].isdigit():  # the latter is a mistyped address
        raise InputError(f"name {name!r} is neither a host name nor an IP address (no port, no https://)")
    return x509.DNSName(name)


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable certificate ({error})") from error


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not a readable private key ({error})") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: not an elliptic-curve key")
    return key


def _read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path}: not a readable public key ({error})") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise InputError(f"{path}: not an ECDSA key on P-384; make one with `ssh-keygen -t ecdsa -b 384`")
    return key


def _write_new(secret: Mapping[Path, bytes], public: Mapping[Path, bytes]) -> None:
    for path in (*secret, *public):
        if os.path.lexists(path):
            raise InputError(f"{path} exists already and is not overwritten; use another directory or move the file")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, content in secret.items():
        _write(path, content, 0o600)
    for path, content in public.items():
        _write(path, content, 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask
        file.write(content)
