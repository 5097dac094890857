"""A successor of a lost ledger runs only at servers where somebody has accepted it; nothing is replaced silently."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from rpdp import Policy, PublicPlan, Records, Schedule, Silo, run_production
from rpdp.cli.run import run as cli
from rpdp.errors import InputError, PrivacyRefusal, Reason
from rpdp.federation.heads import keep_heads, read_heads, write_heads
from rpdp.federation.successions import accept_successor, successions_file
from rpdp.ledger.store.chain import PublicHead
from rpdp.ledger.succession import Succession
from tests.deployment.agent import scene
from tests.ledger import small
from tests.ledger.test_recovery import SHARE, Lost

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.ledger import Ledger


@pytest.fixture
def lost(tmp_path: Path) -> Lost:
    return Lost(tmp_path)


def train(ledger: Ledger, lost: Lost, run: str) -> None:
    """One real run of one silo, beside the server's heads."""
    public = PublicPlan(
        Schedule(2, 2, participation=1.0), noise_multiplier=8.0, delta=1e-4, clip_norm=1.0, normaliser=8, weights=1.0
    )
    policy = replace(Policy.of(public), lifetime_delta=small.LIFETIME_DELTA, max_runs=5, max_share_per_run=SHARE)
    records = Records.of(torch.zeros(8, 2), torch.zeros(8, dtype=torch.int64))
    silo = Silo("north", records, lost.table, policy=policy, account=ledger)
    run_production(
        torch.nn.Linear(2, 2),
        torch.nn.CrossEntropyLoss(reduction="none"),
        [silo],
        public,
        run=run,
        checkpoint=lost.directory / run,
        heads=lost.directory / "heads.json",
    )


def test_a_successor_runs_after_it_was_accepted_and_not_before(lost: Lost) -> None:
    """Refused with the head of the lost ledger, and where the server knows neither; accepted by name, with a reason."""
    heads = lost.directory / "heads.json"
    train(lost.ledger, lost, "first")
    lost.export()
    lost.lose()
    with lost.recover(read_heads(heads)["north"]) as successor:
        with pytest.raises(PrivacyRefusal, match="belongs to ledger"):
            train(successor, lost, "second")
        moved = heads.rename(lost.directory / "moved.json")
        with pytest.raises(PrivacyRefusal, match="accept the successor"):
            train(successor, lost, "second")
        assert successor.status().runs == ()
        moved.rename(heads)
        statement = Succession.of(successor)
        assert accept_successor(heads, "north", statement, "letter of 3 May")
        assert not accept_successor(heads, "north", statement, "again")
        train(successor, lost, "second")
        assert read_heads(heads)["north"] == successor.public_head()
        assert successor.verify().findings == ()
    noted = [json.loads(line) for line in successions_file(heads).read_text().splitlines()]
    assert [(one["silo"], one["reason"]) for one in noted] == [("north", "letter of 3 May")]
    assert noted[0]["successor"]["ledger"] == statement.successor.ledger


def test_what_a_server_does_not_accept(lost: Lost) -> None:
    lost.run("first")
    lost.export()
    head = lost.lose()
    heads = lost.directory / "heads.json"
    with lost.recover(head) as successor:
        statement = Succession.of(successor)
    with pytest.raises(InputError, match="does not exist"):
        accept_successor(heads, "north", statement, "why")
    newer = replace(head, count=head.count + 1, head="ab" * 32)
    for known, match in (
        (replace(head, ledger="ab" * 16), "is known here with ledger"),
        (newer, "charges would be forgotten"),
        (replace(head, head="ab" * 32), "another history"),
    ):
        heads.unlink(missing_ok=True)
        write_heads(heads, {"north": known})
        with pytest.raises(PrivacyRefusal, match=match):
            accept_successor(heads, "north", statement, "why")
        assert read_heads(heads) == {"north": known}
    with pytest.raises(InputError, match="no head of silo"):
        accept_successor(heads, "south", statement, "why")
    with pytest.raises(InputError, match="say why"):
        accept_successor(heads, "north", statement, " ")
    assert not successions_file(heads).exists()
    older = replace(head, count=head.count - 1, head="cd" * 32)  # a server that has seen less accepts it, too
    heads.unlink()
    write_heads(heads, {"north": older})
    assert accept_successor(heads, "north", statement, "why")


def test_an_agent_with_a_successor_refuses_a_server_that_does_not_know_it(tmp_path: Path) -> None:
    """Also one that knows no head at all, which may begin with a new ledger."""
    public = scene.public_plan()
    making = scene.Making(public, name="new")
    lost = Lost(tmp_path, table=making.budgets)
    lost.export()
    lost.recover(lost.lose(), max_runs=1).close()
    with scene.opened(tmp_path, making) as agent:
        assert scene.reason(scene.told(agent, scene.admission(public))) == Reason.HEAD
        other = PublicHead("ab" * 16, 0, "00")
        assert scene.reason(scene.told(agent, scene.admission(public, head=other))) == Reason.HEAD
        assert agent.silo.account.status().runs == ()
        assert scene.told(agent, scene.admission(public, head=scene.head_of(agent))).kind == "admitted"


def test_a_run_that_goes_on_meanwhile_does_not_bring_the_lost_ledger_back(lost: Lost) -> None:
    lost.run("first")
    lost.export()
    heads = lost.directory / "heads.json"
    keep_heads(heads, {"north": lost.ledger})
    head = lost.lose()
    with lost.recover(head) as successor:
        accept_successor(heads, "north", Succession.of(successor), "why")
        write_heads(heads, {"north": replace(head, count=head.count + 5)})
        assert read_heads(heads)["north"] == PublicHead(successor.id, 1, successor.public_head().head)


def test_the_commands(lost: Lost, capsys: pytest.CaptureFixture[str]) -> None:
    lost.run("first")
    lost.export()
    directory = lost.directory
    keep_heads(directory / "heads.json", {"north": lost.ledger})
    lost.lose()
    lost.table.write(directory / "budgets.csv")
    files = {
        name: str(directory / name) for name in ("new.db", "last.json", "budgets.csv", "key", "heads.json", "n.json")
    }
    command = ["ledger", "recover", files["new.db"], "--export", files["last.json"], "--budgets", files["budgets.csv"]]
    command += ["--key", files["key"], "--heads", files["heads.json"], "--reason", "disk failure"]

    def types(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert cli(list(arguments)) == code
        said = capsys.readouterr()
        return " ".join((said.out + said.err).split())

    assert "has no head of silo 'south'" in types(*command, "--silo", "south", code=2)
    assert "go together" in types(*command, "--silo", "north", "--max-runs", "3", code=2)
    limits = ("--max-runs", "3", "--max-share-per-run", str(SHARE))
    told = json.loads(types(*command, "--silo", "north", *limits, "--json"))
    assert (told["runs_since"], told["share"]) == (2, SHARE)
    assert 0.4 < told["mean_share_used"] < 0.46
    types("ledger", "head", files["new.db"], "--succession", files["n.json"])
    assert types("ledger", "accept", files["heads.json"], files["n.json"], "--silo", "north", "--reason", "x").endswith(
        "accepted."
    )
    again = types("ledger", "accept", files["heads.json"], files["n.json"], "--silo", "north", "--reason", "x")
    assert again.endswith("nothing was changed.")
    assert json.loads(types("ledger", "show", files["new.db"], "--json"))["never_used"] == 0
    types("ledger", "head", files["new.db"], "--succession", files["n.json"], code=2)
    assert "not a statement of succession" in types(
        "ledger", "accept", files["heads.json"], files["last.json"], "--silo", "north", "--reason", "x", code=2
    )
