"""Which line of a user's model or loss is running: for messages that name the place."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


def user_line() -> str:
    """The innermost line that is neither torch's nor ours, such as " (forward, my_model.py line 12)", or nothing."""
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(_LIBRARIES) and Path(frame.filename).is_file():
            return f" ({frame.name}, {Path(frame.filename).name} line {frame.lineno})"
    return ""
