"""`train`: a simulation or a real run, in a directory of its own, and on from where an interrupted run stopped.

Nothing is written before the first round is over: a run that is refused leaves no file behind. After every round the
directory holds the log so far and a checkpoint, from which a run goes on to exactly the same model.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.federation import run_production
from rpdp.federation.checkpoint import NAME as CHECKPOINT_FILE
from rpdp.federation.checkpoint import Checkpoint
from rpdp.federation.devices import require_device
from rpdp.studies.building import build
from rpdp.studies.execution import execute, real_run_errors, slow_kernel_remarks
from rpdp.studies.real_run import heads_of, opened_ledgers, run_id
from rpdp.studies.run_directory import (
    MODEL,
    PLAN,
    RESULT,
    ROUNDS,
    SILOS,
    STUDY_FILE,
    append_round,
    is_finished,
    read_result,
    study_file_in,
    write_result,
    write_rounds,
)
from rpdp.studies.run_reports import EDITIONS, write_reports
from rpdp.studies.shortfalls import require_full, standings
from rpdp.studies.study_file import StudyFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rpdp.federation import RoundLog, RunResult
    from rpdp.ledger import Ledger
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.shortfalls import Shortfall
    from rpdp.studies.study_file import MethodSettings

CHECKPOINT = "checkpoint"
_OURS = (STUDY_FILE, PLAN, ROUNDS, MODEL, RESULT, *EDITIONS.values(), SILOS, CHECKPOINT)


@dataclass(frozen=True)
class TrainedRun:
    """A run and where it is.

    Attributes:
        result: What it led to.
        directory: Where it is.
        was_finished: Whether there was nothing left to do.
        standings: Who got less than their budgets allow, if a real run was admitted by this call. Sensitive.
    """

    result: RunResult
    directory: Path
    was_finished: bool = False
    standings: tuple[Shortfall, ...] = ()


def train(
    spec: StudyFile,
    settings: MethodSettings,
    seed: int | None,
    directory: Path,
    *,
    resume: bool = False,
    force: bool = False,
    strict: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    on_begin: Callable[[PreparedRun], None] | None = None,
    on_round: Callable[[RoundLog], None] | None = None,
    on_remark: Callable[[str], None] | None = None,
) -> TrainedRun:
    """Run a method, on a seed or for real, and leave everything in a directory.

    Args:
        spec: The study file.
        settings: Of the method.
        seed: Of the simulation; None for a real run, which needs ledgers.
        directory: Must not exist or be empty, unless the run is resumed or forced.
        resume: Go on with the run that is there; a finished one is left as it is.
        force: Remove what an earlier run left there.
        strict: Refuse a real run, before anything is reserved, in which a record gets less than its full budget allows.
        workers: Processes of a simulation; does not change the result. A real run has one.
        device: Where a simulation trains, cpu or cuda. A real run trains on the CPU.
        on_begin: Told what is about to run.
        on_round: Told of every round.
        on_remark: Told what is good to know, such as a slow kernel.
    """
    run = _checked(spec, settings, seed, device, strict=strict, force=force)
    require_device(device, workers or 1, "--workers")
    prepare(directory, spec, resume=resume, force=force)
    if resume and is_finished(directory):
        earlier = read_result(directory)
        _require_same(earlier, settings, seed, directory)
        return TrainedRun(earlier, directory, was_finished=True)
    checkpoint = directory / CHECKPOINT
    found: tuple[Shortfall, ...] = ()
    with ExitStack() as stack:
        if seed is None:
            ledgers = stack.enter_context(opened_ledgers(spec, run, resume=resume))
            built = build(spec, settings, None, ledgers)
            found = _tell_steward(built, ledgers, run, on_remark, strict=strict)
        else:
            built = build(spec, settings, seed, device=device)
        if on_begin is not None:
            on_begin(built)
        recorder = _Recorder(directory, built, on_round)
        if seed is not None:
            result = execute(built, workers=workers, on_round=recorder, on_remark=on_remark, checkpoint=checkpoint)
        else:
            with real_run_errors(), slow_kernel_remarks(on_remark):
                result = run_production(
                    built.model,
                    built.source.loss,
                    built.silos,
                    built.public,
                    run=run,
                    evaluation=built.evaluation,
                    on_round=recorder,
                    checkpoint=checkpoint,
                    heads=heads_of(spec),
                )
        recorder.begin()
        write_result(result, built.model, directory)
    write_reports(result, directory, spec)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return TrainedRun(result, directory, standings=found)


def _checked(
    spec: StudyFile, settings: MethodSettings, seed: int | None, device: str, *, strict: bool, force: bool
) -> str:
    """The id of a real run, nothing for a simulation; refused where the file is for the other of the two."""
    if seed is None:
        if force:
            raise InputError("--force is for simulations: a real run is booked for ever. Use --resume, or a new run.id")
        if device != "cpu":
            raise InputError(f"--device {device} is for simulations: a real run trains on the CPU; use --device cpu")
        return run_id(spec, settings.method)
    spec.require_simulation()
    if strict:
        raise InputError("--strict looks at what earlier runs left; a simulation has no earlier runs")
    return ""


def _tell_steward(
    built: PreparedRun, ledgers: Mapping[str, Ledger], run: str, tell: Callable[[str], None] | None, *, strict: bool
) -> tuple[Shortfall, ...]:
    """Who gets less than their budgets allow. A run that was admitted before is what it is."""
    if any(status.run == run for ledger in ledgers.values() for status in ledger.status().runs):
        return ()
    found = standings(built, ledgers)
    if strict:
        require_full(found)
    if tell is not None:
        for remark in [remark for one in found for remark in one.remarks]:
            tell(remark)
    return tuple(found)


def prepare(directory: Path, spec: StudyFile, *, resume: bool, force: bool) -> None:
    """Refuse a directory that this run must not write to."""
    if resume and force:
        raise InputError("--resume goes on with a run and --force removes it: give one of them")
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file; give a directory")
    if not directory.exists() or not any(directory.iterdir()):
        return
    if force:
        _remove(directory)
    elif not resume:
        state = "a finished run" if is_finished(directory) else "files"
        raise InputError(
            f"{directory} holds {state} already; choose another directory (--out), go on with the run that is there "
            "(--resume), or remove it (--force)"
        )
    elif not study_file_in(directory).is_file():
        if not can_resume(directory):
            raise InputError(f"{directory} holds no run to go on with: {STUDY_FILE} is missing")
    elif not StudyFile.read(study_file_in(directory)).same_run(spec):
        raise InputError(
            f"{spec.path} is not the study file that {directory} was begun with (see {study_file_in(directory)}); "
            "use another directory, or --force to begin anew"
        )


def _remove(directory: Path) -> None:
    """Remove a run, and nothing that is not part of it."""
    strangers = sorted(each.name for each in directory.iterdir() if each.name not in _OURS)
    if strangers:
        raise InputError(f"{directory} holds {strangers[0]}, which no run has written; remove it yourself")
    shutil.rmtree(directory)


def _require_same(found: RunResult, settings: MethodSettings, seed: int | None, directory: Path) -> None:
    if (found.method, found.seed) != (settings.method, seed):
        raise InputError(
            f"{directory} holds a finished run of method {found.method}, seed {found.seed}; asked for is method "
            f"{settings.method}, seed {seed}: use another directory"
        )


class _Recorder:
    """Writes down every round; the first one also writes what the run began with."""

    def __init__(self, directory: Path, built: PreparedRun, on_round: Callable[[RoundLog], None] | None) -> None:
        self._directory = directory
        self._built = built
        self._on_round = on_round
        self._begun = False

    def __call__(self, log: RoundLog) -> None:
        self.begin()
        append_round(self._directory, log, with_time=self._built.seed is not None)
        if self._on_round is not None:
            self._on_round(log)

    def begin(self) -> None:
        """The study file, the plan, and the rounds of before an interruption, but for the one that is reported next."""
        if self._begun:
            return
        spec, directory = self._built.spec, self._directory
        directory.mkdir(parents=True, exist_ok=True)
        study_file_in(directory).write_text(spec.text, encoding="utf-8")
        self._built.public.write(directory / PLAN)
        kept = Checkpoint.read(directory / CHECKPOINT)
        write_rounds(directory, kept.rounds[:-1] if kept is not None else (), with_time=self._built.seed is not None)
        self._begun = True


def can_resume(directory: Path) -> bool:
    """Whether an interrupted run left something to go on from."""
    return (directory / CHECKPOINT / CHECKPOINT_FILE).is_file()
