"""The kinds of account that a record can have for life (privacy.md, section 7)."""

from __future__ import annotations

from typing import Literal, get_args

AccountKind = Literal["sums", "renyi"]
"""`sums`: (ε, δ) of reservations add up. `renyi`: a Rényi filter at an order fixed when a record is enrolled."""

ACCOUNT_KINDS: tuple[AccountKind, ...] = get_args(AccountKind)

MOST_SILOS_PER_PERSON = 100
