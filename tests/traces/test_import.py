"""Importing traces costs numpy and nothing else that is slow."""

from __future__ import annotations

import subprocess
import sys


def test_import_loads_nothing_heavy():
    program = (
        "import sys, traces\n"
        "print([name for name in ('pandas', 'matplotlib', 'scipy', 'tyro', 'rich', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
