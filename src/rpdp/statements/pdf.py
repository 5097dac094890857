"""A page as PDF, printed by a Chromium that is at hand. Nothing private is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rpdp.errors import InputError, RpdpError

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_MOST_SECONDS = 120.0


def pdf_of(page: str) -> bytes:
    """Return a page as a PDF file."""
    browser = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if browser is None:
        raise InputError(f"--format pdf needs one of {', '.join(_NAMES)} on this machine; write HTML and print it")
    with tempfile.TemporaryDirectory(prefix="rpdp-") as made:  # mode 0700
        html, pdf = Path(made, "page.html"), Path(made, "page.pdf")
        html.write_text(page, encoding="utf-8")
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has none for root
        options = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
        where = [f"--user-data-dir={made}/profile", "--no-pdf-header-footer", f"--print-to-pdf={pdf}", html.as_uri()]
        try:
            done = subprocess.run(  # noqa: S603  # a fixed command, found above, and names made here
                [browser, *options, *sandbox, *where], capture_output=True, timeout=_MOST_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise RpdpError(f"{browser} made no PDF within {_MOST_SECONDS:g} s; write HTML and print it") from None
        if done.returncode or not pdf.is_file():
            said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise RpdpError(
                f"{browser} made no PDF (code {done.returncode}): {' '.join(said)}; write HTML and print it"
            )
        return pdf.read_bytes()
