"""A steward's keys (Ed25519). Only a steward's signature can raise a budget."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.private_files import write_durably

_PREFIX = "rpdp-steward-ed25519 "


class StewardPublicKey:
    """A steward's public key, which a ledger stores at creation."""

    def __init__(self, raw: bytes) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(raw)
        self.raw = raw

    @classmethod
    def read(cls, path: str | Path) -> StewardPublicKey:
        """Read a file written by `rpdp ledger keygen`."""
        try:
            text = Path(path).read_text("ascii")
            if not text.startswith(_PREFIX):
                raise ValueError(f"it does not start with {_PREFIX.strip()!r}")
            return cls(bytes.fromhex(text.removeprefix(_PREFIX).strip()))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} is not the public key of a steward: {error}") from None

    def write(self, path: str | Path) -> None:
        """Write the key to a file."""
        write_durably(Path(path), f"{_PREFIX}{self.raw.hex()}\n".encode(), mode=0o644)

    def is_signature(self, signature: bytes, message: bytes) -> bool:
        """Return whether the steward signed this message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class StewardKey:
    """A steward's private key; encrypted on disk if a passphrase is given."""

    def __init__(self, key: Ed25519PrivateKey | None = None) -> None:
        self._key = Ed25519PrivateKey.generate() if key is None else key

    @property
    def public(self) -> StewardPublicKey:
        """The public key, with which a ledger is created."""
        return StewardPublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self._key.sign(message)

    def write(self, path: str | Path, passphrase: str | None = None) -> None:
        """Write the key to a file that only its owner can read."""
        content = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption(),
        )
        write_durably(Path(path), content, mode=0o600)

    @classmethod
    def read(cls, path: str | Path, passphrase: str | None = None) -> StewardKey:
        """Read the key from a file; refused if other users may read it."""
        path = Path(path)
        try:
            if path.stat().st_mode & 0o077:
                raise PrivacyRefusal(f"{path} can be read by others; run chmod 600 on it, or make a new key")
            key = serialization.load_pem_private_key(path.read_bytes(), passphrase.encode() if passphrase else None)
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path} is not a steward's key, or needs its passphrase: {error}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(f"{path} is not an Ed25519 key; make one with `rpdp ledger keygen`")
        return cls(key)
