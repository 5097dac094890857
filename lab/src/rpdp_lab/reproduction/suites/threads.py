"""How many threads a cell may use."""

from __future__ import annotations

_FEW_CORES = 4


def one_thread_per_cell(device: str) -> None:
    """Cells run side by side, so on a machine with few cores each takes one thread."""
    import torch

    from rpdp.studies.job_processes import cores

    if device == "cpu" and cores() <= _FEW_CORES:
        torch.set_num_threads(1)
