"""What a real run needs beyond a simulation: a name, a ledger for every silo, and limits that somebody has stated.

Everything here is local to whoever holds the ledgers; the server hears of a run only when all of it is in place.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.heads import NAME as HEADS
from rpdp.ledger.heads import read_heads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rpdp.ledger import Ledger, PublicHead
    from rpdp.studies.study_file import StudyFile


def run_id(spec: StudyFile, method: str) -> str:
    """The name of a real run, if the file describes one."""
    missing = _missing(spec)
    if missing:
        raise PrivacyRefusal(
            f"{spec.path}: without seeds this is a real run, and it lacks {'; '.join(missing)}. A ledger is made with "
            "`rpdp ledger create LEDGER --budgets FILE --lifetime-delta DELTA`; for a simulation, which protects "
            "nobody, give seeds = 1 in [run], or --seed"
        )
    if method != "rpdp":
        raise PrivacyRefusal(f"{spec.path}: method {method} is for simulations only; a real run uses rpdp")
    assert spec.ledgers is not None
    assert spec.budgets.files is not None
    assert spec.run.id is not None
    if set(spec.ledgers) != set(spec.budgets.files):
        raise InputError(
            f"{spec.path}: [ledgers] names {', '.join(sorted(spec.ledgers))}, budgets.files "
            f"{', '.join(sorted(spec.budgets.files))}; both must name exactly the silos"
        )
    if spec.run.split != "fixed":
        raise InputError(f'{spec.path}: run.split="{spec.run.split}" goes with seeds; a real run has one split')
    return spec.run.id


def _missing(spec: StudyFile) -> list[str]:
    wanted = {
        '[run] id = "…", its name in the ledgers': spec.run.id,
        '[ledgers] with silo = "path of its production ledger"': spec.ledgers,
        'budgets.files = {silo = "budgets.csv"} (made-up budgets bind nobody)': spec.budgets.files,
        "budgets.records_per_silo, declared: a count of the real records would become public": (
            spec.budgets.records_per_silo
        ),
    }
    unstated = [name for name, limit in vars(spec.policy).items() if limit is None]
    limits = [f"[policy] {', '.join(unstated)}, which the silos state (a limit taken from the run itself is none)"]
    return [what for what, given in wanted.items() if given is None] + (limits if unstated else [])


def heads_of(spec: StudyFile) -> Path:
    """Where the server keeps the ledgers' heads: beside all runs of the study, so that no run forgets them."""
    return spec.output / HEADS


@contextmanager
def opened_ledgers(spec: StudyFile, run: str, *, resume: bool) -> Iterator[dict[str, Ledger]]:
    """The silos' ledgers, all of them held by this process; none older than the head that the server knows."""
    assert spec.ledgers is not None
    heads = read_heads(heads_of(spec))
    with ExitStack() as stack:
        ledgers = {
            silo: stack.enter_context(_opened(silo, spec.directory / path, heads.get(silo)))
            for silo, path in sorted(spec.ledgers.items())
        }
        _require_new(ledgers, run, resume=resume)
        _require_known(ledgers, heads, run, heads_of(spec))
        yield ledgers


def _opened(silo: str, path: Path, acknowledged: PublicHead | None) -> Ledger:
    from rpdp.ledger import Ledger

    if not path.is_file():
        raise PrivacyRefusal(
            f"ledgers.{silo}: there is no ledger {path}. Make one with "
            f"`rpdp ledger create {path} --budgets FILE --lifetime-delta DELTA`"
        )
    try:
        ledger = Ledger.open(path, acknowledged=acknowledged)
    except PrivacyRefusal as error:
        raise PrivacyRefusal(f"silo {silo}: {error}") from error
    if ledger.is_simulation:
        ledger.close()
        raise PrivacyRefusal(
            f"ledgers.{silo}: {path} was made for simulations, for ever; a real run needs a production ledger, made "
            "with `rpdp ledger create` and without --simulation"
        )
    return ledger


def _require_new(ledgers: Mapping[str, Ledger], run: str, *, resume: bool) -> None:
    known = [silo for silo, ledger in ledgers.items() if run in {status.run for status in ledger.status().runs}]
    if known and not resume:
        raise InputError(
            f"run.id={run!r} is in the ledger of {', '.join(known)} already: go on with that run (--resume), or give a "
            "new run a new id"
        )


def _require_known(ledgers: Mapping[str, Ledger], heads: Mapping[str, PublicHead], run: str, path: Path) -> None:
    """Refuse a used ledger of which the server remembers nothing: a restored backup would look like that."""
    for silo, ledger in ledgers.items():
        others = sorted({status.run for status in ledger.status().runs} - {run})
        if silo in heads:
            continue
        if others:
            raise PrivacyRefusal(
                f"silo {silo}: its ledger has earlier runs ({', '.join(others)}), and {path} knows none of them; an "
                "older state of it could not be told from the newest. Put the heads.json of those runs there first"
            )
        if ledger.acknowledged is not None and ledger.acknowledged.count:
            raise PrivacyRefusal(
                f"silo {silo}: a server has acknowledged {ledger.acknowledged.count:,} public events of its ledger, "
                f"and {path} knows nothing of it: that file was lost, or the run was begun from another directory. Put "
                "the heads.json of this run there first"
            )
