"""The coordinator's authority directory: which certificates silos were given, and which of them ended early.

    authority/ca.crt, ca.key                    signs
    authority/issued/NAME-SERIAL.crt            a copy of every certificate of a silo; no secret
    authority/clients.crl                       certificates that ended early; the server's proxy needs a copy

The directories of silos are handed over and deleted at the coordinator's, so what must be revoked one day is kept here.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.deployment.files.certificates import (
    REVOCATION_LIST,
    Authority,
    certificate_serial,
    make_silo_certificate,
    revoked_serials,
    write_revocation_list,
)

if TYPE_CHECKING:
    from collections.abc import Collection


class Issuer:
    """Issues and revokes the certificates of silos.

    Args:
        directory: The authority directory.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.authority = Authority(self.directory / "ca.crt", self.directory / "ca.key")
        self.revocations = self.directory / REVOCATION_LIST

    def issue(self, directory: str | Path, name: str, public_key: str | Path) -> Path:
        """Write `NAME.crt` for a silo's key, and keep a copy."""
        made = make_silo_certificate(self.authority, directory, name, public_key)
        kept = self.directory / "issued"
        kept.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(made, kept / f"{name}-{certificate_serial(made):x}.crt")
        return made

    def current(self, name: str) -> list[Path]:
        """The copies of a silo's certificates that were not revoked."""
        gone = revoked_serials(self.revocations)
        found = sorted((self.directory / "issued").glob(f"{name}-*.crt"))
        return [one for one in found if _is_of(one, name) and certificate_serial(one) not in gone]

    def revoke(self, certificates: Collection[Path]) -> None:
        """End these certificates now."""
        now = datetime.now(UTC)
        new = {certificate_serial(one): now for one in certificates}
        write_revocation_list(self.authority, self.revocations, {**new, **revoked_serials(self.revocations)})

    def publish(self, server: str | Path) -> Path:
        """Copy the revocation list to the server's directory; an empty one is made if there is none."""
        if not self.revocations.exists():
            self.revoke(())
        return Path(shutil.copy(self.revocations, Path(server) / REVOCATION_LIST))


def _is_of(certificate: Path, name: str) -> bool:
    """Whether the file is of this silo: "north-1f.crt" is not one of "north-1"."""
    return certificate.stem.rpartition("-")[0] == name
