"""Flower's real processes over TLS: two silos are heard, a stranger and a foreign authority not; nothing is left."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.deployment.files.certificates import make_authority, make_server_certificate, make_silo_key
from rpdp.deployment.flower.flower_processes import OFFLINE_SECONDS, SuperLink, SuperNode
from rpdp.errors import RpdpError
from tests.deployment.flower.echo import write_echo_app

if TYPE_CHECKING:
    from rpdp.deployment.flower.control import Value


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def everyone(*running: SuperLink | SuperNode) -> set[int]:
    """Ids of these processes and of all that they started."""
    return {pid for each in running for pid in (each.process.pid, *each.process.descendants())}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's shell with a home, a setting for Flower and a secret, none of which Flower must touch or see."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "user" / "flower"))
    monkeypatch.setenv("OPERATOR_TOKEN", "secret")
    return tmp_path / "user"


def test_a_federation_over_tls(tmp_path: Path, shell: Path) -> None:
    authority, foreign = make_authority(tmp_path / "ca"), make_authority(tmp_path / "foreign")
    certificate = make_server_certificate(authority, tmp_path / "ca", ["127.0.0.1"])
    keys = {name: make_silo_key(tmp_path / "keys", name) for name in ("a", "b", "c", "stranger")}
    app = write_echo_app(tmp_path / "app")
    out = tmp_path / "with space" / "heard.json"
    out.parent.mkdir()

    with ExitStack() as stack:
        link = stack.enter_context(SuperLink(tmp_path / "server", certificate))
        ids = {name: link.control.register(keys[name].public, name) for name in ("a", "b", "c")}

        def node(name: str, ca: Path = authority.certificate) -> SuperNode:
            settings: dict[str, Value] = {"silo": name, "socket": f"/run/silo {name}.sock", "size": 3, "fast": True}
            return SuperNode(tmp_path / name, link.address, ca, keys[name].private, settings)

        nodes = {name: stack.enter_context(node(name)) for name in ("a", "b")}
        assert {name: each.node_id for name, each in nodes.items()} == {name: ids[name] for name in nodes}
        run = link.control.submit(app, {"out": str(out)})
        pids = everyone(link, *nodes.values())

        # Negative controls: the same start, with a key that nobody registered, and with an authority of somebody else.
        stranger, deceived = node("stranger"), node("c", foreign.certificate)
        with pytest.raises(RpdpError, match=rf"(?s){stranger.log}.*Failed to activate SuperNode"):
            stranger.start()
        with pytest.raises(RpdpError, match=r"(?s)ended with exit code 1 before connected.*CERTIFICATE_VERIFY_FAILED"):
            deceived.start()
        assert link.control.nodes() == {ids["a"]: "online", ids["b"]: "online", ids["c"]: "registered"}

        status = run.wait(timeout=180)
        assert (status.name, status.details) == ("completed", "")
        replies = json.loads(out.read_text())
        assert sorted((reply["round"], reply["name"]) for reply in replies) == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
        for reply in replies:
            assert reply["node"] == ids[reply["silo"]]
            assert (reply["name"], reply["socket"]) == (reply["silo"], f"/run/silo {reply['silo']}.sock")
            assert (reply["size"], reply["fast"]) == (3, True)
            assert "OPERATOR_TOKEN" not in reply["environment"]

        failed = link.control.submit(app, {"fail": 'no "luck"'}).wait(timeout=180)
        assert (failed.name, failed.details) == ("failed", 'ServerApp failed with exception: no "luck"')
        with pytest.raises(RpdpError, match="Invalid run configuration"):
            link.control.submit(app, {"unknown": 1})

        pids |= everyone(link, *nodes.values())
        assert len(pids) >= 6  # a SuperLink, two SuperNodes, a SuperExec of each
        assert all(alive(pid) for pid in everyone(link, *nodes.values()))
    assert [pid for pid in pids if alive(pid)] == []
    assert not shell.exists()


@pytest.mark.slow
def test_crashes(tmp_path: Path) -> None:
    """A killed SuperNode comes back under its number, a killed SuperLink with all that it knew; the next run works."""
    authority = make_authority(tmp_path / "ca")
    certificate = make_server_certificate(authority, tmp_path / "ca", ["127.0.0.1"])
    key = make_silo_key(tmp_path / "keys", "a")
    app, out = write_echo_app(tmp_path / "app"), tmp_path / "heard.json"
    settings: dict[str, Value] = {"out": str(out), "silos": 1, "rounds": 1}

    with SuperLink(tmp_path / "server", certificate) as link:
        number = link.control.register(key.public, "a")
        with SuperNode(tmp_path / "a", link.address, authority.certificate, key.private, {"silo": "a"}) as node:
            left = everyone(node)
            os.kill(node.process.pid, signal.SIGKILL)
            with pytest.raises(RpdpError, match="Failed to activate SuperNode"):
                node.start()  # the SuperLink takes the dead one for alive
            node.start(patience=2 * OFFLINE_SECONDS)
            assert node.node_id == number
            assert [pid for pid in left if alive(pid)] == []
            assert link.control.submit(app, settings).wait(timeout=60).name == "completed"

            before, left = everyone(node), everyone(link)
            os.kill(link.process.pid, signal.SIGKILL)
            link.start()
            assert [pid for pid in left if alive(pid)] == []
            out.unlink()
            assert link.control.submit(app, settings).wait(timeout=120).name == "completed"
            assert [reply["node"] for reply in json.loads(out.read_text())] == [number]
            assert everyone(node) >= before  # the SuperNode found the new SuperLink by itself
