"""A steward's signature (Ed25519): the only way in which a budget can grow."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.store.record_keys import write_durably

_PREFIX = "rpdp-steward-ed25519 "


class StewardPublicKey:
    """What a ledger keeps of its steward."""

    def __init__(self, raw: bytes) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(raw)
        self.raw = raw

    @classmethod
    def read(cls, path: Path) -> StewardPublicKey:
        """From a file that `rpdp ledger keygen` wrote."""
        try:
            text = path.read_text("ascii")
            if not text.startswith(_PREFIX):
                raise ValueError("it has another beginning")
            return cls(bytes.fromhex(text.removeprefix(_PREFIX).strip()))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} is not the public key of a steward: {error}") from None

    def write(self, path: Path) -> None:
        """To a file."""
        write_durably(path, f"{_PREFIX}{self.raw.hex()}\n".encode(), mode=0o644)

    def is_signature(self, signature: bytes, message: bytes) -> bool:
        """Whether the steward has signed this message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class StewardKey:
    """What a steward keeps: the private key, encrypted if a passphrase is given."""

    def __init__(self, key: Ed25519PrivateKey | None = None) -> None:
        self._key = Ed25519PrivateKey.generate() if key is None else key

    @property
    def public(self) -> StewardPublicKey:
        """What the ledger is created with."""
        return StewardPublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""
        return self._key.sign(message)

    def write(self, path: Path, passphrase: str | None = None) -> None:
        """To a file that only its owner can read."""
        content = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption(),
        )
        write_durably(path, content, mode=0o600)

    @classmethod
    def read(cls, path: Path, passphrase: str | None = None) -> StewardKey:
        """From a file; refused if others may read it."""
        try:
            if path.stat().st_mode & 0o077:
                raise PrivacyRefusal(f"{path} can be read by others: chmod 600, or make a new key")
            key = serialization.load_pem_private_key(path.read_bytes(), passphrase.encode() if passphrase else None)
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path} is not a steward's key, or needs its passphrase: {error}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(f"{path} is a key of another kind than Ed25519")
        return cls(key)
