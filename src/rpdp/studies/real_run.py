"""What a real run needs beyond a simulation: a name, a ledger for every silo, and stated limits.

All of this is local to the holder of the ledgers. The server learns of a run only when everything is in place.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation.heads import NAME as HEADS
from rpdp.federation.heads import read_heads
from rpdp.federation.stated_limits import PolicySection, stated_limits
from rpdp.ledger.store.ledger_files import LedgerFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rpdp.ledger import Ledger, PublicHead
    from rpdp.studies.study_file import StudyFile


_OPTIONAL_LIMITS = ("max_epsilon_per_run", "reserved", "silos_per_person")

REQUIRED_LIMITS = tuple(field.name for field in fields(PolicySection) if field.name not in _OPTIONAL_LIMITS)
"""What every silo states itself before a new real run begins."""


def run_id(spec: StudyFile, method: str, *, resume: bool = False) -> str:
    """Return the name of a real run; refused unless the study file describes one.

    A run that is resumed has its allowance already, and release 0.1 read its other limits from the study file. If there
    is no such run, none is admitted: `own_limits` looks again when the ledgers are open.
    """
    missing = _missing(spec, resume=resume)
    if missing:
        raise PrivacyRefusal(
            f"{spec.path}: without seeds this is a real run, but it lacks {'; '.join(missing)}. Create a ledger with "
            "`rpdp ledger create LEDGER --budgets FILE --lifetime-delta DELTA`. For a simulation, which protects "
            "nobody, give seeds = 1 in [run], or --seed"
        )
    if method != "rpdp":
        raise PrivacyRefusal(f"{spec.path}: method {method} is for simulations only; a real run uses rpdp")
    assert spec.ledgers is not None
    assert spec.budgets.files is not None
    assert spec.run.id is not None
    if set(spec.ledgers) != set(spec.budgets.files):
        raise InputError(
            f"{spec.path}: [ledgers] names {', '.join(sorted(spec.ledgers))}, but budgets.files names "
            f"{', '.join(sorted(spec.budgets.files))}; both must name exactly the silos"
        )
    if spec.run.split != "fixed":
        raise InputError(f'{spec.path}: run.split="{spec.run.split}" needs seeds; a real run has one split ("fixed")')
    return spec.run.id


def _missing(spec: StudyFile, *, resume: bool) -> list[str]:
    wanted = {
        '[run] id = "…", its name in the ledgers': spec.run.id,
        '[ledgers] with silo = "path of its production ledger"': spec.ledgers,
        'budgets.files = {silo = "budgets.csv"} (made-up budgets bind nobody)': spec.budgets.files,
        "budgets.records_per_silo, declared: a count of the real records would become public": (
            spec.budgets.records_per_silo
        ),
    }
    unstated = [_unstated(spec, silo, resume=resume) for silo in spec.ledgers or ()]
    return [what for what, given in wanted.items() if given is None] + [what for what in unstated if what]


def _unstated(spec: StudyFile, silo: str, *, resume: bool) -> str:
    """What is missing of a silo's own limits, in words; empty if nothing is."""
    path = _ledger_of(spec, silo)
    if resume or not path.exists():  # asked when the ledger is open; one that is missing is told by itself
        return ""
    return _lacking(path, silo, stated_limits(path))


def _lacking(path: Path, silo: str, stated: Mapping[str, Any]) -> str:
    names = [name for name in REQUIRED_LIMITS if name not in stated]
    if not names:
        return ""
    return (
        f"{', '.join(names)} in {LedgerFiles(path).limits}, where silo {silo} states its own limits (the study file's "
        "[policy] belongs to whoever runs the study, so it limits nothing)"
    )


def own_limits(spec: StudyFile, silo: str, ledger: Ledger) -> dict[str, Any]:
    """Return the limits that a silo states beside its ledger; refused unless a new run finds all of them."""
    path = _ledger_of(spec, silo)
    stated = stated_limits(path)
    lacking = _lacking(path, silo, stated)
    if lacking and all(status.run != spec.run.id for status in ledger.status().runs):
        raise PrivacyRefusal(f"{spec.path}: a new run lacks {lacking}; nothing was reserved")
    return stated


def _ledger_of(spec: StudyFile, silo: str) -> Path:
    assert spec.ledgers is not None
    return spec.directory / spec.ledgers[silo]


def heads_of(spec: StudyFile) -> Path:
    """Return the file of ledger heads that the server keeps. All runs of the study share it."""
    return spec.output / HEADS


@contextmanager
def open_ledgers(spec: StudyFile, run: str, *, resume: bool, wait: float = 0.0) -> Iterator[dict[str, Ledger]]:
    """Open the silos' ledgers as their writer; refused if one is older than the head that the server knows.

    Waits for each ledger in turn, by the names of the silos, so that two runs of the same silos never block each other.
    """
    assert spec.ledgers is not None
    heads = read_heads(heads_of(spec))
    with ExitStack() as stack:
        ledgers = {
            silo: stack.enter_context(_open_ledger(silo, spec.directory / path, heads.get(silo), wait))
            for silo, path in sorted(spec.ledgers.items())
        }
        _require_new(ledgers, run, resume=resume)
        _require_known(ledgers, heads, run, heads_of(spec))
        yield ledgers


def _open_ledger(silo: str, path: Path, acknowledged: PublicHead | None, wait: float) -> Ledger:
    from rpdp.ledger import Ledger

    if not path.is_file():
        raise PrivacyRefusal(
            f"ledgers.{silo}: there is no ledger {path}. Create one with "
            f"`rpdp ledger create {path} --budgets FILE --lifetime-delta DELTA`"
        )
    try:
        ledger = Ledger.open(path, acknowledged=acknowledged, wait=wait)
    except PrivacyRefusal as error:
        raise PrivacyRefusal(f"silo {silo}: {error}") from error
    if ledger.is_simulation:
        ledger.close()
        raise PrivacyRefusal(
            f"ledgers.{silo}: {path} was created for simulations, which cannot be changed; a real run needs a "
            "production ledger, made with `rpdp ledger create` without --simulation"
        )
    return ledger


def _require_new(ledgers: Mapping[str, Ledger], run: str, *, resume: bool) -> None:
    statuses = {silo: [one for one in ledger.status().runs if one.run == run] for silo, ledger in ledgers.items()}
    known = [silo for silo, found in statuses.items() if found]
    cancelled = [silo for silo, found in statuses.items() if any(one.is_over for one in found)]
    if cancelled:
        raise InputError(
            f"run.id={run!r} was cancelled before its first round, or has expired, in the ledger of "
            f"{', '.join(cancelled)}; a cancelled run never returns. Give the run a new id"
        )
    if known and not resume:
        raise InputError(
            f"run.id={run!r} is already in the ledger of {', '.join(known)}: continue that run (--resume), or give a "
            "new run a new id"
        )


def _require_known(ledgers: Mapping[str, Ledger], heads: Mapping[str, PublicHead], run: str, path: Path) -> None:
    """Refuse a used ledger whose head the server does not have, because a restored backup would look the same."""
    for silo, ledger in ledgers.items():
        others = sorted({status.run for status in ledger.status().runs if not status.is_over} - {run})
        if silo in heads:
            continue
        if others:
            raise PrivacyRefusal(
                f"silo {silo}: its ledger has earlier runs ({', '.join(others)}), but {path} has no head of it, so a "
                "restored backup could not be noticed. Put the heads.json of those runs there first"
            )
        if ledger.acknowledged is not None and ledger.acknowledged.count:
            raise PrivacyRefusal(
                f"silo {silo}: a server has acknowledged {ledger.acknowledged.count:,} public events of its ledger, "
                f"but {path} has no head of it: that file was lost, or the run was started from another directory. Put "
                "the heads.json of this run there first"
            )
