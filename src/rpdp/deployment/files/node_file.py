"""The node file: what `rpdp silo node` needs to carry messages between the server and the silo's agent.

[node]                                   paths are relative to this file
silo = "north"
socket = "/run/rpdp/agent.sock"          the agent's
server = "https://fl.example.org:8443"
ca = "ca.crt"                            the authority that signed the server's certificate
key = "north.key"                        proves to the server who the silo is
certificate = "north.crt"                optional, with tls_key: the same key in TLS, for a server that asks for it
tls_key = "north.tls.key"

It names no record, no budget and no data: the node runs as a user who can read none of them.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rpdp.errors import InputError
from rpdp.setting_fields import nearest, plain_name, read_section, setting, text

NODE_FILE = "node.toml"
_SCHEME = "https"


def server_address(name: str, value: object) -> str:
    """Check the server's address: https, a host and a port, and nothing else."""
    try:
        found = urlsplit(text(name, value))
        complete = found.scheme == _SCHEME and bool(found.hostname) and found.port is not None
    except ValueError:  # a port that is no number
        complete = False
    if not complete or value not in (f"{_SCHEME}://{found.netloc}", f"{_SCHEME}://{found.netloc}/") or found.username:
        raise InputError(f"{name}={value!r} must look like https://fl.example.org:8443")
    return str(value).rstrip("/")


@dataclass(frozen=True)
class NodeSection:
    """`[node]`: where the agent and the server are, and the keys that prove who the silo is."""

    silo: str = setting(plain_name, meaning="the silo's name in the federation")
    socket: str = setting(text, meaning="the agent's socket, as in the silo file")
    server: str = setting(server_address, meaning="where the server is, such as https://fl.example.org:8443")
    ca: str = setting(text, meaning="the certificate of the authority that signed the server's")
    key: str = setting(text, meaning="the silo's key, which is registered at the server")
    certificate: str | None = setting(text, None)
    tls_key: str | None = setting(text, None)

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.tls_key is None):
            raise InputError("node.certificate and node.tls_key go together: give both, or neither")

    @classmethod
    def proposed(cls, silo: str, address: str) -> NodeSection:
        """The section for a silo whose files lie beside the node file, under the names that they were made with."""
        return cls(
            silo=silo,
            socket="agent.sock",
            server=f"{_SCHEME}://{address}",
            ca="ca.crt",
            key=f"{silo}.key",
            certificate=f"{silo}.crt",
            tls_key=f"{silo}.tls.key",
        )

    def text(self) -> str:
        """The section as it stands in a node file."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in given.items()]
        return "\n".join(["[node]", *lines, ""])


@dataclass(frozen=True)
class NodeFile:
    """A node file that was read and checked."""

    path: Path
    node: NodeSection

    @classmethod
    def read(cls, path: str | Path) -> NodeFile:
        """Read and check; every error names the file, the key and its value."""
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
            for name in values:
                if name != "node":
                    raise InputError(f"[{name}] is not a section of a node file{nearest(name, ['node'])}")
            if "node" not in values:
                raise InputError("the section [node] is missing")
            return cls(path, read_section(NodeSection, "node", values["node"]))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not a TOML file: {error}") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def file(self, name: str) -> Path:
        """The path of a file that it names."""
        return self.path.resolve().parent / name
