"""Is this run fit to start? Everything that can be known before a long run, as a list of findings with advice.

The examination sees real records and budgets, so its findings stay with whoever holds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

from rpdp.errors import RpdpError
from rpdp.federation.simulation import require_participants
from rpdp.studies.building import PreparedRun, build
from rpdp.studies.real_run import run_id
from rpdp.studies.study_data import load_source, make_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rpdp.studies.study_file import MethodSettings, StudyFile

Level = Literal["ok", "warning", "problem"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class DoctorFinding:
    """One thing that was looked at.

    Attributes:
        level: "problem" when the run cannot start, "warning" when somebody should look.
        topic: What was looked at.
        message: What was found.
        advice: What to do about it.
        exit_code: Of a problem: 2 for bad input, 3 when it is refused for privacy.
    """

    level: Level
    topic: str
    message: str
    advice: str = ""
    exit_code: int = 0


@dataclass
class Examination:
    """The findings on a run, in the order in which they were made."""

    findings: list[DoctorFinding] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if the run can start, else the code of the first problem."""
        return next((finding.exit_code for finding in self.findings if finding.level == "problem"), 0)

    def add(self, found: Iterable[DoctorFinding]) -> None:
        """Take over findings; what cannot even be examined is a problem by itself."""
        self.findings.extend(found)


def examine(spec: StudyFile, settings: MethodSettings, seed: int) -> Examination:
    """Look at data, model, budgets, plan, time, memory and machine; later stages need the earlier ones."""
    from rpdp.studies import doctor_checks as examinations

    done = Examination()
    source = _stage(done, "data", lambda: load_source(spec, seed))
    if source is not None:
        done.add(examinations.data(source))
    model = _stage(done, "model", lambda: make_model(spec, seed))
    if source is None or model is None:
        return done
    fit = _stage(done, "model", lambda: examinations.model(model, source))
    done.add(fit or [])
    if fit is None or done.exit_code:
        return done
    built: PreparedRun | None = _stage(done, "budgets and plan", lambda: _planned(spec, settings, seed))
    if built is None:
        return done
    for look in (examinations.budgets, examinations.plan, examinations.resources, examinations.machine):
        done.add(_stage(done, look.__name__, lambda look=look: look(built)) or [])  # type: ignore[misc]
    if spec.ledgers is not None:
        _stage(done, "real run", lambda: run_id(spec, settings.method))
    return done


def _planned(spec: StudyFile, settings: MethodSettings, seed: int) -> PreparedRun:
    """The run with the plans that its silos would make; refused if nobody could take part."""
    built = build(spec, settings, seed)
    require_participants(list(built.plans.values()), settings.method)
    return built


def _stage(done: Examination, topic: str, work: Callable[[], Result]) -> Result | None:
    """Do a part of the examination; if it fails, that is the finding."""
    try:
        return work()
    except RpdpError as error:
        done.add(
            [DoctorFinding("problem", topic, str(error), exit_code=error.exit_code if error.exit_code in (2, 3) else 2)]
        )
        return None
