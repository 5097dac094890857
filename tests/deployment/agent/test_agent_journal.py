"""What an agent writes down for those who watch it: the metrics say what the server knows, and say it at its time."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp.deployment.agent import agent_journal
from rpdp.deployment.agent.agent import Agent
from rpdp.deployment.agent.agent_journal import AgentJournal
from rpdp.deployment.agent.release_timing import Timing
from rpdp.errors import InputError
from rpdp.federation import Silo
from rpdp.federation import silo as silo_module
from rpdp.federation.frames import Frame
from rpdp.metrics_text import MetricFamily
from rpdp.version import __version__
from tests.deployment.agent.scene import Making, admission, announcement, in_memory, opened, public_plan, reason, told
from tests.federation.world import make_records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PUBLIC = public_plan(rounds=4, local_steps=1, participation=0.7)
RELEASE_AFTER = 10.0


@pytest.fixture(autouse=True)
def _untabulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans here have chosen probabilities: their price tables would take seconds, and nobody looks at them."""
    monkeypatch.setattr(silo_module, "tabulate", lambda *_: None)


HELLO = Frame({"kind": "hello", "version": "9.0", "clock": 1000})


class Clock:
    """Moves when somebody sleeps, or when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Watched:
    """A seeded agent with both files, and everything that the metrics file ever held."""

    def __init__(self, folder: Path, making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.status, self.metrics = folder / "a.db.agent", folder / "rpdp.prom"
        self.journal = AgentJournal("a", status=self.status, metrics=self.metrics, clock=self.clock)
        journal = self.journal

        class Noting(Agent):
            def __init__(self, *args: Any, **settings: Any) -> None:
                super().__init__(*args, **settings, journal=journal)

        self.written: list[tuple[float, str, str]] = []
        real = agent_journal._replace

        def noting(path: Path, text: str, mode: int) -> None:
            real(path, text, mode)
            self.written.append((self.clock.now, path.name, text))

        monkeypatch.setattr(agent_journal, "_replace", noting)
        timing = Timing(RELEASE_AFTER, clock=self.clock, sleep=self.clock.sleep)
        self.agent = in_memory(replace(making, timing=timing, kind=Noting))
        self.journal.begin()

    @property
    def seen(self) -> list[tuple[float, str]]:
        """What everybody on the machine could read, and since when."""
        return [(when, text) for when, name, text in self.written if name == self.metrics.name]

    def converse(self) -> None:
        """A run with an admission too many, and a round that is asked twice."""
        for request in (
            HELLO,
            admission(PUBLIC),
            *(announcement(PUBLIC, number, 0.1 * number) for number in (1, 2, 2, 3, 4)),
            announcement(PUBLIC, 9),
            admission(public_plan(rounds=50), "other"),
            announcement(PUBLIC, 1, run="unknown"),
        ):
            told(self.agent, request)


def making(**changes: Any) -> Making:
    return replace(Making(PUBLIC, seed=3, q=0.3), **changes)


def watched(folder: Path, made: Making, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    folder.mkdir()
    found = Watched(folder, made, monkeypatch)
    found.converse()
    found.agent.close()
    return found.seen


OTHERS: dict[str, Making] = {
    "one record more": making(records=make_records(31)),
    "other records": making(records=make_records(30, seed=99)),
    "much larger budgets": making(epsilon=(50.0,)),
    "everybody drawn": making(q=1.0),
}


@pytest.mark.parametrize("other", OTHERS)
def test_the_metrics_are_the_same_to_the_byte_with_another_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """All that the file ever held, and when."""
    one = watched(tmp_path / "one", making(), monkeypatch)
    assert one == watched(tmp_path / "other", OTHERS[other], monkeypatch)
    assert "rpdp_silo_updates_total" in one[-1][1]


@pytest.mark.parametrize("other", ["one record more"])
def test_control_a_metric_of_the_silo_itself_would_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """The negative control: the number of records among the metrics, and the same comparison fails."""
    found = []
    for name, made in (("one", making()), ("other", OTHERS[other])):
        with monkeypatch.context() as patched:
            families = agent_journal.PublicCounts.families
            size = len(made.held)

            def leaking(counts: Any, families: Callable[[Any], list[Any]] = families, size: int = size) -> list[Any]:
                more = MetricFamily("rpdp_silo_records", "Records.")
                more.add(size)
                return [*families(counts), more]

            patched.setattr(agent_journal.PublicCounts, "families", leaking)
            found.append(watched(tmp_path / name, made, patched))
    assert found[0] != found[1]


def test_files_change_at_public_times_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a round is trained: its traces appear when its answer leaves."""
    times = []
    for seconds in (0.0, 0.7 * RELEASE_AFTER):
        folder = tmp_path / str(seconds)
        folder.mkdir()
        with monkeypatch.context() as patched:
            found = Watched(folder, making(), patched)
            train = Silo.train

            def slow(silo: Silo, *args: Any, train: Any = train, taken: float = seconds, at: Any = found.clock) -> Any:
                at.now += taken
                return train(silo, *args)

            patched.setattr(Silo, "train", slow)
            found.converse()
            found.agent.close()
        times.append([(when, name) for when, name, _ in found.written])
    assert times[0] == times[1]
    assert {when % RELEASE_AFTER for when, _ in times[0]} == {0.0}


def test_the_counts_are_those_of_the_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Watched(tmp_path, making(), monkeypatch)
    found.converse()
    found.agent.close()
    lines = found.metrics.read_text().splitlines()
    updates = len(found.agent.silo.account.status().runs[0].released)
    assert f'rpdp_silo_updates_total{{run="run"}} {updates}' in lines
    assert 'rpdp_silo_round{run="run"} 4' in lines
    assert 'rpdp_silo_rounds_planned{run="run"} 4' in lines
    assert 'rpdp_silo_answers_total{answer="admitted"} 1' in lines
    assert 'rpdp_silo_answers_total{answer="refused"} 3' in lines
    assert 'rpdp_silo_refusals_total{reason="policy"} 1' in lines
    assert 'rpdp_silo_refusals_total{reason="round"} 1' in lines
    assert "rpdp_silo_server_clock_ahead_seconds 0" in lines
    assert any(line.startswith('rpdp_silo_info{protocol="rpdp-sa2",silo="a",version=') for line in lines)


def test_who_may_read_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Watched(tmp_path, making(), monkeypatch)
    found.converse()
    assert stat.S_IMODE(found.status.stat().st_mode) == 0o600
    assert stat.S_IMODE(found.metrics.stat().st_mode) == 0o644
    facts = json.loads(found.status.read_text())
    assert facts["server_version"] == "9.0"
    assert facts["problem"]["sentence"].startswith("a request was refused (run)")
    assert "a request was refused" not in found.metrics.read_text()
    found.agent.close()
    found.journal.end()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_refused_at_the_start_and_changes_no_answer_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        AgentJournal("a", metrics=tmp_path / "no" / "rpdp.prom").begin()
    found = Watched(tmp_path, making(), monkeypatch)
    assert told(found.agent, admission(PUBLIC)).kind == "admitted"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(agent_journal, "_replace", full)
        assert told(found.agent, announcement(PUBLIC, 1)).kind in ("update", "sat-out")
        assert told(found.agent, announcement(PUBLIC, 2)).kind in ("update", "sat-out")
    assert sum("cannot be written" in line for line in caplog.messages) == 1  # once, not with every answer
    found.agent.close()


# Words for people


def test_a_full_disk_is_one_public_word_and_a_sentence_for_the_steward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "ledger.db")

    with opened(tmp_path, Making(PUBLIC)) as agent:
        with monkeypatch.context() as broken:
            broken.setattr(agent.silo, "admit", full)
            assert reason(told(agent, admission(PUBLIC))) == "storage"
        (tmp_path / "a.db.inbox").rename(tmp_path / "elsewhere")
        assert reason(told(agent, admission(PUBLIC))) == "storage"
        (tmp_path / "elsewhere").rename(tmp_path / "a.db.inbox")
        assert told(agent, admission(PUBLIC)).kind == "admitted"
    assert "refused (storage): [Errno 28] No space left on device: 'ledger.db'" in caplog.messages
    assert any("is missing, so a withdrawal could not take effect" in line for line in caplog.messages)
    assert not any(record.exc_info for record in caplog.records)  # no traceback


def test_another_clock_and_another_release_are_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = Watched(tmp_path, making(), monkeypatch)
    for clock in (1000 + 3600, 1000 + 3601):
        told(found.agent, Frame({"kind": "hello", "version": "9.0", "clock": clock}))
    found.agent.close()
    assert [line for line in caplog.messages if "the server" in line] == [
        f"the server runs rpdp 9.0; here is rpdp {__version__}",
        "the clock of the server is 1.0 h ahead of the one here; set both by NTP (`timedatectl`): holds, keys and "
        "certificates go by the clock",
    ]
    assert np.isclose(json.loads(found.status.read_text())["server_ahead"], 3601)
