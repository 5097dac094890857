"""A power cut at any moment, with any part of the unsynced writes lost or torn: no committed charge is lost."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.errors import RpdpError
from rpdp.ledger import Ledger
from rpdp.ledger.inspection import verification
from tests.ledger import small
from tests.ledger.account_suite import never
from tests.ledger.recorded import Recording, RecordingVFS

if TYPE_CHECKING:
    from collections.abc import Iterator

Told = tuple[dict[tuple[str, int], bool], set[tuple[str, int]], bytes]
"""What the silo was told before the cut: charges with their coins, stored updates; and the note of the newest state."""

_BIG = 300_000
"""An update large enough that the log is brought into the file now and then."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("template")
    small.make(directory, small.budgets(4)).close()
    return directory


@pytest.fixture(autouse=True)
def _without_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "reprice", lambda ledger, progress: iter(()))


def recorded(template: Path, directory: Path, seed: int) -> Recording:
    """A session of a silo: two runs with charges, updates, withdrawals, the updates of the first removed at its end;
    every answer is marked when it is given."""
    shutil.copytree(template, directory)
    vfs = RecordingVFS(f"recorded-{seed}", directory)
    chance = random.Random(seed)  # noqa: S311
    table = small.budgets(4)
    charges: dict[tuple[str, int], bool] = {}
    stored: set[tuple[str, int]] = set()

    def told() -> None:
        note = (directory / "ledger.db.head").read_bytes()
        vfs.recording.mark((dict(charges), set(stored), note))

    ledger = Ledger.open(directory / "ledger.db", vfs=vfs.name)
    for run in ("one", "two"):
        ledger.reserve(run, small.by_hand(small.public(8), table.ids, 0.1), None)
        for number in range(1, 9):
            charge = ledger.charge(run, number, lambda: chance.random() < 0.7)
            charges[run, number] = charge.joined
            told()
            if charge.joined:
                ledger.store(run, number, chance.randbytes(_BIG if chance.random() < 0.4 else 500))
                stored.add((run, number))
                told()
        ledger.withdraw(["r1" if run == "one" else "r2"])
        if run == "one":
            stored.clear()
            told()
            ledger.prune()
    ledger.close()
    told()
    vfs.unregister()
    return vfs.recording


def images(
    recording: Recording, count: int, seed: int, *, honours_sync: bool = True
) -> Iterator[tuple[dict[str, bytes], Told]]:
    chance = random.Random(seed)  # noqa: S311
    for _ in range(count):
        end = chance.randrange(1, len(recording.operations) + 1)
        files, told = recording.image(end, chance, honours_sync=honours_sync)
        yield files, told or ({}, set(), b"")


def lost(template: Path, directory: Path, files: dict[str, bytes], told: Told) -> list[str]:
    """What is missing after the restart from an image."""
    charges, stored, note = told
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(template, directory)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    if note:
        (directory / "ledger.db.head").write_bytes(note)
    try:
        with Ledger.open(directory / "ledger.db") as ledger:
            status = {run.run: run for run in ledger.status().runs}
            found = [f"{key} is not charged" for key in charges if status[key[0]].announced < key[1]]
            found += [
                f"{key} has another coin"
                for key, joined in charges.items()
                if ledger.charge(*key, never).joined != joined
            ]
            found += [f"{key} has no update" for key in stored if ledger.stored(*key) is None]
            found += [f"{finding.check}: {finding.problem}" for finding in ledger.verify().findings]
    except (RpdpError, KeyError) as error:
        found = [f"{type(error).__name__}: {error}"]
    return found


def check(template: Path, directory: Path, sessions: int, images_each: int) -> int:
    tried = 0
    for seed in range(sessions):
        recording = recorded(template, directory / f"session-{seed}", seed)
        assert sum(operation.kind == "sync" for operation in recording.operations) > 30
        for files, told in images(recording, images_each, seed):
            assert lost(template, directory / "image", files, told) == []
            tried += 1
        shutil.rmtree(directory / f"session-{seed}")
    return tried


def test_no_committed_charge_is_lost(template: Path, memory: Path) -> None:
    assert check(template, memory, sessions=2, images_each=60) == 120


def test_a_disk_that_ignores_syncs_is_caught(template: Path, memory: Path) -> None:
    """The control: the same images, with syncs that do nothing, lose charges."""
    recording = recorded(template, memory / "session", 7)
    damaged = [
        lost(template, memory / "image", files, told) for files, told in images(recording, 40, 7, honours_sync=False)
    ]
    assert sum(bool(found) for found in damaged) > 20


@pytest.mark.slow
def test_ten_thousand_images(template: Path, memory: Path) -> None:
    assert check(template, memory, sessions=25, images_each=420) >= 10_000
