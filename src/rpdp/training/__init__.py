"""Private training: kernels that sum clipped per-record gradients, the noisy step, and model checks.

    model = FlatModel(module)
    kernel = make_kernel(model, loss, records)
    settings = StepSettings(clip_norm, noise_multiplier, normaliser)
    step = NoisyStep(kernel, torch.optim.SGD([model.values], lr=0.1), settings, Secure())
    step(records, sampler.draw())

Imports torch.
"""

from rpdp.training.affine_kernel import AffineKernel
from rpdp.training.central import CentralResult, LocalView, OptimiserFactory, train_central, uniform_plan
from rpdp.training.flat_model import FlatModel
from rpdp.training.ghost import GhostKernel, UnsupportedModelError
from rpdp.training.kernel import CLIP_SLACK, SMALLEST_CLIP_NORM, ClippedSum, Kernel, PerRecordLoss
from rpdp.training.kernel_choice import (
    OneRecordAtATimeWarning,
    SlowKernelWarning,
    accept_one_record_at_a_time,
    make_kernel,
)
from rpdp.training.loop_kernel import LoopKernel
from rpdp.training.model_checks import ModelIssue, check_model, require_private, to_groupnorm
from rpdp.training.noise_addition import grid_spacing
from rpdp.training.noisy_step import BadRecordWarning, NoisyStep, StepDiagnostics, StepSettings
from rpdp.training.records import Records
from rpdp.training.transformers_model import TransformersModel
from rpdp.training.value_checks import require_value_independent
from rpdp.training.vmap_kernel import VmapKernel

__all__ = [
    "CLIP_SLACK",
    "SMALLEST_CLIP_NORM",
    "AffineKernel",
    "BadRecordWarning",
    "CentralResult",
    "ClippedSum",
    "FlatModel",
    "GhostKernel",
    "Kernel",
    "LocalView",
    "LoopKernel",
    "ModelIssue",
    "NoisyStep",
    "OneRecordAtATimeWarning",
    "OptimiserFactory",
    "PerRecordLoss",
    "Records",
    "SlowKernelWarning",
    "StepDiagnostics",
    "StepSettings",
    "TransformersModel",
    "UnsupportedModelError",
    "VmapKernel",
    "accept_one_record_at_a_time",
    "check_model",
    "grid_spacing",
    "make_kernel",
    "require_private",
    "require_value_independent",
    "to_groupnorm",
    "train_central",
    "uniform_plan",
]
