"""The node file: what `rpdp deploy init` writes can be read, and every key that is wrong is named with its value."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpdp.deployment.files.node_file import NodeFile, NodeSection
from rpdp.errors import InputError
from tests.deployment.trials import make_layout, study_text

TEXT = """
[node]
silo = "north"
socket = "/run/rpdp/agent.sock"
server = "https://fl.example.org:8443"
ca = "ca.crt"
key = "north.key"
"""


def read(path: Path, text: str) -> NodeFile:
    path.write_text(text)
    return NodeFile.read(path)


def test_init_writes_what_the_node_needs(tmp_path: Path) -> None:
    layout = make_layout(tmp_path, study_text(), ["silo-00"])
    found = layout.node_file("silo-00")
    assert found.node == NodeSection.proposed("silo-00", layout.address)
    assert found.node.server == f"https://127.0.0.1:{layout.port}"
    named = [found.node.ca, found.node.key, found.node.certificate, found.node.tls_key]
    assert all(name is not None and found.file(name).is_file() for name in named)
    silo = layout.silo_file("silo-00")
    assert found.file(found.node.socket) == silo.file(silo.silo.socket)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    found = read(tmp_path / "node.toml", TEXT)
    assert found.file(found.node.ca) == tmp_path / "ca.crt"
    assert found.file(found.node.socket) == Path("/run/rpdp/agent.sock")
    assert (found.node.certificate, found.node.tls_key) == (None, None)


@pytest.mark.parametrize("silo", ["north", 'n"o', "münchen"])
def test_what_is_written_is_read(tmp_path: Path, silo: str) -> None:
    section = NodeSection("north", f"/run/{silo}.sock", "https://[::1]:8443", "ca.crt", "k", "c", "t")
    assert read(tmp_path / "node.toml", section.text()).node == section


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('silo = "north"\n', "", "node.silo is missing: the silo's name"),
        ("https://", "http://", "node.server='http://fl.example.org:8443' must look like https://"),
        ("https://", "", "must look like https://fl.example.org:8443"),
        (":8443", "", "must look like https://"),
        (":8443", ":port", "must look like https://"),
        (":8443", ":8443/v1", "must look like https://"),
        ("fl.example", "user@fl.example", "must look like https://"),
        ('ca = "ca.crt"', "ca = 3", "node.ca=3 must be a text"),
        ("ca =", "root =", "node.root is not a setting"),
        ("[node]", "[nodes]", r"\[nodes\] is not a section of a node file; did you mean node"),
        ("[node]", "", "silo.* is not a section"),
        ('key = "north.key"', 'key = "north.key"\ncertificate = "north.crt"', "go together"),
        ("[node]", "[node", "not a TOML file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"node\.toml: .*{message}"):
        read(tmp_path / "node.toml", TEXT.replace(old, new))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.toml: cannot be read: No such file"):
        NodeFile.read(tmp_path / "absent.toml")
