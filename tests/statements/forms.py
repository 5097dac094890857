"""A file of choices, with texts that must stay texts."""

from __future__ import annotations

from typing import Any

HOSTILE = "</title><script>alert('x')</script>\"'><img src=x onerror=alert(1)>&{{ 7*7 }}"

CHOICES: dict[str, Any] = {
    "title": "How much may research with your data reveal?",
    "purpose": HOSTILE,
    "hospital": "Universitätsklinikum-" * 4,
    "contact": "4711",
    "choice": [
        {"label": "Little", "epsilon": 0.1, "delta": 1e-5, "changes": "Your data is used rarely."},
        {"label": "Some", "epsilon": 1, "delta": 1e-5, "changes": "Your data is used more often."},
        {"label": HOSTILE, "epsilon": 3, "delta": 1e-5, "changes": HOSTILE},
    ],
}
