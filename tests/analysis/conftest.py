"""Browser tests are opt-in."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config, items):
    if "browser" not in config.option.markexpr:
        skip = pytest.mark.skip(reason="asked for with -m browser")
        for item in items:
            if "browser" in item.keywords:
                item.add_marker(skip)
