"""The ghost kernel: per-record gradient norms in closed form, without per-record gradients."""

from rpdp.training.ghost.ghost_kernel import GhostKernel
from rpdp.training.ghost.recorder import UnsupportedModelError

__all__ = ["GhostKernel", "UnsupportedModelError"]
