"""A bar for runs that are started from Python: on a terminal and in notebooks, and nowhere else."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rpdp.federation.run_result import RoundLog


@contextmanager
def round_progress(
    rounds: int, on_round: Callable[[RoundLog], None] | None
) -> Iterator[Callable[[RoundLog], None] | None]:
    """Give what is called after every round: the caller's own function, or a bar where somebody looks."""
    if on_round is not None:
        yield on_round
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("rounds", total=rounds)
        yield lambda log: bar.update(task, completed=log.round)
