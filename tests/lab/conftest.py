"""Real data files, or a skip that says why; a cache directory of its own for every test."""

from __future__ import annotations

from tests.files import own_cache, real_data

__all__ = ["own_cache", "real_data"]
