from __future__ import annotations

import numpy as np
import pytest

from calibrate.vllm import acceptance
from calibrate.vllm.bench import read_bench
from calibrate.vllm.responses import Response
from calibrate.vllm.scrape import Counters
from tests.calibrate import vllm_files as files
from traces.errors import InputError


def test_windows_of_a_response_by_hand():
    # step 1 drafts 2, accepts 1: position 0 agrees, 1 does not. Step 2 drafts 2, accepts 2: 2 and 3 agree, 4 was never
    # judged. Judged: 1, 0, 1, 1, so 4 gets their mean, 0.75
    windows = acceptance.of_responses([Response((2, 2), (1, 2), 0)], "r", look_up=False)
    text = [1, 0, 1, 1, 0.75]
    assert windows.accept.shape == (5, acceptance.DEPTH)
    assert windows.accept[0, :7].tolist() == [*text, 1, 0]  # on around the end
    assert windows.accept[3, :3].tolist() == [1, 0.75, 1]


def test_a_look_up_proposes_nothing_where_it_found_nothing():
    # two plain steps come first; then a step of 2 that accepts 1: it takes positions 2 and 3
    windows = acceptance.of_responses([Response((2,), (1,), 2)], "r", look_up=True)
    assert windows.looked_up
    assert (windows.proposed > 0).tolist() == [False, False, True, True]


def test_each_response_is_a_trajectory():
    windows = acceptance.of_responses([Response((1,), (0,), 0), Response((2,), (2,), 0)], "r", look_up=False)
    assert windows.start.tolist() == [0, 1]  # of 1 and 3 positions
    assert windows.rows_of.tolist() == [1, 3]


def test_responses_that_never_drafted_hold_no_acceptance():
    with pytest.raises(InputError, match="no step of any response drafted"):
        acceptance.of_responses([Response((), (), 4)], "r", look_up=True)


@pytest.mark.parametrize(
    ("counters", "rates"),
    [
        (Counters(100, 200, 120, (80, 40)), [0.8, 0.5]),  # 80 of 100, 40 of 80
        (Counters(100, 300, 0, (0, 0, 0)), [0.0]),  # nothing says what follows a first token that never stands
        (Counters(100, 300, 300, (100, 100, 100)), [1.0, 1.0, 1.0]),
        # 150 tokens: all drafts have a first, half of them a second: 20 of the 80 * 0.5 that reached it
        (Counters(100, 150, 100, (80, 20)), [0.8, 0.5]),
        # four of 100 drafts were longer than 2: too few to say anything
        (Counters(100, 204, 121, (80, 40, 1)), [0.8, 0.5]),
    ],
)
def test_rates_of_positions(counters, rates):
    assert acceptance.conditional_rates(counters) == pytest.approx(rates)


def test_counters_alone_give_one_window():
    windows = acceptance.of_counters(Counters(100, 200, 120, (80, 40)), "m")
    assert windows.kind == "measured"
    assert windows.accept[0, :4].tolist() == pytest.approx([0.8, 0.5, 0.5, 0.5])  # the last rate holds beyond


def test_counters_of_an_idle_server():
    with pytest.raises(InputError, match="no draft was counted"):
        acceptance.of_counters(Counters(0, 0, 0, (0, 0)), "m")


SPECULATING = {
    "spec_decode_num_drafts": 9,
    "spec_decode_draft_tokens": 18,
    "spec_decode_accepted_tokens": 5,
    "spec_decode_per_position_acceptance_rates": [4 / 9, 1 / 9],
}


def speculating(tmp_path):
    """Three requests of 5, 4 and 0 decode steps, with 3, 2 and 0 accepted tokens."""
    requests = [
        {"prompt": 8, "output": 9, "start": 0.0, "ttft": 0.1, "gaps": [0.1] * 5},
        {"prompt": 8, "output": 7, "start": 0.0, "ttft": 0.1, "gaps": [0.1] * 4},
        {"prompt": 8, "output": 1, "start": 0.0, "ttft": 0.1, "gaps": []},
    ]
    return read_bench(files.bench_file(tmp_path / "b.json", requests, **SPECULATING))


def test_a_request_takes_as_many_steps_as_it_did(tmp_path):
    windows = acceptance.of_bench(speculating(tmp_path), "b", look_up=False)
    # decode tokens of each request, one row each: 8 and 6; a request of one token keeps a row that is never asked
    assert windows.rows_of.tolist() == [8, 6, 1]
    assert windows.task == ("0", "1", "2")
    for start, rows, steps in zip(windows.start, windows.rows_of, (5, 4), strict=False):
        runs = windows.accept[start : start + rows, 0] == 0
        assert runs.sum() == steps  # each step ends with the one token that was rejected


def test_a_look_up_drafts_as_often_as_counted(tmp_path):
    # 9 drafts, 5 of which accepted nothing: for each run of the second kind 5/4 of the first. Per request: 8 rows of
    # 5 steps; whatever is drawn, rows that propose are the accepted ones and one a drafting step
    windows = acceptance.of_bench(speculating(tmp_path), "b", look_up=True)
    proposing = windows.proposed > 0
    assert proposing[windows.accept[:, 0] == 1].all()
    assert not proposing[windows.start[2]]


def test_a_run_without_speculation_holds_no_acceptance(tmp_path):
    run = read_bench(files.closed_loop(tmp_path / "b.json"))
    with pytest.raises(InputError, match="no counters of speculation"):
        acceptance.of_bench(run, "b", look_up=False)


def test_runs_that_do_not_fit_the_steps_are_lengthened():
    # 5 accepted tokens in 2 steps, though the counters only know runs of 1: 1 + 1, and 3 more dealt out
    rng = np.random.default_rng(0)
    assert acceptance._runs(2, 5, np.array([1]), np.array([1.0]), rng) == [3, 2]
