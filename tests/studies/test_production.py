"""Real runs from a study file: ledgers made by the steward, nothing charged twice, nobody overlooked."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.budgets import BudgetTable
from rpdp.federation.stated_limits import PolicySection
from rpdp.ledger import Ledger
from rpdp.studies import read_result
from tests.studies.steward import LIMITS, SILOS, own_limits
from tests.studies.toy import write_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.studies.steward import Steward
    from tests.studies.toy import Change


def test_a_real_run_is_booked_and_reported_as_one(steward: Steward) -> None:
    steward.creates()
    assert steward.types("train", steward.writes(), "--strict") == 0
    assert "rpdp, run spring" in steward.out
    assert "A real run: secure randomness, booked in the ledger of every silo" in steward.out
    assert [steward.runs(silo) for silo in SILOS] == [[("spring", 3)]] * 2
    found = read_result(Path("study/spring"))
    assert (found.run, found.seed, found.is_simulation, found.score) == ("spring", None, False, None)
    assert [view.overdrawn for view in found.silos.values()] == [0, 0]
    page = Path("study/spring/report.html").read_text()
    assert "SIMULATION" not in page
    assert "Cryptographically secure and fresh" in page
    assert not any(note.startswith("treated as public: the silos' test records") for note in found.public.notes)
    assert sorted(json.loads(Path("study/heads.json").read_text())["heads"]) == list(SILOS)
    assert steward.types("train", "run.toml", "--resume", "--json") == 0
    told = json.loads(steward.out)["public"]
    assert (told["was_finished"], told["is_simulation"], told["seed"]) == (True, False, None)


@pytest.mark.filterwarnings("ignore::rpdp.training.BadRecordWarning")
def test_a_real_run_does_not_stop_because_a_record_makes_the_model_raise(steward: Steward) -> None:
    """Rule 12. The record is the first one, on which checks before the run would try model and loss."""
    steward.creates()
    changes = (("task.data", "first_label_unknown"), ("task.loss", "by_class"))
    assert steward.types("train", steward.writes(*changes)) == 0, steward.err
    assert [steward.runs(silo) for silo in SILOS] == [[("spring", 3)]] * 2


def test_a_real_run_refuses_a_loss_that_raises_on_nan_and_doctor_says_so_before(steward: Steward) -> None:
    steward.creates()
    study = steward.writes(("task.loss", "on_probabilities"))
    assert steward.types("doctor", study) == 3
    assert "F.binary_cross_entropy_with_logits in place of" in steward.out
    assert steward.types("train", study) == 3
    assert "raise on numbers that are not finite" in steward.err
    assert [steward.runs(silo) for silo in SILOS] == [[], []]


@pytest.mark.parametrize(
    ("changes", "code", "expected"),
    [
        ([("ledgers", None)], 3, "without seeds this is a real run, but it lacks [ledgers] with silo ="),
        ([("ledgers", None)], 3, "`rpdp ledger create LEDGER --budgets FILE --lifetime-delta DELTA`"),
        ([("run.id", None)], 3, 'it lacks [run] id = "…"'),
        ([("policy", None)], 3, f"it lacks {', '.join(LIMITS)} in"),
        ([("ledgers.b", '"b/none.db"')], 3, "b/none.db. Create one with `rpdp ledger create"),
        ([("ledgers.b", None)], 2, "[ledgers] names a, but budgets.files names a, b"),
        ([("run.seeds", "2")], 3, "a run with seeds is a simulation, which protects nobody"),
        ([("run.method", '"minimum"')], 3, "method minimum is for simulations only"),
        ([("run.split", '"by_seed"')], 2, "a real run has one split"),
        ([("policy.max_local_steps", "1")], 3, "local_steps=2 (policy: at most 1)"),
        ([("run.purpose", '"evaluation"')], 2, "a plan for statistics or evaluation needs a rpdp.planning.Request"),
    ],
)
def test_what_is_no_real_run_is_refused(steward: Steward, changes: Sequence[Change], code: int, expected: str) -> None:
    steward.creates()
    assert steward.types("train", steward.writes(*changes)) == code
    assert expected in steward.err
    assert not Path("study").exists()
    assert [steward.runs(silo) for silo in SILOS] == [[], []]


@pytest.mark.parametrize("limit", LIMITS)
def test_every_limit_is_stated_by_somebody(steward: Steward, limit: str) -> None:
    """A limit that is taken from the run itself would be none."""
    steward.creates()
    assert steward.types("train", steward.writes((f"policy.{limit}", None))) == 3
    told = f"this is a real run, but it lacks {limit} in"
    assert told in steward.err
    assert steward.types("doctor", "run.toml") == 3
    assert told in steward.out
    assert steward.runs("a") == []
    assert set(LIMITS) == set(vars(PolicySection())) - {"max_epsilon_per_run", "reserved", "silos_per_person"}


def test_the_limits_of_the_study_file_bind_no_silo(steward: Steward) -> None:
    steward.creates()
    study = steward.writes()  # its [policy] states all limits, too: whoever runs the study allows everything
    own_limits(steward.home, "a").unlink()
    assert steward.types("train", study) == 3
    assert f"it lacks {', '.join(LIMITS)} in" in steward.err
    assert "a/ledger.db.policy.toml, where silo a states its own limits" in steward.err
    assert steward.types("train", study, "--resume") == 3, "no allowance comes from the study file"
    assert [steward.runs(silo) for silo in SILOS] == [[], []]


def test_what_is_wrong_in_the_stewards_own_file_is_said(steward: Steward) -> None:
    steward.creates()
    study, own = steward.writes(), own_limits(steward.home, "a")
    own.write_text("max_local_step = 1\n")
    assert steward.types("train", study) == 2
    assert "ledger.db.policy.toml: " in steward.err
    own.chmod(0o666)
    assert steward.types("train", study) == 3
    assert "others can write it, so it is not the silo's own" in steward.err


def test_limits_that_somebody_else_wrote_do_not_count(steward: Steward) -> None:
    """A link, or a file of another user, holds what its owner writes there."""
    steward.creates()
    study, own = steward.writes(), own_limits(steward.home, "a")
    own.rename(steward.home / "elsewhere.toml")
    own.symlink_to(steward.home / "elsewhere.toml")
    for options in ((), ("--resume",)):
        assert steward.types("train", study, *options) == 2
        assert "the steward's limits must be a regular file, no link" in steward.err
    assert steward.runs("a") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_limits_of_another_user_do_not_count(steward: Steward) -> None:
    steward.creates()
    study, own = steward.writes(), own_limits(steward.home, "a")
    os.chown(own, 12345, 12345)
    assert steward.types("train", study) == 3
    assert "belongs to user 12345" in steward.err
    assert steward.runs("a") == []


def test_a_new_run_needs_every_limit_even_if_it_asks_to_be_resumed(steward: Steward) -> None:
    """What the silo leaves out would come from the study file, whose [policy] allows everything."""
    steward.creates()
    study = steward.writes()
    own_limits(steward.home, "a").write_text("max_share_per_run = 0.6\n")
    assert steward.types("train", study, "--resume") == 3
    assert "a new run lacks max_rounds, max_local_steps" in steward.err
    assert steward.runs("a") == []


def test_a_link_to_a_ledger_leads_to_its_own_limits(steward: Steward) -> None:
    """The limits beside a link are whoever's made the link; key and inbox beside it could differ as well."""
    steward.creates()
    study = steward.writes(("ledgers.a", '"mine/ledger.db"'), ("policy.max_share_per_run", "0.2"))
    mine = steward.home / "mine"
    mine.mkdir()
    for one in (steward.home / "a").iterdir():
        (mine / one.name).symlink_to(one)
    (mine / "ledger.db.policy.toml").unlink()
    (mine / "ledger.db.policy.toml").write_text("max_share_per_run = 1.0\n")
    assert steward.types("train", study) == 0, steward.err
    with Ledger.read(steward.home / "a" / "ledger.db") as ledger:
        assert steward.runs("a") == [("spring", 3)]
        assert 0.1 < float(ledger.balances(BudgetTable.read("a.csv").ids).share_used.max()) <= 0.2


def test_a_ledger_with_a_second_name_is_not_written(steward: Steward) -> None:
    """Under the second name there are other limits, another inbox, and another log of SQLite."""
    steward.creates()
    study = steward.writes(("ledgers.a", '"mine/ledger.db"'))
    mine = steward.home / "mine"
    mine.mkdir()
    for one in ("ledger.db", "ledger.db.key", "ledger.db.head"):
        os.link(steward.home / "a" / one, mine / one)
    shutil.copy(own_limits(steward.home, "a"), own_limits(steward.home, "mine"))
    assert steward.types("train", study) == 3
    assert "ledger.db has 2 names (hard links)" in steward.err
    (mine / "ledger.db").unlink()
    assert steward.types("train", steward.writes(name="honest.toml")) == 0, steward.err


def test_a_run_that_was_admitted_goes_on_without_an_allowance_and_no_new_run_begins(steward: Steward) -> None:
    """A file of 0.1.0 states none: its run keeps what it reserved."""
    steward.creates()
    assert steward.types("train", steward.writes()) == 0
    steward.writes(("policy.max_share_per_run", None))
    shutil.rmtree("study/spring")  # as if it had been interrupted before anything was written
    assert steward.types("train", "run.toml", "--resume") == 0, steward.err
    assert steward.runs("a") == [("spring", 3)]
    later = steward.writes(("policy.max_share_per_run", None), ("run.id", '"summer"'), name="later.toml")
    assert steward.types("train", later, "--resume") == 3
    assert "a new run lacks max_share_per_run in" in steward.err
    assert steward.runs("a") == [("spring", 3)]


def test_a_run_books_its_share_its_purpose_and_its_study(steward: Steward) -> None:
    steward.creates()
    asked: list[Change] = [
        ("privacy.share", "0.2"),
        ("run.purpose", '"training"'),
        ("run.study", '"Risk 2026"'),
        ("policy.reserved", "{ evaluation = 0.5 }"),
        ("policy.max_epsilon_per_run", "2.0"),
    ]
    assert steward.types("train", steward.writes(*asked)) == 0, steward.err
    public = read_result(Path("study/spring")).public
    assert (public.share, public.purpose, public.study) == (0.2, "training", "Risk 2026")
    assert steward.types("ledger", "show", "a/ledger.db", "--json") == 0
    told = json.loads(steward.out)
    assert (told["account"], told["silos_per_person"], told["renyi_accounts"]) == ("renyi", 1, 40)
    (booked,) = told["runs"]
    assert (booked["share"], booked["purpose"], booked["study"]) == (0.2, "training", "Risk 2026")
    assert all(0.0 < group["mean_share_used"] <= 0.2 for group in told["groups"])
    assert booked["largest_cost"] <= 2.0
    assert steward.types("ledger", "show", "a/ledger.db") == 0
    for said in ("Rényi accounts", "in this silo only", "spring 0.2 training Risk 2026"):
        assert said in steward.out


@pytest.mark.parametrize("account", ["renyi", "sums"])
def test_persons_in_several_silos_need_accounts_that_fit_together(steward: Steward, account: str) -> None:
    steward.creates("--account", account, "--silos-per-person", "2")
    assert "a person may have accounts in up to 2 silos" in steward.out
    asked: list[Change] = [("policy.silos_per_person", "2"), ("privacy.account", f'"{account}"')]
    assert steward.types("train", steward.writes()) == 3
    assert "silos_per_person=1" in steward.err
    other = {"renyi": "sums", "sums": "renyi"}[account]
    assert steward.types("train", steward.writes(asked[0], ("privacy.account", f'"{other}"'))) == 3
    assert f"this silo's account is '{account}' with silos_per_person=2" in steward.err
    assert [steward.runs(silo) for silo in SILOS] == [[], []]
    assert steward.types("train", steward.writes(*asked)) == 0, steward.err
    public = read_result(Path("study/spring")).public
    assert (public.silos_per_person, public.account, public.lifetime_delta) == (2, account, 1e-3)


def test_an_unknown_account_is_refused(steward: Steward) -> None:
    steward.creates()
    told = ["ledger", "create", "c.db", "--budgets", "a.csv", "--lifetime-delta", "1e-3"]
    assert steward.types(*told, "--account", "reny") == 2
    assert "account='reny' must be one of sums, renyi; did you mean 'renyi'?" in steward.err
    assert steward.types(*told, "--silos-per-person", "0") == 2
    assert "silos_per_person=0" in steward.err
    assert not Path("c.db").exists()


def test_machines_get_what_is_public_apart_from_what_stays(steward: Steward) -> None:
    steward.creates()
    assert steward.types("train", steward.writes(), "--json") == 0
    told = json.loads(steward.out)
    assert set(told) == {"public", "steward"}
    assert told["public"]["run"] == "spring"
    assert not {"standings", "seconds"} & set(told["public"])
    assert set(told["public"]["files"]) == {"model", "rounds", "result", "public_plan", "report_to_share"}
    assert [one["silo"] for one in told["steward"]["standings"]] == list(SILOS)
    assert set(told["steward"]["files"]) == {"report", "silos"}


def test_the_public_files_of_a_real_run_tell_no_time(steward: Steward) -> None:
    """Time inside the silos' machine depends on who was drawn; it is in the silos' own files only."""
    steward.creates()
    assert steward.types("train", steward.writes()) == 0
    home = Path("study/spring")
    public = {path.name: path.read_text() for path in home.iterdir() if path.suffix in (".json", ".jsonl", ".html")}
    report = public.pop("report.html")
    assert "Run time per round" in report
    assert "Run time per round" not in public["report-share.html"]
    assert sorted(public) == ["public-plan.json", "report-share.html", "result.json", "rounds.jsonl"]
    found = read_result(home)
    assert found.seconds > 0.0
    assert all(log.seconds > 0.0 for log in found.rounds)
    for name, text in public.items():
        assert name.endswith(".html") or "seconds" not in text
        assert not any(f"{seconds:.6f}" in text for seconds in (found.seconds, *(log.seconds for log in found.rounds)))
    kept = json.loads((home / "silo" / "a" / "view.json").read_text())["time"]
    assert kept == [found.seconds, *(log.seconds for log in found.rounds)]
    assert (home / "silo" / "a").stat().st_mode & 0o077 == 0
    assert steward.types("report", home, "--out", "again.html") == 0
    assert "Run time per round" in Path("again.html").read_text()


def test_a_simulation_tells_its_time(steward: Steward) -> None:
    """The control: the same files of a simulation have it."""
    assert steward.types("train", write_run(steward.home), "--out", "simulated") == 0
    assert '"seconds"' in Path("simulated/result.json").read_text()
    assert '"seconds"' in Path("simulated/rounds.jsonl").read_text()
    assert "time" not in json.loads(Path("simulated/silo/a/view.json").read_text())


def test_seeds_and_ledgers_do_not_mix_whatever_the_command(steward: Steward) -> None:
    steward.creates()
    path = steward.writes()
    for command in (["train", path, "--seed", "1"], ["compare", path, "--methods", "rpdp", "--seeds", "1"]):
        assert steward.types(*command) == 3
        assert "a run with seeds is a simulation" in steward.err
    assert steward.types("compare", path, "--methods", "rpdp") == 2
    assert "a comparison simulates: give --seeds" in steward.err
    assert steward.types("train", path, "--force") == 2
    assert "the bookings of a real run stay" in steward.err
    assert steward.types("train", path, "--device", "cuda") == 2
    assert "--device cuda is for simulations: a real run trains on the CPU; use --device cpu" in steward.err
    assert steward.types("doctor", path) == 0
    assert "a real run: secure randomness" in steward.out


def test_a_ledger_of_simulations_is_refused(steward: Steward) -> None:
    steward.creates("--simulation")
    assert steward.types("train", steward.writes()) == 3
    assert "ledgers.a: " in steward.err
    assert "was created for simulations, which cannot be changed" in steward.err


def test_a_second_run_after_a_withdrawal(steward: Steward) -> None:
    steward.creates()
    assert steward.types("train", steward.writes()) == 0
    assert steward.err.startswith("note: silo a: 40 of 40 records can take part in full, 0 reduced, 0 not at all")
    assert "left (" not in steward.err  # everybody has a full budget: there is nothing to mend
    assert steward.types("train", "run.toml", "--out", "elsewhere") == 2
    assert "run.id='spring' is already in the ledger of a, b" in steward.err
    assert steward.types("ledger", "withdraw", "a/ledger.db", "a-7") == 0
    later = steward.writes(("run.id", '"summer"'), name="later.toml")
    assert steward.types("train", later, "--strict") == 3
    assert "--strict: not every record can take part" in steward.err
    assert "silo a: 1 left out, 39 reduced; silo b: 0 left out, 40 reduced" in steward.err
    assert steward.runs("a") == [("spring", 3)]
    assert steward.types("train", later, "--json") == 0
    told = json.loads(steward.out)["steward"]["standings"]
    assert [(one["silo"], one["left_out"], one["reduced"]) for one in told] == [("a", 1, 39), ("b", 0, 40)]
    assert told[0]["remarks"][0].startswith("silo a: 1 record withdrawn; never drawn again. Remove them from the data")
    assert told[1]["remarks"][0].startswith("silo b: 40 records with less left (4")
    assert " % of the lifetime budget) than the allowance of one run; drawn less often" in told[1]["remarks"][0]
    plan = read_result(Path("study/summer")).silos["a"].plan
    assert plan.q[7] == 0.0
    assert (plan.q > 0.0).sum() == 39
    assert steward.runs("a") == [("spring", 3), ("summer", 3)]


def test_the_steward_hears_what_would_let_records_in(steward: Steward) -> None:
    steward.creates("--account", "sums")
    assert steward.types("train", steward.writes()) == 0  # books 60 % of everybody's δ
    assert steward.types("ledger", "lower", "b/ledger.db", "b-0", "--delta", "5e-4") == 0
    assert steward.types("ledger", "lower", "b/ledger.db", "b-1", "--delta", "7e-4") == 0  # priced at its own δ
    assert steward.types("train", steward.writes(("run.id", '"summer"'), name="later.toml"), "--json") == 0
    told = json.loads(steward.out)["steward"]["standings"]
    assert [(one["silo"], one["left_out"], one["reduced"]) for one in told] == [("a", 0, 40), ("b", 1, 39)]
    assert (
        "silo b: 1 record with no δ left; not drawn in this run. For all of them to take part: nothing else"
        in (told[1]["remarks"][0])
    )


def test_the_rounds_that_the_steward_hears_of_are_enough(steward: Steward) -> None:
    assert steward.types("ledger", "keygen", "steward") == 0
    steward.creates("--steward", "steward.pub", budgets=(1.0,))
    whole = ("policy.max_share_per_run", "1.0")
    assert steward.types("train", steward.writes(("privacy.noise_multiplier", "30"), whole)) == 0
    wanted = ("privacy.noise_multiplier", "4"), ("run.id", '"summer"'), whole
    assert steward.types("train", steward.writes(*wanted, ("schedule.rounds", "15")), "--strict") == 3
    said = re.search(
        r"instead of ([\d.]+) on average. With rounds = (\d+) a step would draw them as often", steward.err
    )
    assert said is not None
    assert "or budgets raised by ε = 0." in steward.err
    rounds = int(said[2])
    assert rounds < 15
    for more, enough in ((0, True), (1, False)):
        path = steward.writes(*wanted, ("schedule.rounds", str(rounds + more)), name="less.toml")
        assert steward.types("train", path, "--strict") == 3  # its full budget would now allow even more
        less = re.search(r"with q = ([\d.]+) instead", steward.err)
        assert less is not None
        assert (float(less[1]) >= float(said[1])) is enough
