"""`rpdp doctor`: is this run fit to start? Everything that can be known before a long run, with advice.

The examination sees real records and budgets, and the ledgers of a real run, so its findings must stay with the holder
of those.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

from rpdp.errors import PrivacyRefusal, RpdpError
from rpdp.federation.simulation import require_participants
from rpdp.studies.building import PreparedRun, build
from rpdp.studies.private_scale import as_declared, expected_scale
from rpdp.studies.real_run import run_id
from rpdp.studies.study_data import load_source, make_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from rpdp.ledger import Ledger
    from rpdp.planning import SiloPlan
    from rpdp.studies.study_file import MethodSettings, StudyFile

Level = Literal["ok", "warning", "problem"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class DoctorFinding:
    """One finding of the examination.

    Attributes:
        level: "problem" if the run cannot start, "warning" if it needs attention.
        topic: What was examined.
        message: What was found.
        advice: What to do about it.
        exit_code: The exit code of a problem: 2 for bad input, 3 for a privacy refusal.
    """

    level: Level
    topic: str
    message: str
    advice: str = ""
    exit_code: int = 0


@dataclass
class Examination:
    """The findings about a run, in order."""

    findings: list[DoctorFinding] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if the run can start; otherwise the exit code of the first problem."""
        return next((finding.exit_code for finding in self.findings if finding.level == "problem"), 0)

    def add(self, found: Iterable[DoctorFinding]) -> None:
        """Add findings."""
        self.findings.extend(found)


def examine(spec: StudyFile, settings: MethodSettings, seed: int) -> Examination:
    """Examine data, model, budgets, plan, time, memory and machine. A later stage needs the earlier ones."""
    from rpdp.studies import doctor_checks as examinations
    from rpdp.studies.metric_checks import metrics

    done = Examination()
    for line in _stage(done, "private scale", lambda: expected_scale(spec)) or []:
        done.add([DoctorFinding("ok", "private scale", line)])
    spec = as_declared(spec)
    source = _stage(done, "data", lambda: load_source(spec, seed))
    if source is not None:
        done.add(examinations.data(source))
    model = _stage(done, "model", lambda: make_model(spec, seed))
    if source is None or model is None:
        return done
    fit = _stage(done, "model", lambda: examinations.model(model, source, is_real=spec.ledgers is not None))
    done.add(fit or [])
    if fit is None or done.exit_code:
        return done
    if spec.ledgers is None:  # a real run measures nothing
        done.add(_stage(done, "metrics", lambda: list(metrics(spec, model, source))) or [])
        if done.exit_code:
            return done
    with ExitStack() as stack:
        ledgers = _stage(done, "ledger", lambda: _ledgers(spec, stack)) if spec.ledgers is not None else None
        _examine_plan(done, spec, settings, None if ledgers else seed, ledgers or {})
    if spec.ledgers is not None:
        _stage(done, "real run", lambda: run_id(spec, settings.method))
    return done


def _examine_plan(
    done: Examination, spec: StudyFile, settings: MethodSettings, seed: int | None, ledgers: Mapping[str, Ledger]
) -> None:
    """Examine what needs a plan: of a real run with ledgers, from what they have left."""
    from rpdp.studies import doctor_checks as examinations

    built = _stage(done, "budgets and plan", lambda: build(spec, settings, seed, ledgers or None))
    if built is None:
        return
    if ledgers:
        done.add(_stage(done, "ledger", lambda: list(examinations.ledgers(built, ledgers))) or [])
        if done.exit_code:  # a refusal says more than what follows from it
            return
    plans = _stage(done, "budgets and plan", lambda: _participating(built, settings))
    if plans is None:
        return
    budgets = [] if ledgers else [examinations.budgets]
    for check in (*budgets, examinations.plan, examinations.resources, examinations.machine):
        done.add(_stage(done, check.__name__, lambda check=check: list(check(built))) or [])  # type: ignore[misc]


def _ledgers(spec: StudyFile, stack: ExitStack) -> dict[str, Ledger]:
    """Open the ledgers of a real run for reading, while others may write."""
    assert spec.ledgers is not None
    from rpdp.ledger import Ledger

    missing = [f"ledgers.{silo}: there is no ledger {path}" for silo, path in _paths(spec) if not path.is_file()]
    if missing:
        raise PrivacyRefusal(
            f"{'; '.join(missing)}. Create one with `rpdp ledger create LEDGER --budgets FILE --lifetime-delta DELTA`. "
            "Until then budgets are examined as stated"
        )
    return {silo: stack.enter_context(Ledger.read(path)) for silo, path in _paths(spec)}


def _paths(spec: StudyFile) -> list[tuple[str, Path]]:
    return [(silo, spec.directory / path) for silo, path in sorted((spec.ledgers or {}).items())]


def _participating(built: PreparedRun, settings: MethodSettings) -> Mapping[str, SiloPlan]:
    """Let the silos plan; refused if no record could take part."""
    require_participants(list(built.plans.values()), settings.method)
    return built.plans


def _stage(done: Examination, topic: str, work: Callable[[], Result]) -> Result | None:
    """Do one part of the examination; a failure becomes a finding."""
    try:
        return work()
    except RpdpError as error:
        done.add(
            [DoctorFinding("problem", topic, str(error), exit_code=error.exit_code if error.exit_code in (2, 3) else 2)]
        )
        return None
