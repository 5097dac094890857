"""`train`: a simulation or a real run in a directory of its own, which can be resumed after an interruption.

Nothing is written before the first round is over, so a refused run leaves no file behind. After every round the
directory holds the log so far and a checkpoint, from which a simulation continues to exactly the same model.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.federation import run_production
from rpdp.federation.checkpoint import NAME as CHECKPOINT_FILE
from rpdp.federation.checkpoint import Checkpoint
from rpdp.federation.devices import require_device
from rpdp.ledger.inspection.outlook import outlook_lines
from rpdp.studies.building import build
from rpdp.studies.evaluation_file import EVALUATION, write_evaluation
from rpdp.studies.execution import execute, real_run_errors, slow_kernel_remarks
from rpdp.studies.held_out_groups import held_out_groups
from rpdp.studies.private_evaluation import require_evaluation
from rpdp.studies.private_scale import NAME as SCALE
from rpdp.studies.private_scale import ask_for_scale
from rpdp.studies.real_run import heads_of, open_ledgers, run_id
from rpdp.studies.round_choice import RoundChoice
from rpdp.studies.run_directory import (
    HELD_OUT_GROUPS,
    MODEL,
    MODELS,
    PLAN,
    RESULT,
    ROUNDS,
    SILOS,
    STUDY_FILE,
    append_round,
    is_finished,
    read_result,
    study_file_in,
    write_groups,
    write_outlooks,
    write_result,
    write_rounds,
)
from rpdp.studies.run_reports import EDITIONS, write_reports
from rpdp.studies.shortfalls import find_shortfalls, require_full, require_signal
from rpdp.studies.study_file import StudyFile
from rpdp.studies.study_tables import SCHEMA_COPY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rpdp.federation import RoundLog, RunResult
    from rpdp.ledger import Ledger, MemoryAccount
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.private_scale import PrivateScale
    from rpdp.studies.shortfalls import Shortfall
    from rpdp.studies.study_file import MethodSettings

CHECKPOINT = "checkpoint"
_RESULTS = (PLAN, ROUNDS, MODEL, MODELS, RESULT, EVALUATION, SCALE, *EDITIONS.values(), SILOS)
_OURS = (STUDY_FILE, SCHEMA_COPY, CHECKPOINT, *_RESULTS)


@dataclass(frozen=True)
class TrainedRun:
    """A finished run and its directory.

    Attributes:
        result: The result of the run.
        directory: The directory that holds it.
        was_finished: Whether it had been finished before, so that nothing was left to do.
        shortfalls: What the ledgers had left for a real run, if this call admitted it. Sensitive.
    """

    result: RunResult
    directory: Path
    was_finished: bool = False
    shortfalls: tuple[Shortfall, ...] = ()


@dataclass(frozen=True)
class TrialOf:
    """A trial of `rpdp tune` among others that draw on the same budgets.

    Attributes:
        name: Its name.
        accounts: In a simulation the accounts of all trials, by silo; real ones share ledgers.
        scale: The private scale of all trials, if the study asks for one.
    """

    name: str
    accounts: dict[str, MemoryAccount]
    scale: PrivateScale | None = None


def train(
    spec: StudyFile,
    settings: MethodSettings,
    seed: int | None,
    directory: str | Path,
    *,
    resume: bool = False,
    force: bool = False,
    strict: bool = False,
    even_if_noise: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    wait: float = 0.0,
    trial: TrialOf | None = None,
    on_begin: Callable[[PreparedRun], None] | None = None,
    on_round: Callable[[RoundLog], None] | None = None,
    on_remark: Callable[[str], None] | None = None,
) -> TrainedRun:
    """Run a method, on a seed or for real, and leave everything in a directory.

    Args:
        spec: The study file.
        settings: The settings of the method.
        seed: The seed of a simulation; None for a real run, which needs ledgers.
        directory: The directory for the results. It must be missing or empty, unless the run is resumed or forced.
        resume: Continue the run in the directory; a finished run is left as it is.
        force: Remove what an earlier run left in the directory.
        strict: Refuse a real run, before anything is reserved, if a record would get less than its full budget allows.
        even_if_noise: Begin a real run even if its signal is below the floor (`rpdp.planning.LEAST_SIGNAL`).
        workers: The number of processes of a simulation; it does not change the result. A real run has one.
        device: The device of a simulation, cpu or cuda. A real run trains on the CPU.
        wait: For how many seconds a real run waits for each ledger that another process is writing.
        trial: Of a trial what it shares with others; their models are evaluated together, after all of them.
        on_begin: Called with the run that is about to start.
        on_round: Called after every round.
        on_remark: Called with remarks such as the use of a slow kernel.
    """
    directory = Path(directory)
    _require_kind(seed, device, strict=strict, force=force, even_if_noise=even_if_noise)
    run = _run_of(spec, settings, seed, resume=resume)
    require_device(device, workers or 1, "--workers")
    prepare(directory, spec, resume=resume, force=force)
    if resume and is_finished(directory):
        earlier = read_result(directory)
        _require_same(earlier, settings, seed, directory)
        return TrainedRun(earlier, directory, was_finished=True)
    accounts: dict[str, MemoryAccount] = {} if trial is None else trial.accounts
    require = partial(_require_worth, strict=strict, even_if_noise=even_if_noise)
    if trial is None:
        scale = ask_for_scale(
            spec,
            settings,
            seed,
            run,
            accounts,
            resume=resume,
            wait=wait,
            require=lambda built, ledgers: require(find_shortfalls(built, ledgers)),
        )
    else:
        scale = trial.scale
    spec = spec if scale is None else scale.applied(spec)
    checkpoint = directory / CHECKPOINT
    found: tuple[Shortfall, ...] = ()
    with ExitStack() as stack:
        if seed is None:
            ledgers = stack.enter_context(open_ledgers(spec, run, resume=resume, wait=wait))
            built = build(spec, settings, None, ledgers)
            found = _report_shortfalls(built, ledgers, run, on_remark)
            require(found)
        else:
            built = build(spec, settings, seed, device=device, accounts=accounts)
            built = replace(built, trial="" if trial is None else trial.name)
        if trial is None:
            require_evaluation(built, run, on_remark)
        if on_begin is not None:
            on_begin(built)
        recorder = _Recorder(directory, built, found, on_round)
        choice = RoundChoice(built, directory)
        if seed is not None:
            result = execute(
                built,
                workers=workers,
                on_round=recorder,
                on_model=choice.keep,
                on_remark=on_remark,
                checkpoint=checkpoint,
            )
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
                    on_model=choice.keep,
                    checkpoint=checkpoint,
                    heads=heads_of(spec),
                )
        recorder.begin()
        if built.private_evaluation is not None and trial is None:
            result, told = choice.made(result, heads_of(spec))
            write_evaluation(directory, told)
            with real_run_errors():
                write_groups(directory, HELD_OUT_GROUPS, held_out_groups(built, result.values))
        write_result(result, built.model, directory)
    write_reports(result, directory, spec)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return TrainedRun(result, directory, shortfalls=found)


def _require_worth(found: Sequence[Shortfall], *, strict: bool, even_if_noise: bool) -> None:
    """Refuse a real run of which too little is left; nothing of a run that was admitted before."""
    if strict:
        require_full(found)
    if found and not even_if_noise:
        require_signal(found)


def _require_kind(seed: int | None, device: str, *, strict: bool, force: bool, even_if_noise: bool) -> None:
    """Refuse options that are for the other kind of run."""
    if seed is None:
        if force:
            raise InputError(
                "--force is for simulations: the bookings of a real run stay. Use --resume, or a new run.id"
            )
        if device != "cpu":
            raise InputError(f"--device {device} is for simulations: a real run trains on the CPU; use --device cpu")
    elif strict or even_if_noise:
        option = "--strict" if strict else "--even-if-noise"
        raise InputError(f"{option} is about what earlier runs left; a simulation has no earlier runs, so remove it")


def _run_of(spec: StudyFile, settings: MethodSettings, seed: int | None, *, resume: bool) -> str:
    """Return the id of a real run, or "" for a simulation; refused if the study file describes the other kind."""
    if seed is None:
        return run_id(spec, settings.method, resume=resume)
    spec.require_simulation()
    return ""


def _report_shortfalls(
    built: PreparedRun, ledgers: Mapping[str, Ledger], run: str, on_remark: Callable[[str], None] | None
) -> tuple[Shortfall, ...]:
    """Report what the ledgers have left for the run, and what would help; nothing if it was admitted before."""
    if any(status.run == run for ledger in ledgers.values() for status in ledger.status().runs):
        return ()
    found = find_shortfalls(built, ledgers)
    if on_remark is not None:
        for line in [*outlook_lines([one.outlook for one in found]), *(text for one in found for text in one.remarks)]:
            on_remark(line)
    return tuple(found)


def prepare(directory: str | Path, spec: StudyFile, *, resume: bool, force: bool) -> None:
    """Refuse a directory to which this run must not write."""
    directory = Path(directory)
    if resume and force:
        raise InputError("--resume continues a run and --force removes it: give one of them")
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is not a directory; give the name of one")
    if not directory.exists() or not any(directory.iterdir()):
        return
    if force:
        _remove(directory)
    elif not resume:
        state = "a finished run" if is_finished(directory) else "files"
        raise InputError(
            f"{directory} already holds {state}; choose another directory (--out), continue the run in it (--resume), "
            "or remove it (--force)"
        )
    elif not study_file_in(directory).is_file():
        if not can_resume(directory):
            raise InputError(f"{directory} holds no run to continue: {STUDY_FILE} is missing; remove --resume")
    elif not StudyFile.read(study_file_in(directory)).same_run(spec):
        raise InputError(
            f"{spec.path} is not the study file with which the run in {directory} was started (see "
            f"{study_file_in(directory)}); use another directory, or --force to start again"
        )


def _remove(directory: Path) -> None:
    """Remove a run; refused if the directory holds anything else."""
    foreign = sorted(each.name for each in directory.iterdir() if each.name not in _OURS)
    if foreign:
        raise InputError(f"{directory} holds {foreign[0]}, which no run wrote; remove it yourself")
    shutil.rmtree(directory)


def _require_same(found: RunResult, settings: MethodSettings, seed: int | None, directory: Path) -> None:
    if (found.method, found.seed) != (settings.method, seed):
        raise InputError(
            f"{directory} holds a finished run of method {found.method}, seed {found.seed}, but you asked for method "
            f"{settings.method}, seed {seed}; use another directory"
        )


class _Recorder:
    """Records every round; the first call also records how the run was started."""

    def __init__(
        self,
        directory: Path,
        built: PreparedRun,
        found: Sequence[Shortfall],
        on_round: Callable[[RoundLog], None] | None,
    ) -> None:
        self._directory = directory
        self._found = found
        self._built = built
        self._on_round = on_round
        self._begun = False

    def __call__(self, log: RoundLog) -> None:
        self.begin()
        append_round(self._directory, log, with_time=self._built.seed is not None)
        if self._on_round is not None:
            self._on_round(log)

    def begin(self) -> None:
        """Write the study file, the plan and the rounds before an interruption, except the round reported next."""
        if self._begun:
            return
        spec, directory = self._built.spec, self._directory
        directory.mkdir(parents=True, exist_ok=True)
        spec.write_copy(study_file_in(directory))
        self._built.public.write(directory / PLAN)
        if spec.table is not None and spec.table.scale is not None:
            spec.table.scale.write(directory)
        write_outlooks(directory, [one.outlook for one in self._found])
        kept = Checkpoint.read(directory / CHECKPOINT)
        write_rounds(directory, kept.rounds[:-1] if kept is not None else (), with_time=self._built.seed is not None)
        self._begun = True


def can_resume(directory: str | Path) -> bool:
    """Return whether an interrupted run left a checkpoint."""
    return (Path(directory) / CHECKPOINT / CHECKPOINT_FILE).is_file()
