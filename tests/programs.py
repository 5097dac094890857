"""Programs that some tests need and not every machine has; without them these tests are skipped, with a line."""

from __future__ import annotations

import os
import shutil

import pytest

from rpdp.deployment.server_proxy import nginx
from rpdp.errors import InputError


def _has_nginx() -> bool:
    try:
        return bool(nginx())
    except InputError:
        return False


needs_nginx = pytest.mark.skipif(not _has_nginx(), reason="nginx is not installed (apt install nginx-light)")
needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
)
