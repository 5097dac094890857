"""What release 0.1 has written opens, verifies and goes on: see README.md beside the archive.

Numbers are compared with those that release 0.1 itself read out of the same files (`expected.json` in the archive).
More may have been added since; nothing may be missing or different.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import shutil
import sys
import tarfile
import tomllib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import scipy.fft
import scipy.special
import torch
from safetensors import safe_open

import rpdp
from rpdp.audit import read_audit
from rpdp.cli.run import run
from rpdp.deployment.agent.opening import open_agent
from rpdp.deployment.files.layout import Layout
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.deployment.flower import server_run as server
from rpdp.federation.checkpoint import Checkpoint
from rpdp.federation.frames import Frame
from rpdp.ledger.inspection.export import _PERSONAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flwr.serverapp import Grid

    from rpdp.deployment.agent.agent import Agent

ARCHIVE = Path(__file__).with_name("release-0.1.tar.gz")
OWN_CODE = "study_of_release_0_1"
NORTH, SOUTH = "real/north/ledger.db", "real/south/ledger.db"
AUDITORS = "exports/for-the-auditor.db"
LEDGERS = [
    NORTH,
    SOUTH,
    AUDITORS,
    "federation/silos/silo-00/ledger.db",
    "federation/silos/silo-01/ledger.db",
    "seeded/silos/a/ledger.db",
    "seeded/silos/b/ledger.db",
]
PASSPHRASE = "the fixture's own"  # noqa: S105  # of a key that opens nothing but this fixture

WORDS = ("changes", "schedule")
"""Sentences, which may be put better; what they say is compared otherwise."""

ANEW = ("given_joined",)
"""Not kept but computed when it is asked for: as close as accountants on different machines are."""


@dataclass
class Release:
    """The files of release 0.1, unpacked, and somebody who types commands beside them."""

    home: Path
    expected: dict[str, Any]
    capsys: pytest.CaptureFixture[str]
    out: str = ""
    err: str = ""

    def types(self, *arguments: object) -> int:
        self.capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        self.out, self.err = self.capsys.readouterr()
        return code

    def json(self, *arguments: object) -> dict[str, Any]:
        assert self.types(*arguments, "--json") == 0, self.out
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    def upgrade(self, *ledgers: str) -> None:
        """Make these ledgers ready to be written, as a steward would."""
        for ledger in ledgers:
            assert self.json("ledger", "upgrade", ledger)["after"] > 1

    def accounts(self, ledger: str) -> dict[str, dict[str, float]]:
        """Every account of a ledger, by the hash of its record."""
        assert self.types("ledger", "export", ledger, "accounts.csv", "--force") == 0
        with Path("accounts.csv").open(newline="", encoding="utf-8") as file:
            return {row.pop("record_hash"): {name: float(row[name]) for name in row} for row in csv.DictReader(file)}

    def status(self, ledger: str) -> dict[str, Any]:
        """The runs of a ledger as far as they are, after checking all of it."""
        assert self.json("ledger", "verify", ledger)["good"]
        return statuses(self.json("ledger", "show", ledger))

    def status_then(self, ledger: str) -> dict[str, Any]:
        return statuses(self.expected["ledgers"][ledger]["show"])

    @property
    def repeats_bits(self) -> bool:
        """Whether this machine computes what the one on which the archive was made did, to the last bit."""
        return bool(arithmetic() == self.expected["made_with"]["arithmetic"])


STATUS = ("run", "plan", "rounds", "announced", "joined", "released")
"""What release 0.1 knew of a run. Whether it is held, and until when, came later."""


def statuses(shown: dict[str, Any]) -> dict[str, Any]:
    return {one["status"]["run"]: {name: one["status"][name] for name in STATUS} for one in shown["runs"]}


def unpacked(directory: Path, kept: Path = ARCHIVE) -> Path:
    with tarfile.open(kept) as archive:
        archive.extractall(directory, filter="tar")  # keeps the modes of directories, which `data` would not
    # A short name: sockets stand in it, and their paths are limited.
    return (directory / kept.name.removesuffix(".tar.gz")).rename(directory / "old")


def beside(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Release:
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, OWN_CODE, raising=False)
    return Release(home, json.loads((home / "expected.json").read_text(encoding="utf-8")), capsys)


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Release:
    """To go on with."""
    return beside(unpacked(tmp_path), monkeypatch, capsys)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def untouched(shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Release:
    """To look at: nothing in it is changed."""
    return beside(shared, monkeypatch, capsys)


def arithmetic() -> str:
    """A hash of how this machine rounds, whatever rpdp does: sums, products and functions as training has them."""
    digest = hashlib.sha256()
    for rows, columns, wide in ((20, 3, 4), (20, 4, 1), (94, 30, 1), (7, 30, 30)):
        left = (torch.arange(rows * columns) * 37 % 101).float().reshape(rows, columns) / 50 - 1
        right = (torch.arange(columns * wide) * 29 % 17).float().reshape(columns, wide) / 16 - 0.5
        product = left @ right
        parts = (product, product.tanh(), product.sigmoid(), torch.log1p(product.exp()), left.norm(dim=1), left.sum(0))
        for part in (*parts, left.double().t() @ product.double(), torch.einsum("nc,nw->cw", left, product)):
            digest.update(part.contiguous().numpy().tobytes())
    numbers = np.linspace(-8.0, 8.0, 1001)
    for array in (np.exp(numbers), np.log(numbers**2 + 0.1), scipy.special.log_ndtr(numbers), np.cumsum(numbers)):
        digest.update(array.tobytes())
    digest.update(scipy.fft.irfft(scipy.fft.rfft(np.exp(-(numbers**2))) ** 7).tobytes())
    return digest.hexdigest()


def assert_holds(found: Any, expected: Any, place: str = "") -> None:
    """Everything that was there is there and says the same; more may have been added."""
    if isinstance(expected, dict):
        assert isinstance(found, dict), place
        for name, value in expected.items():
            assert name in found, f"{place}/{name} is missing"
            if name in ANEW:
                assert found[name] == pytest.approx(value, rel=1e-3, abs=1e-9), f"{place}/{name}"
            elif name not in WORDS or isinstance(value, dict):
                assert_holds(found[name], value, f"{place}/{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for number, value in enumerate(expected):
            assert_holds(found[number], value, f"{place}/{number}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-12, abs=0.0), place
    else:
        assert found == expected, place


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rounds_of(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]


# Files


def test_the_archive_keeps_private_what_was(untouched: Release) -> None:
    """The code refuses keys and ledgers that others can get at; so this is about the archive as well."""
    assert untouched.expected["made_with"]["rpdp"] == "0.1.0"
    everything = list(untouched.home.rglob("*"))
    for path in [untouched.home, *everything]:
        mode = path.stat().st_mode & 0o777
        if path.is_dir():
            assert mode == 0o700, path
        elif path.suffix == ".key" or ".db" in path.name or path.suffix == ".action":
            assert mode == 0o600, path
    assert {path.name for path in everything} >= {"ledger.db-wal", "checkpoint.safetensors", "heads.json"}


def test_budget_files_are_read_with_the_same_numbers(untouched: Release) -> None:
    for path, numbers in untouched.expected["budgets"].items():
        assert_holds(untouched.json("budgets", "check", path), numbers, path)
    people = rpdp.BudgetTable.read("budgets/people.parquet")
    later = rpdp.BudgetTable.read("budgets/later.csv")
    assert later.ids.to_pylist()[:24] == people.ids.to_pylist()
    assert people.per_record(1e-3).epsilon[:3].tolist() == [1.0, 1.0, 1.0]  # one person's ε = 3 over three records


# Plans


@pytest.mark.parametrize("name", ["certified", "scf", "weighted"])
def test_plans_are_what_they_were(untouched: Release, name: str) -> None:
    expected = untouched.expected["plans"][f"plans/{name}"]
    public = rpdp.PublicPlan.read(f"plans/{name}/public-plan.json")
    silo = rpdp.SiloPlan.read(f"plans/{name}/silo-plan.parquet")
    assert (public.fingerprint, silo.public, silo.fingerprint) == (expected["public"], public, expected["silo"])
    assert public.noise_multiplier == expected["noise_multiplier"]
    assert silo.expected_batch == pytest.approx(expected["expected_batch"], rel=1e-12)
    rows = {record: row for row, record in enumerate(silo.ids.to_pylist())}
    columns = (silo.budget, silo.q, silo.cost, silo.active_rounds, silo.status)
    for record, numbers in expected["records"].items():
        assert [column[rows[record]] for column in columns] == numbers


@pytest.mark.parametrize(("name", "budgets"), [("certified", "made.csv"), ("weighted", "people.parquet")])
@pytest.mark.usefixtures("untouched")
def test_the_same_plan_is_made_again(name: str, budgets: str) -> None:
    kept = rpdp.SiloPlan.read(f"plans/{name}/silo-plan.parquet")
    made = kept.public.assign(rpdp.BudgetTable.read(f"budgets/{budgets}"), lifetime_delta=1e-3)
    assert made.ids.to_pylist() == kept.ids.to_pylist()
    np.testing.assert_allclose(made.q, kept.q, rtol=1e-6)
    np.testing.assert_allclose(made.cost, kept.cost, rtol=1e-6)
    assert made.status.tolist() == kept.status.tolist()


@pytest.mark.usefixtures("release")
def test_an_altered_plan_is_still_found() -> None:
    """The control of the fingerprints."""
    path = Path("plans/certified/public-plan.json")
    path.write_text(path.read_text().replace('"clip_norm": 1.0', '"clip_norm": 2.0'))
    with pytest.raises(rpdp.errors.TamperedPlanError):
        rpdp.PublicPlan.read(path)


# Ledgers


@pytest.mark.parametrize("ledger", LEDGERS)
def test_a_ledger_verifies_and_says_what_it_said(untouched: Release, ledger: str) -> None:
    """Also those of a process that was killed, with what is in SQLite's log only."""
    expected = untouched.expected["ledgers"][ledger]
    assert expected["verify"]["good"]
    assert_holds(untouched.json("ledger", "verify", ledger), expected["verify"], "verify")
    assert_holds(untouched.json("ledger", "show", ledger), expected["show"], "show")
    assert_holds(untouched.json("ledger", "head", ledger), expected["verify"]["head"], "head")


def test_records_keep_their_stories(untouched: Release) -> None:
    """Withdrawn, lowered, raised with a signature, added later; and withdrawn while the run went on."""
    stories = {}
    for ledger, expected in untouched.expected["ledgers"].items():
        for record, then in expected["explain"].items():
            stories[record] = untouched.json("ledger", "explain", ledger, record)
            assert_holds(stories[record], then, record)
            assert len(stories[record]["changes"]) == len(then["changes"])
    reasons = {
        "north-0005": "second thoughts",
        "north-0007": "letter of 3 May",
        "north-0009": "by telephone, during the run",
        "north-0012": "new consent form",
    }
    for record, reason in reasons.items():
        assert reason in stories[record]["changes"][0]
    assert [record for record, story in stories.items() if story["withdrawn"]] == ["north-0007", "north-0009"]
    assert stories["north-0012"]["epsilon"] == 6.0 > stories["north-0012"]["first_epsilon"]
    assert [one["q"] > 0.0 for one in stories["north-0025"]["runs"]] == [False, False, True]


@pytest.mark.parametrize(
    ("ledger", "where"),
    [(NORTH, "in what it says"), (AUDITORS, "in its hash"), ("seeded/silos/a/ledger.db", "in what it says")],
)
def test_a_changed_byte_in_a_charge_is_found(release: Release, ledger: str, where: str) -> None:
    """The control of all verdicts above."""
    path = release.home / ledger
    if ledger == NORTH:
        release.upgrade(NORTH)  # what a killed process left in the log goes into the file
    assert release.json("ledger", "verify", ledger)["good"]
    with rpdp.Ledger.read(path) as opened:
        charge = next(opened.chain.events("charge"))
    content = bytearray(path.read_bytes())
    wanted = charge.payload.encode() + charge.head
    place, changed = content.find(wanted), 0
    while place >= 0:  # once, and perhaps again where it has no effect: in pages that are free
        content[place + (len('{"at":"20') if where == "in what it says" else len(wanted) - 1)] ^= 1
        place, changed = content.find(wanted), changed + 1
    assert changed > 0
    path.write_bytes(content)
    assert release.types("ledger", "verify", ledger, "--json") == 3
    found = json.loads(release.out)
    assert not found["good"]
    assert "chain" in {one["check"] for one in found["findings"]}


def remove_hashes(export: dict[str, Any]) -> None:
    """Release 0.1 let an export without ids carry hashes on which a guess about one record could be tested."""
    for event in export["events"]:
        del event["head"]
        if event["kind"] != "release":
            event["facts"] = without_hashes(event["facts"])


def without_hashes(facts: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in facts.items() if name not in _PERSONAL}
    return {
        name: without_hashes(value) if isinstance(value, dict) and name == "records" else value
        for name, value in kept.items()
    }


def test_exports_are_the_same_again(release: Release) -> None:
    for name, options in (("accounts.json", ()), ("without-ids.json", ("--without-ids",))):
        assert release.types("ledger", "export", NORTH, f"again-{name}", *options) == 0
        before = json.loads(Path(f"exports/{name}").read_text())
        if options:
            remove_hashes(before)
        again = json.loads(Path(f"again-{name}").read_text())
        width = len(before["columns"])  # columns that came later stand after those of release 0.1
        again["columns"], again["records"] = again["columns"][:width], [row[:width] for row in again["records"]]
        assert_holds(again, before, name)
    assert release.types("ledger", "export", NORTH, "again.csv") == 0
    with Path("exports/accounts.csv").open() as old, Path("again.csv").open() as new:
        before, after = list(csv.DictReader(old)), list(csv.DictReader(new))
    assert len(before) == len(after) == 26
    assert all(now | then == now for then, now in zip(before, after, strict=True))


def test_an_upgrade_changes_nothing_that_a_ledger_says(release: Release) -> None:
    """Format, tables and the file change; heads, accounts, explanations and what `verify` finds do not."""
    for ledger in (NORTH, SOUTH, "federation/silos/silo-00/ledger.db"):
        records = list(release.expected["ledgers"][ledger].get("explain", {}))
        commands = [("show", ledger), ("verify", ledger), ("head", ledger), *(("explain", ledger, r) for r in records)]
        before = [release.json("ledger", *command) for command in commands]
        assert release.types("ledger", "prune", ledger) == 2
        assert f"rpdp ledger upgrade {ledger}" in " ".join(release.err.split())
        release.upgrade(ledger)
        assert [release.json("ledger", *command) for command in commands] == before
        release.upgrade(ledger)
        assert before[1]["good"]


def test_the_auditor_needs_the_key_to_find_a_record(untouched: Release) -> None:
    assert untouched.types("ledger", "explain", AUDITORS, "north-0001") == 2
    story = untouched.json("ledger", "explain", AUDITORS, "north-0001", "--key", f"{NORTH}.key")
    then = untouched.expected["ledgers"][NORTH]["explain"]["north-0001"]
    assert story["hash"] == then["hash"]
    assert_holds(story["runs"], then["runs"][:2], "runs")


def test_the_action_in_the_inbox_is_booked_once(release: Release) -> None:
    release.upgrade(NORTH)
    inbox = release.home / f"{NORTH}.inbox"
    assert len(list(inbox.iterdir())) == 1
    before = release.json("ledger", "show", NORTH)
    rpdp.Ledger.open(NORTH).close()
    rpdp.Ledger.open(NORTH).close()
    after = release.json("ledger", "show", NORTH)
    assert list(inbox.iterdir()) == []
    assert (before["pending_actions"], after["pending_actions"]) == (1, 0)
    assert after["events"] == before["events"] + 1
    assert (after["withdrawn"], after["head"]) == (before["withdrawn"], before["head"])
    assert release.json("ledger", "verify", NORTH)["good"]


def test_stewards_go_on_with_the_keys_that_they_have(release: Release) -> None:
    release.upgrade(NORTH, SOUTH)
    raised = ("--epsilon", 9, "--reason", "new consent form", "--steward-key")
    assert release.types("ledger", "raise", NORTH, "north-0004", *raised, "locked.key", "--passphrase", PASSPHRASE) == 3
    assert "signature" in release.err
    assert release.types("ledger", "raise", NORTH, "north-0004", *raised, "steward.key") == 0
    # A person with three records: a larger ε leaves each a smaller part of δ than is booked.
    assert release.types("ledger", "raise", NORTH, "north-0001", *raised, "steward.key") == 2
    assert "is booked already; nothing was changed" in release.err
    assert release.types("ledger", "raise", SOUTH, "south-0001", *raised, "locked.key") == 2
    more = ("--passphrase", PASSPHRASE)
    assert release.types("ledger", "raise", SOUTH, "south-0001", *raised, "locked.key", *more) == 0
    assert release.types("ledger", "lower", SOUTH, "south-0002", "--epsilon", 0.1) == 0
    assert release.types("ledger", "withdraw", NORTH, "--subject", "person-04") == 0
    assert release.types("ledger", "add", NORTH, "--budgets", "budgets/new.csv") == 2
    assert "is in the ledger already" in release.err
    assert release.types("ledger", "prune", SOUTH) == 0
    for ledger in (NORTH, SOUTH):
        assert release.status(ledger) == release.status_then(ledger)
    story = release.json("ledger", "explain", NORTH, "north-0004")
    assert (story["withdrawn"], story["epsilon"]) == (True, 9.0)
    assert release.json("ledger", "explain", SOUTH, "south-0001")["epsilon"] == 9.0


# Simulations


def assert_ends_as_then(release: Release, directory: str) -> None:
    """The result is that of release 0.1: to the last bit where the machine rounds like the one it was made on."""
    expected = release.expected["resumed"][directory]
    with safe_open(release.home / directory / "model.safetensors", framework="pt") as file:
        values = {name: file.get_tensor(name).reshape(-1) for name in file.keys()}  # noqa: SIM118 not a dictionary
    assert sorted(values) == sorted(expected["values"])
    for name, then in expected["values"].items():
        np.testing.assert_allclose(values[name], then, rtol=1e-3, atol=1e-5)
    assert [one["joined"] for one in rounds_of(release.home / directory)] == expected["joined"]
    if release.repeats_bits:
        assert sha256(release.home / directory / "model.safetensors") == expected["model"]
        result = json.loads((release.home / directory / "result.json").read_text())
        assert_holds(result, {name: expected[name] for name in ("accuracy", "accuracy_by_silo", "plan")}, directory)


@pytest.mark.parametrize(
    ("file", "directory"),
    [("scaffold.toml", "runs/scaffold/rpdp-3"), ("breast_cancer.toml", "runs/breast_cancer/dropout-2")],
)
def test_an_interrupted_simulation_opens_and_is_not_continued(release: Release, file: str, directory: str) -> None:
    """Release 0.1 drew with probabilities that this release no longer computes: half a run of each would be neither.

    Real runs go on with the probabilities that their ledgers hold.
    """
    logged = rounds_of(release.home / directory)
    kept = Checkpoint.read(release.home / directory / "checkpoint")
    assert kept is not None
    assert [list(one.joined) for one in kept.rounds] == [one["joined"] for one in logged]
    assert release.types("train", file) == 2
    assert "--resume" in release.err
    assert release.types("train", file, "--resume") == 2
    assert "the release of rpdp that computes the probabilities" in release.err
    assert rounds_of(release.home / directory) == logged
    shutil.rmtree(release.home / directory)
    told = release.json("train", file)
    assert (told["plan"], told["rounds"]) == tuple(
        release.expected["resumed"][directory][name] for name in ("plan", "rounds")
    )


# A real run


def spent(release: Release, ledger: str) -> dict[str, tuple[float, float]]:
    """What is booked for every record."""
    return {
        record: (account["spent_epsilon"], account["spent_delta"])
        for record, account in release.accounts(ledger).items()
    }


def test_a_killed_real_run_goes_on_and_charges_nothing_twice(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    """One silo had finished the interrupted round, the other had not: charged, it sits out."""
    release.upgrade(NORTH, SOUTH)
    before = {ledger: spent(release, ledger) for ledger in (NORTH, SOUTH)}
    with monkeypatch.context() as there:
        there.chdir("real")
        assert release.types("train", "summer.toml") in (2, 3)  # it exists already, and states no allowance
        told = release.json("train", "summer.toml", "--resume")["public"]
    assert (told["was_finished"], told["is_simulation"], told["rounds"]) == (False, False, 8)
    assert {ledger: spent(release, ledger) for ledger in (NORTH, SOUTH)} == before
    heads = json.loads(Path("real/study/heads.json").read_text())["heads"]
    for silo, ledger in (("north", NORTH), ("south", SOUTH)):
        runs, then = release.status(ledger), release.status_then(ledger)
        assert all(runs[name] == then[name] for name in ("winter", "spring"))
        assert (then["summer"]["announced"], runs["summer"]["announced"]) == (4, 8)
        assert runs["summer"]["joined"][: len(then["summer"]["joined"])] == then["summer"]["joined"]
        assert len(runs["summer"]["joined"]) == 7  # exactly as many as the plan says
        assert heads[silo] == release.json("ledger", "head", ledger)
    south = release.status(SOUTH)["summer"]
    assert set(south["joined"]) - set(south["released"]) == {4}
    assert rounds_of(Path("real/study/summer"))[3]["joined"] == ["north"]
    plan = rpdp.SiloPlan.read("real/study/summer/silo/north/silo-plan.parquet")
    chances = dict(zip(plan.ids.to_pylist(), plan.q.tolist(), strict=True))
    for record, story in release.expected["ledgers"][NORTH]["explain"].items():
        assert chances[record] == story["runs"][2]["q"]
    assert chances["north-0007"] == 0.0


def test_a_next_real_run_plans_from_what_is_left(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    release.upgrade(NORTH, SOUTH)
    before = release.accounts(NORTH)
    monkeypatch.chdir("real")
    autumn = Path("summer.toml").read_text().replace('"summer"', '"autumn"')
    Path("autumn.toml").write_text(autumn)
    assert release.types("train", "autumn.toml") == 3  # a new run needs an allowance, which 0.1 did not know
    assert "max_share_per_run" in release.err
    limits = autumn.partition("[policy]\n")[2].partition("\n[")[0]  # the study file's, which now belong to each silo
    for ledger in tomllib.loads(autumn)["ledgers"].values():
        Path(f"{ledger}.policy.toml").write_text(f"max_share_per_run = 0.5\n{limits}")
    assert release.types("train", "autumn.toml") == 0
    monkeypatch.chdir(release.home)
    assert list(release.status(NORTH)) == ["winter", "spring", "summer", "autumn"]
    after = release.accounts(NORTH)
    for record, account in before.items():
        taken = after[record]["spent_epsilon"] - account["spent_epsilon"]
        assert 0.0 <= taken <= account["left_epsilon"] * (1.0 + 1e-9)
        assert taken == 0.0 or not account["is_off"]
    assert any(after[record]["spent_epsilon"] > before[record]["spent_epsilon"] for record in before)


def test_a_ledger_of_before_the_run_is_not_taken_for_the_newest(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notes beside the ledger and the server's memory, both written by release 0.1, still tell."""
    for ending in ("-wal", "-shm"):
        Path(f"{NORTH}{ending}").unlink()
    shutil.copy(AUDITORS, NORTH)
    assert release.types("ledger", "add", NORTH, "--budgets", "budgets/new.csv") == 3
    assert "rolled back" in release.err
    Path(f"{NORTH}.head").unlink()
    monkeypatch.chdir("real")
    assert release.types("train", "summer.toml", "--resume") == 3
    assert "older than its acknowledged state" in " ".join(release.err.split())


# Results


@pytest.mark.parametrize(
    ("directory", "edition"),
    [
        ("runs/simulated/rpdp-3", "silo"),
        ("runs/simulated/rpdp-3", "share"),
        ("real/study/winter", "silo"),
        ("real/study/spring", "share"),
    ],
)
def test_a_finished_run_is_reported_again(release: Release, directory: str, edition: str) -> None:
    expected = release.expected["runs"][directory]
    assert sha256(Path(directory) / "model.safetensors") == expected["model"]
    assert release.types("report", directory, "--edition", edition) == 0
    name = {"silo": "report.html", "share": "report-share.html"}[edition]
    page = (Path(directory) / name).read_text(encoding="utf-8")
    assert expected["plan"] in page
    assert ("SIMULATION" in page) is expected["is_simulation"]
    if expected["accuracy"] is not None:
        assert f"{expected['accuracy']:.3f}" in page


def test_a_finished_run_is_read_and_left_alone(untouched: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    told = untouched.json("train", "simulated.toml", "--resume")
    assert told["was_finished"]
    expected = untouched.expected["runs"]["runs/simulated/rpdp-3"]
    names = ("run", "method", "seed", "accuracy", "mean_over_silos", "accuracy_by_silo", "rounds", "silos", "plan")
    assert_holds(told, {name: expected[name] for name in names})
    monkeypatch.chdir("real")
    real = untouched.json("train", "spring.toml", "--resume")["public"]
    assert (real["was_finished"], real["plan"]) == (True, untouched.expected["runs"]["real/study/spring"]["plan"])


def test_a_comparison_is_reported_again(release: Release) -> None:
    assert release.types("report", "runs/compare", "--out", "again.html") == 0
    page = Path("again.html").read_text(encoding="utf-8")
    methods = release.expected["comparison"]["methods"]
    assert [one["settings"]["method"] for one in methods] == ["rpdp", "minimum"]
    for one in methods:
        assert f"{one['accuracy']['mean']:.3f} ± {one['accuracy']['deviation']:.3f}" in page


def test_an_audit_is_read_and_added_to_a_report(release: Release) -> None:
    path = Path("audit/audit.json")
    audit = read_audit(path)
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert (audit.passed, audit.silo) == (release.expected["audit"]["passed"], release.expected["audit"]["silo"])
    assert audit.confidence == pytest.approx(release.expected["audit"]["confidence"])
    found = json.loads(json.dumps(audit.to_json()))
    for part in ("beside", "alone", "served"):
        del kept[part]["verdict"]  # sentences
        assert_holds(found[part], kept[part], part)
    assert release.types("report", "runs/simulated/rpdp-3", "--audit", path, "--out", "audited.html") == 0
    page = Path("audited.html").read_text(encoding="utf-8")
    assert all(kept[part]["plan"] in page for part in ("beside", "alone", "served"))


# Deployments


def test_silo_files(release: Release) -> None:
    for directory, expected in release.expected["silo files"].items():
        release.upgrade(f"{directory}/ledger.db")
        assert_holds(release.json("silo", "check", f"{directory}/silo.toml"), expected, directory)


class Link:
    """Agents in this process, asked by frames, in the place of Flower."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self._agents = agents

    def addresses(self) -> dict[str, str]:
        return {f"node of {name}": name for name in self._agents}

    def ask(self, requests: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        assert timeout > 0.0
        return {address: self._one(address.removeprefix("node of "), sent) for address, sent in requests.items()}

    def _one(self, name: str, sent: bytes) -> bytes:
        agent = self._agents[name]
        return agent.answer(Frame.from_bytes(sent, agent.most_payload)).to_bytes()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, int, str], None]]:
    """The server's app of a deployment with the agents of its silo files, to the end of a run."""
    log = logging.getLogger("rpdp")
    level = log.level
    monkeypatch.setattr(log, "handlers", [logging.NullHandler()])

    def served(directory: str, name: str, seed: int, test: str) -> None:
        layout = Layout.read(Path(directory))
        files = [SiloFile.read(layout.silo(silo) / "silo.toml") for silo in layout.silos]
        config = {
            "run-id": name,
            "server": str(layout.server),
            "silos": ",".join(layout.silos),
            "deadline": 60.0,
            "patience": 30.0,
            "least-silos": 0,
            "test": test,
            "seed": seed,
        }
        with ExitStack() as stack:
            link = Link({file.silo.name: stack.enter_context(open_agent(file)) for file in files})
            monkeypatch.setattr(server, "GridLink", lambda grid: link)
            server.run_server(cast("Grid", None), config)

    yield served
    log.setLevel(level)


def test_a_deployed_run_goes_on_from_the_servers_checkpoint(
    release: Release, serve: Callable[[str, str, int, str], None]
) -> None:
    """A real run that was interrupted after two of four rounds; every silo joins exactly three."""
    ledgers = [f"federation/silos/silo-0{number}/ledger.db" for number in (0, 1)]
    release.upgrade(*ledgers)
    before = {ledger: release.json("ledger", "show", ledger) for ledger in ledgers}
    serve("federation", "trial-1", -1, "")
    for ledger in ledgers:
        now, then = release.status(ledger)["trial-1"], release.status_then(ledger)["trial-1"]
        assert (then["announced"], now["announced"], len(now["joined"])) == (2, 4, 3)
        assert now["joined"][: len(then["joined"])] == then["joined"]
        assert now["released"] == now["joined"]
        assert_holds(release.json("ledger", "show", ledger)["groups"], before[ledger]["groups"], ledger)
    heads = json.loads(Path("federation/server/heads.json").read_text())["heads"]
    assert heads == {ledger.split("/")[2]: release.json("ledger", "head", ledger) for ledger in ledgers}
    result = json.loads(Path("federation/server/runs/trial-1/result.json").read_text())
    assert (result["rounds"], result["is_simulation"], result["seed"]) == (4, False, None)


def test_a_seeded_deployment_goes_on_to_the_same_model(
    release: Release, serve: Callable[[str, str, int, str], None]
) -> None:
    release.upgrade("seeded/silos/a/ledger.db", "seeded/silos/b/ledger.db")
    serve("seeded", "seeded-1", 7, f"{OWN_CODE}:public_tests")
    assert_ends_as_then(release, "seeded/server/runs/seeded-1")
    for silo in ("a", "b"):
        ledger = f"seeded/silos/{silo}/ledger.db"
        now, then = release.status(ledger)["seeded-1"], release.status_then(ledger)["seeded-1"]
        assert (then["announced"], now["announced"]) == (3, 6)
        assert now["joined"][: len(then["joined"])] == then["joined"]
