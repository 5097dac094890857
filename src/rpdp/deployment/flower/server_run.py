"""What the ServerApp does: one rpdp run over Flower's grid, from the run config to a model on disk.

A killed SuperLink ends a Flower run but not the rpdp run: its state is in a directory of the server, and submitting the
same run id again resumes it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rpdp.deployment.files.layout import SUMS
from rpdp.deployment.files.study_files import PLAN, STUDY, study_directory
from rpdp.deployment.flower.grid_link import GridLink
from rpdp.deployment.flower.strategy_backbone import StrategyBackbone
from rpdp.deployment.run_progress import RunProgress
from rpdp.errors import InputError, RpdpError
from rpdp.federation.coordinator import Coordinator, RoundSettings
from rpdp.federation.heads import NAME as HEADS
from rpdp.federation.run_stops import LOCK, stop_word
from rpdp.log_format import log_formatter
from rpdp.planning import PublicPlan
from rpdp.report import write_report
from rpdp.setting_fields import plain_name
from rpdp.studies.run_directory import append_round, is_finished, read_result, read_summary, write_result
from rpdp.studies.run_reports import EDITIONS, facts_of
from rpdp.studies.study_data import make_evaluation, make_model
from rpdp.studies.study_file import StudyFile
from rpdp.studies.user_code import call_factory
from rpdp.training import FlatModel, Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
    from torch import Tensor

    from rpdp.federation.run_result import RoundLog
    from rpdp.federation.score import Score
    from rpdp.log_format import LogFormat

LOG = logging.getLogger("rpdp.server")
CHECKPOINT = "checkpoint"
_LOCK_SECONDS = 30.0
"""How long to wait for a run whose SuperLink was killed: its process ends soon after."""


def run_server(grid: Grid, config: Mapping[str, Any], *, strategy: Strategy | None = None) -> None:
    """Run, or resume, the run that the run config names.

    Args:
        grid: The grid of the ServerApp.
        config: `context.run_config`: run-id, server (the directory that `rpdp deploy init` made for the server), silos,
            plan (a file in that directory; by default the study's own plan), evaluate (the run whose model a plan for
            evaluation measures), deadline, patience, least-silos (0: all), hold (seconds that silos hold budgets until
            the first round; 0: from deadline and patience), test ("module:function" with public records, or ""), seed
            (of a simulation, for tests; -1: a real run); and, absent in apps of earlier releases, study (one that was
            added to the server's directory; "": the first one) and log-format (text or json).
        strategy: A Flower strategy to average with, instead of the backbone in the plan.
    """
    _log_to_flower("json" if config.get("log-format") == "json" else "text")
    run = plain_name("run-id", config["run-id"])
    home = Path(str(config["server"]))
    study = study_directory(home, str(config.get("study", "")))
    spec, public = StudyFile.read(study / STUDY), PublicPlan.read(study / str(config.get("plan") or PLAN))
    directory = home / "runs" / run
    if (directory / SUMS).is_file():
        LOG.info("run %s is finished already: %s", run, directory / SUMS)
        return
    if is_finished(directory):
        LOG.info("run %s is finished already: %s", run, read_summary(directory))
        return
    directory.mkdir(parents=True, exist_ok=True)
    with _only_server(directory), RunProgress.of(directory, public) as progress:
        if public.request is not None:
            _release(grid, config, run, public, directory, progress)
            return
        coordinator = Coordinator(
            run,
            public,
            FlatModel(make_model(spec, 0)).values.data,
            _names(config),
            GridLink(grid),
            _settings(config),
            checkpoint=directory / CHECKPOINT,
            heads=home / HEADS,
            backbone=None if strategy is None else StrategyBackbone(strategy),
            score=_score(spec, str(config["test"])),
            asked=lambda: stop_word(directory),
        )
        result = coordinator.go(lambda log: _note_round(directory, log, progress, coordinator))
        facts = replace(facts_of(spec), notes=coordinator.notes)
        write_report(result, directory / EDITIONS["share"], edition="share", facts=facts)
        write_result(result, make_model(spec, 0), directory)  # last: it marks the run as finished


def _release(
    grid: Grid, config: Mapping[str, Any], run: str, public: PublicPlan, directory: Path, progress: RunProgress
) -> None:
    """Run a plan with a request, and write what all silos released."""
    home = directory.parent.parent
    values = torch.zeros(0)
    if public.purpose == "evaluation":
        values = read_result(home / "runs" / plain_name("evaluate", config.get("evaluate", ""))).values
    coordinator = Coordinator(
        run, public, values, _names(config), GridLink(grid), _settings(config),
        checkpoint=directory / CHECKPOINT, heads=home / HEADS, asked=lambda: stop_word(directory),
    )  # fmt: skip
    released = coordinator.release(lambda log: _note_round(directory, log, progress, coordinator))
    released.write(directory / SUMS)  # last: it marks the run as finished
    for note in coordinator.notes:
        LOG.warning("%s", note)


def _note_round(directory: Path, log: RoundLog, progress: RunProgress, coordinator: Coordinator) -> None:
    append_round(directory, log)
    progress.note(log, coordinator.present)
    LOG.info("round %d of %d: %s", log.round, progress.rounds, _summary(log))


@contextmanager
def _only_server(directory: Path) -> Iterator[None]:
    """Lock the directory of a run: one server at a time continues it. Other runs may go on beside it."""
    deadline = time.monotonic() + _LOCK_SECONDS
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _locked(lock):
            if time.monotonic() > deadline:
                raise InputError(f"{directory}: this run is in progress already; wait for its end, or stop it")
            time.sleep(0.2)
        yield
    finally:
        os.close(lock)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _log_to_flower(chosen: LogFormat) -> None:
    """Log to standard output, which Flower shows."""
    logging.getLogger("flwr").addFilter(in_one_line)
    log = logging.getLogger("rpdp")
    log.setLevel(logging.INFO)
    if not log.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(log_formatter(chosen, "rpdp: %(message)s"))
        log.addHandler(handler)


def in_one_line(record: logging.LogRecord) -> bool:
    """Show a refusal, or another error that rpdp raises on purpose, by its message: Flower would add a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, RpdpError):
        record.msg, record.args, record.exc_info, record.exc_text = "%s", (str(error),), None, None
    return True


def _settings(config: Mapping[str, Any]) -> RoundSettings:
    seed = int(config["seed"])
    return RoundSettings(
        deadline=float(config["deadline"]),
        patience=float(config["patience"]),
        least_silos=int(config["least-silos"]) or None,
        seed=seed if seed >= 0 else None,
        hold=int(config.get("hold", 0)) or None,  # absent in apps that release 0.1 has made
    )


def _names(config: Mapping[str, Any]) -> list[str]:
    return [plain_name("silos", name.strip()) for name in str(config["silos"]).split(",")]


def _score(spec: StudyFile, reference: str) -> Callable[[Tensor], Score] | None:
    """Metrics on public test records, if the run config names any."""
    if not reference:
        return None
    records = call_factory(reference, spec.directory, seed=0)
    if not isinstance(records, Records):
        raise InputError(f"test: {reference}() returned {type(records).__name__}; it must return rpdp.training.Records")
    model = make_model(spec, 0)
    evaluation = make_evaluation(spec, {"public": records}).checked(model)
    flat = FlatModel(model)

    def score(values: Tensor) -> Score:
        flat.values.data.copy_(values)
        return evaluation.measure(flat)

    return score


def _summary(log: RoundLog) -> str:
    joined = ", ".join(log.joined) + " joined" if log.joined else "nobody joined"
    left_out = "".join(f"; {silo}: {why}" for silo, why in sorted(log.rejected.items()))
    accuracy = "" if log.score is None else f"; {log.score.text(4)}"
    return f"{joined}{left_out}{accuracy} ({log.seconds:.1f} s)"
