"""The chain, its public part, and the refusal of a ledger that was rolled back."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rpdp import BudgetTable
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation.heads import read_heads, write_heads
from rpdp.ledger import Ledger, PublicHead
from rpdp.ledger.store.rollback import RollbackNotes
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads


def files(directory: Path) -> Path:
    return directory / "ledger.db"


def test_private_events_leave_no_trace_in_the_public_head(tmp_path: Path) -> None:
    """Two silos with the same public history, one with withdrawals, more records and lowered budgets."""
    found = []
    for name, private in (("quiet", False), ("busy", True)):
        (tmp_path / name).mkdir()
        table = small.budgets()
        with small.make(tmp_path / name, table) as ledger:
            if private:
                ledger.withdraw(["r1"])
                ledger.add(BudgetTable(["new"], [1.0]))
            ledger.reserve("run", small.plan(ledger, table), None)
            ledger.charge("run", 1, heads)
            if private:
                ledger.lower_budgets(["r3"], 0.1)
            ledger.charge("run", 2, heads)
            ledger.store("run", 2, b"update")
            found.append(ledger.public_head())
            assert ledger.chain.seq == (8 if private else 5)
    assert found[0].count == found[1].count == 4
    assert found[0].head == found[1].head


@pytest.mark.parametrize(("schedule", "second_join"), [({}, None), ({"participations": 2}, (2, 4))])
def test_coins_leave_no_trace_in_the_public_head(
    tmp_path: Path, schedule: dict[str, int], second_join: tuple[int, ...] | None
) -> None:
    """A server that knows every round could try both coins against the head: it must be the same whatever they say."""
    found = []
    for name, coin, join in (("in", heads, (1, 3)), ("out", small.tails, second_join)):
        (tmp_path / name).mkdir()
        table = small.budgets()
        with small.make(tmp_path / name, table) as ledger:
            ledger.reserve("run", small.plan(ledger, table, **schedule), None)
            drawn = None if join is None else partial(tuple, join)  # with the first charge
            coins = [ledger.charge("run", number, coin, drawn).joined for number in (1, 2)]
            found.append((ledger.public_head().count, ledger.public_head().head, ledger.chain.head, coins))
    (count, public, private, coins), (other_count, other_public, other_private, other_coins) = found
    assert coins != other_coins
    assert (count, public) == (other_count, other_public)
    assert private != other_private  # the silo's own chain does cover the coin


def test_every_public_event_changes_the_head(tmp_path: Path) -> None:
    with small.admitted(tmp_path) as ledger:
        seen = [ledger.public_head()]
        ledger.charge("run", 1, heads)
        seen.append(ledger.public_head())
        ledger.store("run", 1, b"update")
        seen.append(ledger.public_head())
    assert [head.count for head in seen] == [1, 2, 3]
    assert len({head.head for head in seen}) == 3
    assert PublicHead.from_json(seen[0].to_json()) == seen[0]
    with pytest.raises(InputError, match="not the head of a ledger"):
        PublicHead.from_json("{}")


@pytest.mark.parametrize("after", ["charge", "store", "withdraw", "reserve"])
def test_a_rolled_back_file_is_refused(tmp_path: Path, after: str) -> None:
    """Any commit counts, also one that no server sees."""
    table = small.budgets()
    with small.admitted(tmp_path, table) as ledger:
        ledger.charge("run", 1, heads)
    shutil.copy(files(tmp_path), tmp_path / "backup")
    with Ledger.open(files(tmp_path)) as ledger:
        if after == "charge":
            ledger.charge("run", 2, heads)
        elif after == "store":
            ledger.store("run", 1, b"update")
        elif after == "withdraw":
            ledger.withdraw(["r0"])
            ledger.left(table, LIFETIME_DELTA)
        else:
            ledger.reserve("another", small.plan(ledger, table), None)
    Ledger.open(files(tmp_path)).close()
    shutil.copy(tmp_path / "backup", files(tmp_path))
    with pytest.raises(PrivacyRefusal, match="rolled back: it ends with event 3, but had 4 events"):
        Ledger.open(files(tmp_path))
    with Ledger.read(files(tmp_path)) as reader:
        assert {finding.check for finding in reader.verify().findings} == {"chain"}


def test_a_forked_history_is_refused(tmp_path: Path) -> None:
    small.admitted(tmp_path).close()
    shutil.copytree(tmp_path, tmp_path / "copy")
    for place, coin in ((tmp_path, heads), (tmp_path / "copy", small.tails)):
        with Ledger.open(files(place)) as ledger:
            ledger.charge("run", 1, coin)
    shutil.copy(files(tmp_path / "copy"), files(tmp_path))
    with pytest.raises(PrivacyRefusal, match="history differs from the one noted at event 3"):
        Ledger.open(files(tmp_path))


def test_a_backup_of_the_whole_directory_is_refused_by_what_the_server_keeps(tmp_path: Path) -> None:
    now, then = tmp_path / "now", tmp_path / "then"
    now.mkdir()
    with small.admitted(now) as ledger:
        ledger.charge("run", 1, heads)
        early = ledger.public_head()
    shutil.copytree(now, then)
    with Ledger.open(files(now)) as ledger:
        ledger.charge("run", 2, heads)
        kept_by_server = ledger.public_head()
        ledger.charge("run", 3, heads)
    Ledger.open(files(then), acknowledged=early).close()
    with pytest.raises(PrivacyRefusal, match="it has 2 public events, but 3 were acknowledged"):
        Ledger.open(files(then), acknowledged=kept_by_server)
    Ledger.open(files(now), acknowledged=kept_by_server).close()
    with pytest.raises(PrivacyRefusal, match="history differs from the acknowledged one"):
        Ledger.open(files(now), acknowledged=replace(kept_by_server, head="00" * 32))
    with pytest.raises(PrivacyRefusal, match="use the right one"):
        Ledger.open(files(now), acknowledged=replace(kept_by_server, ledger="another"))


def test_an_acknowledged_head_is_kept(tmp_path: Path) -> None:
    with small.admitted(tmp_path) as ledger:
        ledger.charge("run", 1, heads)
        ledger.acknowledge(ledger.public_head())
        ledger.charge("run", 2, heads)
    head_file = tmp_path / "ledger.db.head"
    with Ledger.open(files(tmp_path)) as again:
        kept = again.acknowledged
        assert kept is not None
        assert kept.count == 2
    assert head_file.stat().st_size == 1024


@pytest.mark.parametrize("torn", [0, 1])
def test_a_torn_note_leaves_the_other_one(tmp_path: Path, torn: int) -> None:
    with small.admitted(tmp_path) as ledger:
        ledger.charge("run", 1, heads)
        ledger.charge("run", 2, heads)
    note = tmp_path / "ledger.db.head"
    content = bytearray(note.read_bytes())
    content[512 * torn + 40] ^= 1
    note.write_bytes(content)
    with Ledger.open(files(tmp_path)) as again:
        assert again.chain.seq == 4


def test_without_the_note_only_an_acknowledged_head_opens(tmp_path: Path) -> None:
    with small.admitted(tmp_path) as ledger:
        head = ledger.public_head()
    (tmp_path / "ledger.db.head").unlink()
    with pytest.raises(PrivacyRefusal, match="a rollback of this ledger could not be noticed"):
        Ledger.open(files(tmp_path))
    Ledger.open(files(tmp_path), acknowledged=head).close()
    Ledger.open(files(tmp_path)).close()


def spent_and_rolled_back(directory: Path) -> tuple[bytes, PublicHead]:
    """A ledger that forgot a whole run, and the note that remembers it."""
    table = small.budgets()
    small.make(directory, table).close()
    shutil.copy(files(directory), directory / "backup")
    with Ledger.open(files(directory)) as ledger:
        ledger.reserve("run", small.plan(ledger, table), None)
        ledger.charge("run", 1, heads)
        head = ledger.public_head()
    shutil.copy(directory / "backup", files(directory))
    return (directory / "ledger.db.head").read_bytes(), head


def test_no_damage_to_the_note_lets_a_rolled_back_ledger_in(tmp_path: Path) -> None:
    """Every length that a truncation can leave, every byte changed in one slot, and the same in both."""
    content, head = spent_and_rolled_back(tmp_path)
    note = tmp_path / "ledger.db.head"
    damaged = [content[:length] for length in range(0, len(content) + 1, 7)]
    damaged += [content[length:] for length in range(0, len(content) + 1, 37)]
    for place in range(0, 512, 3):
        for slots in ((0,), (1,), (0, 1)):
            changed = bytearray(content)
            for slot in slots:
                changed[512 * slot + place] ^= 1 << (place % 8)
            damaged.append(bytes(changed))
    damaged += [b"", bytes(1024), b"\xff" * 1024, b" " * 1024, content[512:] + content[:512], content * 3]
    for number, image in enumerate(damaged):
        note.write_bytes(image)
        with pytest.raises(PrivacyRefusal, match=r"rolled back|cannot be read, so a rollback"):
            Ledger.open(files(tmp_path))
        if number % 50 == 0:
            with pytest.raises(PrivacyRefusal, match="older than its acknowledged state"):
                Ledger.open(files(tmp_path), acknowledged=head)
            with Ledger.read(files(tmp_path)) as reader:
                assert {finding.check for finding in reader.verify().findings} == {"chain"}


@pytest.mark.parametrize("what", ["empty", "zeros", "a directory", "a pipe", "a link to nothing"])
def test_a_note_that_cannot_be_read_has_the_way_out_of_a_lost_one(tmp_path: Path, what: str) -> None:
    with small.admitted(tmp_path) as ledger:
        head = ledger.public_head()
    note = tmp_path / "ledger.db.head"
    note.unlink()
    if what == "a directory":
        note.mkdir()
    elif what == "a pipe":
        os.mkfifo(note)
    elif what == "a link to nothing":
        note.symlink_to(tmp_path / "nothing")
    else:
        note.write_bytes(bytes(1024) if what == "zeros" else b"")
    with pytest.raises(PrivacyRefusal, match="cannot be read, so a rollback of this ledger could not be noticed"):
        Ledger.open(files(tmp_path))
    if note.is_file():
        Ledger.open(files(tmp_path), acknowledged=head).close()
        Ledger.open(files(tmp_path)).close()
    assert not (tmp_path / "nothing").exists()


def test_a_note_that_cannot_be_read_is_no_place_for_a_new_ledger(tmp_path: Path) -> None:
    small.admitted(tmp_path).close()
    files(tmp_path).unlink()
    (tmp_path / "ledger.db.head").write_bytes(b"")
    with pytest.raises(PrivacyRefusal, match="a ledger may have been here"):
        small.make(tmp_path)


@pytest.mark.parametrize("damaged", [0, 1])
def test_each_slot_alone_remembers_the_last_event(tmp_path: Path, damaged: int) -> None:
    """A backup from one event ago, and either slot lost."""
    with small.admitted(tmp_path) as ledger:
        ledger.charge("run", 1, heads)
    shutil.copy(files(tmp_path), tmp_path / "backup")
    with Ledger.open(files(tmp_path)) as ledger:
        ledger.charge("run", 2, heads)
    note = tmp_path / "ledger.db.head"
    content = bytearray(note.read_bytes())
    content[512 * damaged : 512 * damaged + 512] = bytes(512)
    note.write_bytes(content)
    shutil.copy(tmp_path / "backup", files(tmp_path))
    with pytest.raises(PrivacyRefusal, match="rolled back: it ends with event 3, but had 4 events"):
        Ledger.open(files(tmp_path))


def test_heads_of_several_silos_are_kept_in_one_file(tmp_path: Path) -> None:
    """Its path may be a text; heads that are not replaced stay."""
    path = str(tmp_path / "server" / "heads.json")
    assert read_heads(path) == {}
    first, second = PublicHead("a" * 32, 1, "00"), PublicHead("b" * 32, 2, "11")
    write_heads(path, {"north": first})
    write_heads(path, {"south": second})
    assert read_heads(path) == {"north": first, "south": second}


def test_a_head_in_the_file_is_never_replaced_by_an_older_one(tmp_path: Path) -> None:
    """Several runs of one server write it, each with what it knows. Nor does a head of another ledger replace it."""
    path = tmp_path / "heads.json"
    older, newer = PublicHead("a" * 32, 3, "03"), PublicHead("a" * 32, 7, "07")
    for given in (older, newer, older):
        write_heads(path, {"north": given})
    assert read_heads(path) == {"north": newer}
    write_heads(path, {"north": PublicHead("c" * 32, 9, "09")})
    assert read_heads(path) == {"north": newer}


def test_runs_that_write_the_file_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "heads.json"

    def write(place: int) -> None:
        for count in range(1, 6):
            write_heads(path, {f"silo {place}": PublicHead("a" * 32, count, f"{count:02d}")})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert {silo: head.count for silo, head in read_heads(path).items()} == {f"silo {place}": 5 for place in range(6)}


def test_a_note_of_another_ledger_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        small.admitted(tmp_path / name).close()
    shutil.copy(tmp_path / "two" / "ledger.db.head", tmp_path / "one" / "ledger.db.head")
    with pytest.raises(PrivacyRefusal, match=r"belongs to ledger .*, not to this one"):
        Ledger.open(files(tmp_path / "one"))


def test_an_acknowledged_head_is_on_disk_when_that_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server forgets older heads from then on."""
    synced: set[int] = set()
    sync = os.fsync

    def noted(file: int) -> None:
        synced.add(os.fstat(file).st_ino)
        sync(file)

    with small.admitted(tmp_path) as ledger:
        head, note = ledger.public_head(), (tmp_path / "ledger.db.head").stat().st_ino
        with monkeypatch.context() as watched:
            watched.setattr(os, "fsync", noted)
            ledger.acknowledge(head)
    assert note in synced
    synced.clear()
    with monkeypatch.context() as watched:
        watched.setattr(os, "fsync", noted)
        Ledger.open(files(tmp_path), acknowledged=head).close()
    assert note in synced


def test_an_acknowledged_head_that_the_ledger_has_not_is_refused(tmp_path: Path) -> None:
    """Although its last event is the one that was noted."""
    with small.admitted(tmp_path) as ledger:
        ahead = PublicHead(ledger.id, ledger.public_head().count + 1, "00" * 32)
    with Ledger.read(files(tmp_path)) as reader:
        notes = RollbackNotes(tmp_path / "ledger.db.head", reader.id)
        notes.note(reader.chain, ahead)
        notes.close()
    with pytest.raises(PrivacyRefusal, match="it has 1 public events, but 2 were acknowledged"):
        Ledger.open(files(tmp_path))


def test_an_opening_with_the_servers_head_notes_where_the_ledger_stands(tmp_path: Path) -> None:
    """The note was lost. After one opening with the acknowledged head there is one again, and it is of today."""
    with small.admitted(tmp_path) as ledger:
        ledger.charge("run", 1, heads)
    shutil.copy(files(tmp_path), tmp_path / "backup")
    with Ledger.open(files(tmp_path)) as ledger:
        ledger.charge("run", 2, heads)
        kept_by_server = ledger.public_head()
    (tmp_path / "ledger.db.head").unlink()
    Ledger.open(files(tmp_path), acknowledged=kept_by_server).close()
    with Ledger.open(files(tmp_path)) as again:
        assert again.acknowledged == kept_by_server
    shutil.copy(tmp_path / "backup", files(tmp_path))
    with pytest.raises(PrivacyRefusal, match="rolled back: it ends with event 3, but had 4 events"):
        Ledger.open(files(tmp_path))
