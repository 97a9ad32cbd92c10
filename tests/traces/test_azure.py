from __future__ import annotations

import pytest

from tests.traces.samples import write
from traces import load

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_seven_decimals_are_kept(tmp_path):  # F24
    text = HEADER + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951691,396,109\n"
    # 50.9951691 - 46.6805900 = 4.3145791: the seventh decimal counts
    assert load(write(tmp_path, text)).arrival_s.tolist() == [0.0, 4.3145791]


def test_offset_of_2024_traces_and_whole_seconds(tmp_path):
    text = HEADER + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,2399,6\n"
    assert load(write(tmp_path, text)).arrival_s.tolist() == pytest.approx([0, 0.99007], abs=1e-12)


def test_midnight_is_crossed(tmp_path):
    text = HEADER + "2023-12-31 23:59:59.5000000,1,1\n2024-01-01 00:00:00.2500000,1,1\n"
    assert load(write(tmp_path, text)).arrival_s.tolist() == [0.0, 0.75]
