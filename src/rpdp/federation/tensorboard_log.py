"""Rounds as scalars in TensorBoard: public quantities only, the same that a report's edition to share shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from torch.utils.tensorboard import SummaryWriter

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from rpdp.federation.run_result import RoundLog


class TensorBoardLog:
    """Writes every round of a run to a TensorBoard directory. Give it as `on_round`.

    It gets a `RoundLog`, which holds what the server sees: how many silos joined and were rejected, how long the round
    took, and metrics on public test records. Norms, draws, batches and losses of private records are not in it.

    Args:
        directory: Where TensorBoard's event files go; one directory for each run.

    >>> with TensorBoardLog("runs/first") as log:                                 # doctest: +SKIP
    ...     rpdp.simulate(model, loss, silos, public, seed=7, on_round=log)
    """

    def __init__(self, directory: str | Path) -> None:
        self._writer = SummaryWriter(str(directory))

    def __call__(self, log: RoundLog) -> None:
        """Write a round."""
        scalars: dict[str, float | None] = {
            "silos/joined": len(log.joined),
            "silos/rejected": len(log.rejected),
            "round/seconds": log.seconds,
        }
        if log.score is not None:
            scalars |= {f"test/{metric}": value for metric, value in log.score.values.items()}
        for name, value in scalars.items():
            if value is not None:
                self._writer.add_scalar(name, value, log.round)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
