"""How far runs are, in a file and as metrics."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from rpdp.deployment.metrics_server import MetricsServer
from rpdp.deployment.run_progress import RunProgress, all_progress, server_metrics
from rpdp.errors import InputError
from rpdp.federation import RoundLog
from rpdp.federation.run_stops import LOCK, PAUSE, StoppedRunError, ask_to_stop
from tests.deployment.trials import make_layout, study_text
from tests.federation.world import make_public

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Command

PUBLIC = make_public(4, 2)


def a_run(folder: Path, *, rounds: int = 2) -> Path:
    folder.mkdir(parents=True)
    with RunProgress.of(folder, PUBLIC) as progress:
        for number in range(1, rounds + 1):
            progress.note(RoundLog(number, ("a",), {"b": "refused: values"}, None, 1.5), ["a", "b"])
    return folder


def test_progress_is_kept_and_goes_on(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "one")
    known = RunProgress.read(folder)
    assert (known.state, known.round, known.rounds, known.seconds) == ("finished", 2, 4, 3.0)
    with suppress(StoppedRunError), RunProgress.of(folder, PUBLIC) as progress:
        assert progress.joined == {"a": 2}
        raise StoppedRunError
    assert RunProgress.read(folder).state == "stopped"
    with suppress(KeyError), RunProgress.of(folder, make_public(5, 2)) as other:  # another plan begins anew
        assert other.joined == {}
        raise KeyError
    assert RunProgress.read(folder).state == "failed"
    (folder / "progress.json").write_text("[]")
    with pytest.raises(InputError, match="cannot be read"):
        RunProgress.read(folder)


def test_a_run_whose_process_was_killed_is_interrupted(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "one")
    facts = json.loads((folder / "progress.json").read_text())
    (folder / "progress.json").write_text(json.dumps({**facts, "state": "running"}))
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert all_progress(tmp_path)["one"].state == "running"
    os.close(lock)
    assert all_progress(tmp_path)["one"].state == "interrupted"


def test_the_metrics_of_a_server(tmp_path: Path) -> None:
    assert server_metrics(tmp_path).count("\n") == 3  # its release alone
    a_run(tmp_path / "study-1")
    lines = server_metrics(tmp_path).splitlines()
    promised = PUBLIC.curve.epsilon([1.0])[0]
    for line in (
        'rpdp_run_state{run="study-1",state="finished"} 1',
        'rpdp_run_state{run="study-1",state="running"} 0',
        'rpdp_run_round{run="study-1"} 2',
        'rpdp_run_rounds_planned{run="study-1"} 4',
        'rpdp_run_silos_present{run="study-1"} 2',
        'rpdp_run_updates_total{run="study-1",silo="a"} 2',
        'rpdp_run_left_out_total{run="study-1",silo="b"} 2',
        'rpdp_run_round_seconds_total{run="study-1"} 3',
        'rpdp_run_last_round_seconds{run="study-1"} 1.5',
        f'rpdp_run_promised_epsilon{{run="study-1"}} {float(promised)!r}',
        f'rpdp_run_delta{{run="study-1"}} {PUBLIC.delta!r}',
    ):
        assert line in lines, line


def test_the_page_is_on_loopback_and_shows_nothing_else(tmp_path: Path) -> None:
    a_run(tmp_path / "study-1")
    server = MetricsServer(lambda: server_metrics(tmp_path), 0)
    assert server.address.startswith("http://127.0.0.1:")
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        with urllib.request.urlopen(server.address, timeout=20) as page:  # noqa: S310
            assert page.read().decode() == server_metrics(tmp_path)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(server.address.replace("metrics", "runs"), timeout=20)  # noqa: S310
    finally:
        server.stop()
        thread.join()


def test_the_commands(tmp_path: Path, rpdp: Command) -> None:
    layout = make_layout(tmp_path, study_text(), ["silo-00"])
    assert "No run has been submitted yet" in rpdp("deploy", "runs", str(layout.directory)).out
    home = layout.server / "runs"
    assert rpdp("deploy", "pause", str(layout.directory), "--run-id", "one").code == 2
    a_run(home / "one")
    assert "paused after the round in progress" in rpdp("deploy", "pause", str(layout.directory), "--run-id", "one").out
    listed = rpdp("deploy", "runs", str(layout.directory), "--json").json
    assert listed["runs"]["one"]["asked"] == "pause"
    assert "paused" in rpdp("deploy", "runs", str(layout.directory)).out
    assert 'rpdp_run_round{run="one"} 2' in rpdp("deploy", "metrics", str(layout.directory)).out
    (home / "one" / "result.json").touch()
    assert "is finished" in rpdp("deploy", "give-up", str(layout.directory), "--run-id", "one").err
    ask_to_stop(home / "one", PAUSE)


def test_another_study_for_the_same_silos(tmp_path: Path, rpdp: Command) -> None:
    layout = make_layout(tmp_path, study_text(), ["silo-00", "silo-01"])
    second = tmp_path / "second.toml"
    second.write_text(study_text(rounds=5))
    added = rpdp("deploy", "study", str(layout.directory), str(second), "--name", "second", "--json")
    assert added.code == 0, added.err
    from rpdp.deployment.files.study_files import PLAN, study_directory
    from rpdp.planning import PublicPlan

    found = PublicPlan.read(study_directory(layout.server, "second") / PLAN)
    assert (found.fingerprint, found.schedule.rounds) == (added.json["plan"], 5)
    assert study_directory(layout.server, "") == layout.server
    with pytest.raises(InputError, match=r"study='third' was not added.*\(added: second\)"):
        study_directory(layout.server, "third")
    again = rpdp("deploy", "study", str(layout.directory), str(second), "--name", "second")
    assert (again.code, "exists already" in again.err) == (2, True)
