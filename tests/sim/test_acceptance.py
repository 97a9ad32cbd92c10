"""Windows, sources and their replay."""

from __future__ import annotations

import numpy as np
import pytest

from sim.control.batch import DecodeBatch
from sim.replay.acceptance import Replay, ReplaySignals
from sim.replay.sources import acceptance_source, regimes
from sim.replay.windows import SIGNALS, Windows, load
from tests.sim.serving import requests, run
from traces.errors import InputError
from traces.parquet import write_parquet
from traces.workload import Workload


def mean_run(acceptance: str, k: int, requests_: int = 2000) -> float:
    """Acceptance length (1 + accepted per draft) over the steps that drafted all k."""
    log = run(requests([8] * requests_, 200), policy=f"fixed:k={k}", acceptance=acceptance).log.emissions
    full = log["proposed"] == k
    return 1 + float(log["accepted"][full].mean())


@pytest.mark.parametrize(
    ("acceptance", "k", "expected"),
    [
        ("iid:0.8", 4, 3.3616),  # (1 - .8^5) / (1 - .8)
        ("iid:0", 4, 1.0),
        ("iid:1", 4, 5.0),
        ("positions:.9,.5", 3, 2.575),  # 1 + .9 + .9*.5 + .9*.5*.5
    ],
)
def test_acceptance_length(acceptance, k, expected):
    assert mean_run(acceptance, k) == pytest.approx(expected, rel=0.005)


def test_every_policy_sees_the_same_luck():
    # the oracle's steps end exactly at the rejected positions; fixed must be stopped by the same ones
    workload = requests([8] * 5, 60)
    positions = {}
    for spec in ("oracle", "fixed:k=6"):
        log = run(workload, policy=spec, acceptance="iid:0.7", seed=3).log.emissions
        rows = (log["request"] == 2) & (log["proposed"] >= 0)
        ends = 1 + np.cumsum(log["tokens"][rows])
        rejected = log["accepted"][rows] < 6 if spec != "oracle" else np.ones(rows.sum(), bool)
        positions[spec] = set((ends[rejected] - 1)[:-1].tolist())
    assert positions["fixed:k=6"] <= positions["oracle"]


def test_luck_does_not_depend_on_how_many_requests_follow():
    few, many = (run(requests([8] * n, 30), policy="fixed:k=4", seed=1).log.emissions for n in (2, 4))
    first = [log["accepted"][log["request"] == 1].tolist() for log in (few, many)]
    assert first[0] == first[1]


def test_another_seed_is_other_luck():
    one, two = (run(requests([8] * 4, 60), policy="fixed:k=4", seed=s).log.emissions["accepted"] for s in (1, 2))
    assert one.tolist() != two.tolist()


def recorded() -> Windows:
    """Greedy trajectories of 3 and 2 positions, K = 3. KLD on the trajectory: 10 * row + depth; off it: 100 more."""
    accept = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 0]], np.float32)
    kld = np.array([[10 * row + depth for depth in range(3)] for row in range(5)], np.float32)
    return Windows("test", "measured", accept, {"kld": kld}, {"kld": kld + 100}, np.array([0, 3]), ("chat", "code"))


def view(request: int, emitted: int) -> DecodeBatch:
    one = np.ones(1, np.int64)
    return DecodeBatch(0 * one, request * one, 9 * one, 8 * one, emitted * one, 99 * one, 0.0, 1, 0)


def replay_of(task: str) -> Replay:
    base = requests([8] * 3, 50)
    workload = Workload("t", "synthetic", base.arrival_s, base.prompt_tokens, base.output_tokens, task=(task,))
    return Replay(recorded(), workload, seed=0)


def test_a_request_replays_its_own_task():
    # "code" is the second trajectory: rows 3 and 4 only, whatever the offset
    replay = replay_of("code")
    rows = {int(replay.row(np.array([0]), np.array([t]))[0]) for t in range(20)}
    assert rows == {3, 4}


def test_replay_wraps_around():
    replay = replay_of("chat")
    rows = [int(replay.row(np.array([0]), np.array([t]))[0]) for t in range(6)]
    assert rows[:3] == rows[3:]
    assert sorted(rows[:3]) == [0, 1, 2]


def test_greedy_windows_replay_exactly():
    replay = replay_of("chat")
    for position in range(3):
        batch = view(1, position)
        row = replay.row(batch.request, batch.emitted)
        expected = [2, 1, 0][int(row[0])]  # leading ones of rows 0, 1, 2
        assert replay.runs(batch, row, 3).tolist() == [expected]


def test_signals_leave_the_trajectory_after_the_first_rejection():
    replay = replay_of("chat")
    position = next(t for t in range(3) if replay.row(np.array([0]), np.array([t]))[0] == 1)
    batch = view(0, position)
    row = replay.row(batch.request, batch.emitted)
    runs = replay.runs(batch, row, 3)
    # row 1 is accepted, then rejected at depth 1, that is at row 2: depth 2 is the first proposal after it, 100 + 20
    assert ReplaySignals(replay, batch, row, runs, 3).kld.tolist() == [[10.0, 11.0, 120.0]]


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("source", ["iid:0.8", "positions:.9,.5", "regimes"])
def test_tilt_moves_the_mean(source, rate):
    assert acceptance_source(source).tilted(rate).mean_acceptance == pytest.approx(rate, abs=1e-6)


def test_tilt_of_greedy_windows():
    # mean of the first column 3/5; 0.8 forgives each rejection with chance (0.8 - 0.6) / 0.4 = 1/2
    tilted = recorded().tilted(0.8)
    assert tilted.accept[:, 0].tolist() == [1, 1, 0.5, 1, 0.5]


def test_regimes_have_their_stated_mean():
    # (2 * 0.90 + 0.55) / 3 = 0.783; stretches of 30 tokens leave about 1 % of noise in 32,768 rows
    assert regimes().mean_acceptance == pytest.approx(0.783, abs=0.01)


def test_in_regimes_the_signals_move_with_acceptance():
    windows = regimes()
    for name, sign in (("kld", -1), ("jsd", -1), ("draft_entropy", -1), ("target_entropy", -1), ("draft_prob", 1)):
        correlation = np.corrcoef(windows.on[name][:, 0], windows.accept[:, 0])[0, 1]
        assert sign * correlation > 0.5, name


def test_regimes_are_divergent_off_the_trajectory():
    windows = regimes()
    assert windows.off["kld"].mean() > 1.2 * windows.on["kld"].mean()


def test_recorded_windows_load_as_they_were_saved(tmp_path):
    recorded().save(tmp_path)
    assert load(tmp_path).digest == recorded().digest


@pytest.mark.parametrize(
    "spec", ["iid:1.5", "iid:x", "iid:", "positions:", "positions:.5,2", "regime", "no/such/dir", "regimes:seed=x"]
)
def test_bad_sources(spec):
    with pytest.raises(InputError, match="acceptance"):
        acceptance_source(spec)


def test_a_directory_without_windows(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        acceptance_source(str(tmp_path))


def test_a_file_that_is_no_parquet(tmp_path):
    (tmp_path / "acceptance.parquet").write_text("no")
    with pytest.raises(InputError, match="not a readable parquet"):
        load(tmp_path)


def test_a_missing_column_is_named(tmp_path):
    frame = recorded().to_frame().drop(columns=["kld_1"])
    write_parquet(tmp_path / "acceptance.parquet", frame)
    with pytest.raises(InputError, match="column kld_1 is missing"):
        load(tmp_path)


def test_signals_are_known_by_name():
    assert set(regimes().on) == set(SIGNALS)
