"""Steps through windows and their correlations, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.steps import correlations, walk
from sim.replay.windows import Windows


def windows(accept: list[list[int]]) -> Windows:
    """KLD of row r, depth d is 10 r + d on the trajectory and 100 more off it; entropy the same with a minus."""
    table = np.array(accept, np.float32)
    on = np.array([[10 * row + depth for depth in range(3)] for row in range(len(table))], np.float32)
    off = on + 100
    names = ("kld", "draft_entropy")
    return Windows("test", "measured", table, dict.fromkeys(names, on), dict.fromkeys(names, off))


def test_walk_takes_what_was_proposed() -> None:
    """k = 3. Step at row 0: one of three accepted, then rejected at row 1, whose off row gives the third value:
    (0 + 1 + 110) / 3 = 37. Next step at row 2, all accepted: (20 + 21 + 22) / 3 = 21. Then the text is over."""
    found = walk(windows([[1, 0, 0], [0, 0, 0], [1, 1, 1]]), k=3)
    assert found.accepted.tolist() == pytest.approx([1 / 3, 1])
    assert found.kld.tolist() == pytest.approx([37, 21])
    assert found.kld_before[1] == pytest.approx(37)
    assert np.isnan(found.wvir).all()


def test_correlation_of_two_steps_is_perfect() -> None:
    """Two points always lie on a line: less KLD, more acceptance; nothing is known before the first."""
    found = correlations(windows([[1, 0, 0], [0, 0, 0], [1, 1, 1]]), k=3)
    assert found["mean KLD"] == pytest.approx(-1)
    assert found["WVIR"] is None
