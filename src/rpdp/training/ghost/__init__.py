"""The ghost kernel: per-record norms in closed form."""

from rpdp.training.ghost.ghost_kernel import GhostKernel
from rpdp.training.ghost.recorder import UnsupportedModelError

__all__ = ["GhostKernel", "UnsupportedModelError"]
