"""The paper behind rpdp, run again: its data, models, rivals, tables and figures, built on the product.

A study file reaches the paper's tasks by name: `[task] name = "rpdp_lab.tasks:mnist"`. The command is `rpdp-lab`.
"""

from __future__ import annotations

__version__ = "0.2.0.dev0"

__all__ = ["__version__"]
