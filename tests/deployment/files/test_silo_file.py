"""The silo file: every key that is wrong is named with its value, and what it opens is checked before it serves."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rpdp.budgets import BudgetTable
from rpdp.deployment.agent.opening import open_agent, record_ids
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.errors import BudgetError, InputError, PrivacyRefusal
from rpdp.ledger import Ledger, LedgerInUseError
from tests.studies.toy import write_module

TEXT = """
[silo]
name = "a"
ledger = "ledger.db"
budgets = "budgets.csv"

[data]
factory = "MODULE:mine"

[models.study]
model = "MODULE:model"
loss = "MODULE:loss"

[policy]
max_rounds = 3
max_local_steps = 2
max_participation = 0.5
max_clip_norm = 1.0
min_noise_multiplier = 2.0
lifetime_delta = 2e-3
max_runs = 1
max_share_per_run = 1.0
release_after = 2.5
"""

FACTORIES = """

def mine():
    return data()["a"][:2]

def three():
    return data()["a"]

def tensors():
    train, ids, _ = data()["a"]
    return train.inputs[0], ids

def no_ids():
    return data()["a"][0], 40

def short_ids():
    train, ids, _ = data()["a"]
    return train, ids[1:]

def twice():
    train, ids, _ = data()["a"]
    return train, [*ids[:-1], ids[0]]

def others():
    train, ids, _ = data()["a"]
    return train, [*ids[:-1], "new"]

def empty():
    train, ids, _ = data()["a"]
    return train.rows(0, 0), []
"""

Write = Callable[..., Path]
Given = Callable[..., SiloFile]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """The silo file with keys changed: ("policy.max_runs", "2") sets, None removes; a section alone is emptied."""

    def written(*changes: tuple[str, str | None], extra: str = "") -> Path:
        lines = TEXT.splitlines()
        for key, value in changes:
            section, _, name = key.rpartition(".")
            start = lines.index(f"[{section or key}]")
            if not section:
                end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith("[")), len(lines))
                lines[start:end] = [] if value is None else [value]
                continue
            found = [i for i, line in enumerate(lines[start:], start) if line.startswith(f"{name} = ")]
            if found:
                del lines[found[0]]
            if value is not None:
                lines.insert(start + 1, f"{name} = {value}")
        path = tmp_path / "silo.toml"
        path.write_text("\n".join(lines) + extra)
        return path

    return written


@pytest.fixture
def silo(tmp_path: Path, write: Write) -> Given:
    """A silo with data, budgets and ledger, its file changed."""
    module = write_module(tmp_path)
    with (tmp_path / f"{module}.py").open("a") as file:
        file.write(FACTORIES)
    table = BudgetTable([f"a-{row}" for row in range(40)], [1.0] * 40)
    table.write(tmp_path / "budgets.csv")
    Ledger.create(tmp_path / "ledger.db", table, kind="production", lifetime_delta=2e-3).close()

    def given(*changes: tuple[str, str | None], extra: str = "") -> SiloFile:
        path = write(*changes, extra=extra)
        path.write_text(path.read_text().replace("MODULE", module))
        return SiloFile.read(path)

    return given


def test_what_a_file_says(write: Write, tmp_path: Path) -> None:
    spec = SiloFile.read(write())
    assert (spec.silo.name, spec.silo.socket, spec.silo.threads, spec.silo.group) == ("a", "agent.sock", 1, None)
    assert spec.file(spec.silo.ledger) == tmp_path.resolve() / "ledger.db"
    assert (spec.policy.max_rounds, spec.policy.release_after, spec.simulation) == (3, 2.5, None)
    assert spec.policy.policy().lifetime_delta == 2e-3
    assert spec.policy.policy().allowed_plans is None
    assert list(spec.models) == ["study"]
    ready = SiloFile.read(write(("policy.release_after", '"ready"'), extra="\n[simulation]\nseed = 0\n"))
    assert ready.policy.release_after is None
    assert ready.simulation is not None


def test_what_a_file_says_of_lifetime_budgets(write: Write) -> None:
    keys = {
        "max_share_per_run": "0.1",
        "max_epsilon_per_run": "0.5",
        "reserved": "{ evaluation = 0.2 }",
        "silos_per_person": "3",
    }
    policy = SiloFile.read(write(*((f"policy.{key}", value) for key, value in keys.items()))).policy.policy()
    assert (policy.max_share_per_run, policy.max_epsilon_per_run) == (0.1, 0.5)
    assert (dict(policy.reserved), policy.silos_per_person) == ({"evaluation": 0.2}, 3)
    older = SiloFile.read(write(("policy.max_share_per_run", None))).policy.policy()
    assert (older.max_share_per_run, older.max_epsilon_per_run) == (None, None)
    assert (dict(older.reserved), older.silos_per_person) == ({}, 1)


@pytest.mark.parametrize("plans", [(), ("0" * 64,), ("0" * 64, "9f" * 32)])
def test_plans_that_may_run(write: Write, plans: tuple[str, ...]) -> None:
    """An empty list allows none; without the key any plan within the limits may run."""
    spec = SiloFile.read(write(("policy.allowed_plans", str(list(plans)))))
    assert spec.policy.policy().allowed_plans == plans


NOT_A_COUNT = "must be a whole number"
WRONG = [
    ("silo.name", '"../a"', "silo.name='../a' must be the name of a directory"),
    ("silo.name", "3", "silo.name=3 must be a text"),
    ("silo.ledger", '""', "silo.ledger='' must be a text"),
    ("silo.budgets", "[]", r"silo.budgets=\[\] must be a text"),
    ("silo.socket", "false", "silo.socket=False must be a text"),
    ("silo.group", "0", "silo.group=0 must be a text"),
    ("silo.threads", "0", "silo.threads=0 must be between 1 and 1,024"),
    ("silo.closed_runs", '"first"', "silo.closed_runs='first' must be a list"),
    ("silo.closed_runs", '["a", "a"]', "must not name anything twice"),
    ("policy.allowed_plans", '"all"', "policy.allowed_plans='all' must be a list"),
    ("policy.allowed_plans", '["ab12"]', "policy.allowed_plans='ab12' must be the fingerprint of a plan: 64 digits"),
    ("policy.allowed_plans", f'["{"A" * 64}"]', "must be the fingerprint of a plan"),
    ("policy.allowed_plans", f'["{"a" * 64}", "{"a" * 64}"]', "must not name anything twice"),
    ("silo.leger", '"x"', r"silo.leger is not a setting; did you mean silo.ledger\?"),
    ("data.factory", '"hospital"', "data.factory='hospital' must look like"),
    ("data.factory", None, "data needs either factory"),
    ("data.task", '"breast_cancer"', "data needs either factory"),
    ("data.part", '"a"', "data needs either factory"),
    ("data.partition", '"iid"', "data.partition='iid' goes with a built-in task"),
    ("models.study.model", '"os.system"', "models.study.model='os.system' must look like"),
    ("models.study.loss", None, "a model needs either model and loss"),
    ("models.study.model", None, "a model needs either model and loss"),
    ("models.study.task", '"breast_cancer"', "a model needs either model and loss"),
    ("models.study.url", '"https://x"', "models.study.url is not a setting"),
    ("policy.max_rounds", "0", "policy.max_rounds=0 must be at least 1"),
    ("policy.max_rounds", "true", f"policy.max_rounds=True {NOT_A_COUNT}"),
    ("policy.max_local_steps", "2.5", f"policy.max_local_steps=2.5 {NOT_A_COUNT}"),
    ("policy.max_participation", "1.5", "policy.max_participation=1.5 must be above 0 and at most 1"),
    ("policy.max_clip_norm", "0.0", "policy.max_clip_norm=0.0 must be positive"),
    ("policy.min_noise_multiplier", "-1.0", "policy.min_noise_multiplier=-1.0 must be positive"),
    ("policy.min_noise_multiplier", "nan", "policy.min_noise_multiplier=nan must be finite"),
    ("policy.lifetime_delta", "1.0", "policy.lifetime_delta=1.0 must"),
    ("policy.max_runs", '"one"', f"policy.max_runs='one' {NOT_A_COUNT}"),
    ("policy.max_share_per_run", "0.0", "policy.max_share_per_run=0.0 must be above 0 and at most 1"),
    ("policy.max_share_per_run", "1.5", "policy.max_share_per_run=1.5 must be above 0 and at most 1"),
    ("policy.max_epsilon_per_run", "-1", "policy.max_epsilon_per_run=-1.0 must be positive"),
    ("policy.reserved", "0.2", "policy.reserved=0.2 must be a table"),
    ("policy.reserved", "{ evaluation = 2 }", "policy.reserved.evaluation=2.0 must be above 0 and at most 1"),
    ("policy.reserved", "{ tuning = 0.2 }", "policy.reserved='tuning' must be one of training, evaluation"),
    ("policy.reserved", "{ training = 0.6, evaluation = 0.6 }", "policy.reserved=.* adds up to more than the whole"),
    ("policy.silos_per_person", "0", "policy.silos_per_person=0 must be between 1 and 100"),
    ("policy.release_after", "0", "policy.release_after=0.0 must be positive"),
    ("policy.release_after", '"soon"', "policy.release_after='soon' must be one of ready"),
    ("policy.release_after", "true", 'policy.release_after=True must be seconds, or "ready"'),
    *(
        (f"policy.{name}", None, f"policy.{name} is missing")
        for name in (
            "max_rounds",
            "max_local_steps",
            "max_participation",
            "max_clip_norm",
            "min_noise_multiplier",
            "lifetime_delta",
            "max_runs",
            "release_after",
        )
    ),
    ("silo.name", None, "silo.name is missing: the silo's name in the federation"),
    ("silo.ledger", None, "silo.ledger is missing"),
    ("silo.budgets", None, "silo.budgets is missing"),
]


@pytest.mark.parametrize(("key", "value", "expected"), WRONG, ids=[f"{key}={value}" for key, value, _ in WRONG])
def test_every_key_that_is_wrong(write: Write, key: str, value: str | None, expected: str) -> None:
    path = write((key, value))
    with pytest.raises(InputError, match=expected) as told:
        SiloFile.read(path)
    assert str(told.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("section", "value", "expected"),
    [
        ("silo", None, r"the section \[silo\] is missing"),
        ("data", None, r"the section \[data\] is missing"),
        ("policy", None, r"the section \[policy\] is missing"),
        ("models.study", None, r"the section \[models.NAME\] is missing"),
        ("models.study", "[models]", r"models must be sections, written \[models.NAME\]"),
        ("models.study", '[models]\nmodel = "a:b"', "models.model='a:b' must be a section"),
        ("policy", "[polcy]", r"\[polcy\] is not a section of a silo file; did you mean policy\?"),
    ],
)
def test_sections(tmp_path: Path, section: str, value: str | None, expected: str) -> None:
    before, _, rest = TEXT.partition(f"[{section}]")
    after = rest[rest.index("\n[") :] if "\n[" in rest else ""
    path = tmp_path / "silo.toml"
    path.write_text(f"{before}{value or ''}{after}")
    with pytest.raises(InputError, match=expected):
        SiloFile.read(path)


def test_files_that_are_none(tmp_path: Path, write: Write) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read: No such file"):
        SiloFile.read(tmp_path / "none.toml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        SiloFile.read(tmp_path)
    path = write(extra="\nname = ")
    with pytest.raises(InputError, match=r"silo.toml: not a TOML file: .*at end of document"):
        SiloFile.read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not a TOML file"):
        SiloFile.read(path)
    with pytest.raises(InputError, match=r"simulation\.seed is missing"):
        SiloFile.read(write(extra="\n[simulation]\n"))
    with pytest.raises(InputError, match=r"simulation\.seed=-1 must be at least 0"):
        SiloFile.read(write(extra="\n[simulation]\nseed = -1\n"))


# What the file names


def open_and_close(spec: SiloFile) -> None:
    with open_agent(spec):
        pass


def test_an_agent_opens(silo: Given) -> None:
    with open_agent(silo(("silo.closed_runs", '["old"]'))) as agent:
        assert (agent.silo.name, len(agent.silo.records), len(agent.models)) == ("a", 40, 1)
        assert not agent.silo.account.is_simulation
        with pytest.raises(LedgerInUseError, match="is being written by process"), open_agent(silo()):
            pass
    open_and_close(silo())  # and again, when the first one is closed


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        ("three", "returned tuple; it must return .records, their ids"),
        ("tensors", "it must return .records, their ids"),
        ("no_ids", "it must return .records, their ids"),
        ("list_instead", "returned list; it must return"),
        ("short_ids", "39 record ids for 40 records"),
        ("twice", "a-0"),
        ("others", "1 of 40 records have no budget, the first is 'new'"),
        ("empty", "it has no records"),
        ("failing", "RuntimeError: the disk is on fire"),
        ("nothing", "has no function nothing"),
    ],
)
def test_data_that_are_nonsense(silo: Given, factory: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        open_and_close(silo(("data.factory", f'"MODULE:{factory}"')))


@pytest.mark.parametrize(
    ("model", "loss", "kind", "expected"),
    [
        ("text", "loss", InputError, r"models.study: .*text\(\) returned str, not a model"),
        ("narrow", "loss", InputError, "models.study: model or loss fails on made-up records"),
        ("model", "mean_loss", InputError, "models.study: .*one value per record"),
        ("model", "nothing", InputError, "has no function nothing"),
        ("batchnorm", "loss", PrivacyRefusal, "BatchNorm1d"),
        ("model", "on_probabilities", PrivacyRefusal, "models.study: model or loss raise on numbers that are not"),
    ],
)
def test_models_that_do_not_fit(silo: Given, model: str, loss: str, kind: type[Exception], expected: str) -> None:
    changes = (("models.study.model", f'"MODULE:{model}"'), ("models.study.loss", f'"MODULE:{loss}"'))
    with pytest.raises(kind, match=expected):
        open_and_close(silo(*changes))


def test_two_models_of_one_shape(silo: Given) -> None:
    other = '\n[models.other]\nmodel = "MODULE:{}"\nloss = "MODULE:loss"\n'
    with pytest.raises(InputError, match=r"models\.study and models\.other have the same parameters"):
        open_and_close(silo(extra=other.format("model")))
    with open_agent(silo(extra=other.format("deep"))) as agent:
        assert len(agent.models) == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            [("data.task", '"breast"'), ("data.part", '"silo-00"')],
            "'breast' is not a built-in task; did you",
        ),
        ([("data.task", '"breast_cancer"'), ("data.part", '"north"')], "data.part='north' must be one of silo-00"),
        (
            [("data.task", '"breast_cancer"'), ("data.part", '"silo-00"'), ("data.partition", '"random"')],
            "partition='random' must be one of",
        ),
    ],
)
def test_parts_of_built_in_tasks(silo: Given, changes: list[tuple[str, str]], expected: str) -> None:
    spec = silo(("data.factory", None), *changes)
    with pytest.raises(InputError, match=expected):
        record_ids(spec)


def test_budgets_for_every_record(silo: Given, tmp_path: Path) -> None:
    BudgetTable([f"a-{row}" for row in range(38)], [1.0] * 38).write(tmp_path / "budgets.csv")
    with pytest.raises(BudgetError, match="silo a: 2 of 40 records have no budget, the first is 'a-38'"):
        open_and_close(silo())
    (tmp_path / "budgets.csv").unlink()
    with pytest.raises((InputError, OSError), match=r"budgets\.csv"):
        open_and_close(silo())


def test_an_account_for_every_record(silo: Given, tmp_path: Path) -> None:
    for file in tmp_path.glob("ledger.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    with pytest.raises(PrivacyRefusal, match=r"no ledger .*; make one with `rpdp ledger create .* 0\.002 --steward"):
        open_and_close(silo())
    known = BudgetTable([f"a-{row}" for row in range(39)], [1.0] * 39)
    Ledger.create(tmp_path / "ledger.db", known, kind="production", lifetime_delta=2e-3).close()
    with pytest.raises((InputError, PrivacyRefusal), match="1 of 40"):
        open_and_close(silo())


def test_the_kind_of_a_ledger(silo: Given, tmp_path: Path) -> None:
    seeded = "\n[simulation]\nseed = 7\n"
    with pytest.raises(PrivacyRefusal, match=r"is a production ledger, .* but this file describes a simulation"):
        open_and_close(silo(extra=seeded))
    table = BudgetTable.read(tmp_path / "budgets.csv")
    Ledger.create(tmp_path / "seeded.db", table, kind="simulation", lifetime_delta=2e-3).close()
    with pytest.raises(PrivacyRefusal, match=r"is a simulation ledger, .* but this file describes a production"):
        open_and_close(silo(("silo.ledger", '"seeded.db"')))
    with open_agent(silo(("silo.ledger", '"seeded.db"'), extra=seeded)) as agent:
        assert agent.silo.account.is_simulation


PRIVATE = "others can read or write it; run `chmod go-rwx {path}`"
LIMITS = "others can write to it and so change this silo's limits; run `chmod go-w {path}`"
OPEN_TO_OTHERS = [
    *((f"ledger.db{end}", bit, PRIVATE) for end in ("", ".key", ".inbox") for bit in (0o40, 0o20, 0o10, 4, 2, 1)),
    *(("silo.toml", bit, LIMITS) for bit in (0o20, 2)),
    *(("budgets.csv", bit, PRIVATE) for bit in (0o40, 0o20, 4, 2)),
]


@pytest.mark.parametrize(
    ("name", "bit", "told"), OPEN_TO_OTHERS, ids=[f"{name} {bit:03o}" for name, bit, _ in OPEN_TO_OTHERS]
)
def test_files_that_others_can_get_at(silo: Given, tmp_path: Path, name: str, bit: int, told: str) -> None:
    """One bit too many is refused with the file's name and what to do; without that bit the agent opens."""
    tmp_path.chmod(0o755)
    spec, path = silo(), tmp_path.resolve() / name
    (tmp_path / "budgets.csv").chmod(0o600)
    owner = path.stat().st_mode & 0o700
    path.chmod(owner | bit)
    with pytest.raises(PrivacyRefusal, match=re.escape(f"{path}: {told.format(path=path)}")):
        open_and_close(spec)
    path.chmod(owner)
    open_and_close(spec)


@pytest.mark.parametrize("way_in", [0o10, 1])
def test_budgets_in_a_closed_directory_are_out_of_reach(silo: Given, tmp_path: Path, way_in: int) -> None:
    """Whatever their own mode; the control opens the directory by one bit."""
    spec = silo()
    (tmp_path / "budgets.csv").chmod(0o644)
    tmp_path.chmod(0o700)
    open_and_close(spec)
    tmp_path.chmod(0o700 | way_in)
    with pytest.raises(PrivacyRefusal, match=r"budgets\.csv: others can read or write it"):
        open_and_close(spec)


def test_a_link_to_budgets_that_others_can_get_at(silo: Given, tmp_path: Path) -> None:
    """It is the file that counts, and the directory it is in."""
    spec, shared = silo(), tmp_path / "shared"
    shared.mkdir(mode=0o755)
    budgets = (tmp_path / "budgets.csv").rename(shared / "consents.csv")
    (tmp_path / "budgets.csv").symlink_to(budgets)
    budgets.chmod(0o644)
    with pytest.raises(PrivacyRefusal, match=r"shared/consents\.csv: others can read or write it"):
        open_and_close(spec)
    budgets.chmod(0o600)
    open_and_close(spec)


def test_the_limits_may_be_read_by_everybody(silo: Given) -> None:
    """The control of the silo file's check, which is about writing."""
    spec = silo()
    spec.path.chmod(0o644)
    open_and_close(spec)
