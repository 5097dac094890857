"""Published rivals of centralised rPDP-SGD, each with what it promises. Imports torch.

| method                       | promise                   | not covered by it                                     |
|------------------------------|---------------------------|-------------------------------------------------------|
| `train_filtered` (Filter)    | per record, (ε_j, δ)      | who is active when, and what was spent: stay local    |
| `sample_plan` (IDP-SGD)      | per record, given σ       | σ, found from all budgets in the data                 |
| `ScalePlan`, `train_scaled`  | per record, given σ and c | σ and the clip norms, found from all budgets          |
| `train_plain`                | none                      | everything                                            |
"""

from rpdp_lab.rivals.filter import Conversion, FilterResult, FilterSettings, train_filtered
from rpdp_lab.rivals.idp_sgd import IdpSettings, ScalePlan, noise_for_rate, sample_plan, train_scaled
from rpdp_lab.rivals.plain_sgd import train_plain

__all__ = [
    "Conversion",
    "FilterResult",
    "FilterSettings",
    "IdpSettings",
    "ScalePlan",
    "noise_for_rate",
    "sample_plan",
    "train_filtered",
    "train_plain",
    "train_scaled",
]
