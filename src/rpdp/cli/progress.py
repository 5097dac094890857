"""Progress on standard error: a live bar on a terminal, a line per step elsewhere, nothing with --json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rpdp.cli.output import notes
from rpdp.cli.unicode_fallback import spelled

if TYPE_CHECKING:
    from types import TracebackType

    from rpdp.federation import RoundLog
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.execution import MethodRun
    from rpdp.studies.tuning_plan import Candidate


class ProgressBar:
    """A bar with a changing text; where there is no terminal, a line for each step."""

    def __init__(self, title: str, total: int | None = None, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = notes.is_terminal and not quiet
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=notes, transient=True, disable=not self._live)
        self._task = self._progress.add_task(title, total=total, text="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def title(self, title: str, total: int) -> None:
        """What follows has another title, and begins at 0."""
        if self._live:
            self._progress.update(self._task, description=title, completed=0, total=total, text="")
        elif not self._quiet:
            notes.print(spelled(title), soft_wrap=True)

    def step(self, text: str, done: int, total: int) -> None:
        """One more step is done."""
        if self._live:
            self._progress.update(self._task, completed=done, total=total, text=text)
        elif not self._quiet:
            notes.print(spelled(f"{done}/{total} {text}"), soft_wrap=True)


class ComparisonProgress(ProgressBar):
    """Progress over the runs of a comparison."""

    def __call__(self, cell: MethodRun, done: int, total: int) -> None:
        """A run is finished."""
        settings = cell.settings
        tried = f", η = {settings.learning_rate:g}, L = {settings.clip_norm:g}" if settings.tuned else ""
        self.step(f"{settings.method}, seed {cell.seed}{tried}", done, total)


class RoundProgress(ProgressBar):
    """Progress over the rounds of a run."""

    def __init__(self, title: str, rounds: int, *, quiet: bool) -> None:
        super().__init__(title, rounds, quiet=quiet)
        self._rounds = rounds
        self._silos = 0

    def remark(self, text: str) -> None:
        """Print a note."""
        if not self._quiet:
            notes.print(spelled(f"note: {text}"), soft_wrap=True)

    def begin(self, built: PreparedRun) -> None:
        """The federation is built: the number of silos is known."""
        self._silos = len(built.silos)

    def __call__(self, log: RoundLog) -> None:
        """A round is over."""
        who = "all" if len(log.joined) == self._silos else (", ".join(log.joined) or "nobody")
        measured = "" if log.score is None else f" · {log.score.text(4)}"
        rejected = f" · rejected: {', '.join(log.rejected)}" if log.rejected else ""
        self.step(f"joined: {who}{rejected}{measured}", log.round, self._rounds)


class TuningProgress(RoundProgress):
    """Progress over the rounds of several trials."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__("tuning", 0, quiet=quiet)

    def begin_trial(self, trial: Candidate, number: int, trials: int) -> None:
        """A trial begins."""
        self._rounds = trial.spec.public_schedule.rounds
        self.title(f"trial {number} of {trials}: {trial.name}", self._rounds)
