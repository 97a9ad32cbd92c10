"""Draft kinds: how many passes of which size a draft takes, what its cache holds after it, which options go with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.control.batch import DecodeBatch
from sim.control.executor import Plan
from sim.replay.acceptance import Replay
from sim.replay.cost import ForwardCost
from sim.replay.drafting import LOOK_UP, drafting, with_draft_kind
from sim.replay.passes import Meter
from sim.replay.profile import Profile
from sim.replay.sources import acceptance_source
from sim.replay.windows import Windows
from tests.sim.serving import executor, requests, run
from traces.errors import InputError

FOUR_NONE_TWO = np.array([4, 0, 2])


def batch() -> DecodeBatch:
    """Three sequences; the draft is 1, 3 and 40 tokens behind."""
    slot, known = np.arange(3), np.array([100, 2000, 333])
    return DecodeBatch(slot, slot, known, known - [1, 3, 40], slot + 1, 49 - slot, 0.0, 3, 0)


def seconds(kind: str, cost: ForwardCost, lengths: np.ndarray, padded: bool = True, batch_: Any = None) -> float:
    made, batch_ = drafting(kind, cost, Meter(), padded), batch_ or batch()
    one = made.seconds(batch_, lengths, lengths, int(lengths.max()), [], [])
    assert made.seconds_many(batch_, lengths[None])[0] == pytest.approx(one, rel=1e-12)  # what a policy is told
    return one


# 1 ms a pass and 0.01 ms a new token.
# Token by token: padded 4 passes, 1 + 3 + 40 tokens and three times 3: 4.44 + 0.09 = 4.53 ms. Compact: 41 tokens of two
# sequences, then 2, 1, 1: 4.45 ms. In one pass, padded to 4: 1 + 3, 3 + 3 and 40 + 3 tokens = 53: 1.53 ms; compact
# 1 + 3 and 40 + 1 = 45: 1.45 ms.
@pytest.mark.parametrize(
    ("kind", "padded", "expected_s"),
    [
        ("autoregressive", True, 0.00453),
        ("autoregressive", False, 0.00445),
        ("early-exit", True, 0.00453),
        ("eagle", True, 0.00453),
        ("parallel", True, 0.00153),
        ("parallel", False, 0.00145),
    ],
)
def test_time_of_a_draft(kind: str, padded: bool, expected_s: float) -> None:
    assert seconds(kind, ForwardCost.affine(0.001, 1e-5), FOUR_NONE_TWO, padded) == pytest.approx(expected_s)


def test_a_parallel_draft_takes_one_pass_at_any_depth() -> None:
    times = [seconds("parallel", ForwardCost.affine(0.001), np.full(3, k)) for k in (1, 2, 8)]
    assert times == [0.001] * 3


def test_attention_of_a_parallel_draft() -> None:
    # 10 known tokens, 8 cached, k = 3: two known and two mask tokens see 9, 10, 11 and 12 tokens: 42 pairs, 12 KV
    # tokens
    one = DecodeBatch(*(np.array([value]) for value in (0, 0, 10, 8, 1, 40)), 0.0, 1, 0)
    pairs, kv = ForwardCost.affine(1.0, per_query_key_pair_s=1.0), ForwardCost.affine(1.0, per_kv_token_s=1.0)
    assert seconds("parallel", pairs, np.array([3]), batch_=one) == 1 + 42
    assert seconds("parallel", kv, np.array([3]), batch_=one) == 1 + 12


def test_a_look_up_costs_the_host_once_whatever_it_was_asked_for() -> None:
    # two of the sequences are asked to draft, with 100 and 333 tokens of text: 2 * 10 us + 433 * 2 ns + 0.1 us
    assert seconds("ngram", LOOK_UP, FOUR_NONE_TWO) == pytest.approx(20e-6 + 0.866e-6 + 1e-7)
    assert seconds("ngram", LOOK_UP, np.zeros(3, np.int64)) == 0


# 100 known tokens, k = 4. A model has cached all but its own last token: of 2 accepted both, of 4 accepted 3. EAGLE's
# own states and mask tokens are worth nothing afterwards.
@pytest.mark.parametrize(
    ("kind", "accepted", "expected"),
    [("autoregressive", 2, 102), ("autoregressive", 4, 103), ("eagle", 4, 100), ("parallel", 4, 100), ("ngram", 4, 99)],
)
def test_what_the_draft_has_cached_afterwards(kind: str, accepted: int, expected: int) -> None:
    made = drafting(kind, ForwardCost.affine(1.0), Meter(), True)
    cached = made.cached_tokens(batch(), np.array([4, 4, 4]), np.array([accepted, 0, 0]), 4)
    assert cached[0] == expected


def test_prefill_of_the_draft_joins_its_pass() -> None:
    # parallel, padded to 4 (53 tokens, above) and a chunk of 100: 1 ms + 153 * 0.01 ms; a look-up has nothing to
    # prefill
    cost = ForwardCost.affine(0.001, 1e-5)
    lengths = FOUR_NONE_TWO
    found = [
        drafting(kind, cost, Meter(), True).seconds(batch(), lengths, lengths, 4, [0], [100])
        for kind in ("parallel", "ngram")
    ]
    assert found == pytest.approx([0.00253, seconds("ngram", cost, lengths)])


def looked_up(*draft_prob: float) -> Windows:
    """One window that every step sees; all that is proposed is right."""
    row = np.array([draft_prob], np.float32)
    return Windows("test", "synthetic", np.ones_like(row), {"draft_prob": row, "kld": np.zeros_like(row)})


# the first token of probability 0 ends the draft
@pytest.mark.parametrize(("window", "expected"), [((1, 1, 0, 1), 2), ((0, 0, 0, 0), 0), ((1, 1, 1, 1), 4)])
def test_a_look_up_proposes_what_it_found(window: tuple[float, ...], expected: int) -> None:
    made = executor(windows=looked_up(*window), draft_kind="ngram", draft=LOOK_UP)
    outcome = made.run(Plan(batch(), np.array([4, 4, 1]), True), None, None)
    assert outcome.proposed.tolist() == outcome.accepted.tolist() == [expected, expected, min(expected, 1)]
    assert outcome.time.verify_s == pytest.approx(0.010)
    assert made.accepted_runs(batch()).tolist() == [expected] * 3


def test_other_kinds_offer_as_many_tokens_as_they_are_asked_for() -> None:
    made = executor(windows=looked_up(1, 0, 0, 0))
    assert made.run(Plan(batch(), FOUR_NONE_TWO, True), None, None).proposed.tolist() == FOUR_NONE_TWO.tolist()


def test_windows_know_that_a_look_up_made_them() -> None:
    assert looked_up(0, 1).looked_up
    assert not looked_up(1, 1).looked_up
    assert not acceptance_source("regimes").looked_up


@pytest.mark.parametrize("kind", ["parallel", "ngram", "eagle", "early-exit"])
def test_every_kind_serves(kind: str) -> None:
    # 10 ms a pass, 1 ms a draft pass or look-up; all accepted: prefill, then 4 tokens a step. Draft: k = 3 passes, or
    # 1; the prefill of a draft takes 1 ms, of a look-up none
    log = run(requests(8, 9), policy="fixed:k=3", acceptance="iid:1", draft_kind=kind).log.step_columns()
    once = 0.001 if kind in ("parallel", "ngram") else 0.003
    assert log["draft_s"] == pytest.approx([0.0 if kind == "ngram" else 0.001, once, once])
    assert log["emitted"].tolist() == [1, 4, 4]


@pytest.mark.parametrize("kind", ["parallel", "ngram"])
def test_a_rule_that_stops_drafting_needs_a_draft_that_can_stop(kind: str) -> None:
    with pytest.raises(InputError, match=f"policy priced decides after each draft token.*{kind}"):
        run(requests(8, 9), policy="priced", draft_kind=kind)


def test_a_profile_drafts_as_another_kind() -> None:
    profile = Profile.load("default")
    assert with_draft_kind(profile, None) is profile
    other = with_draft_kind(profile, "parallel")
    assert (other.draft_kind, other.draft) == ("parallel", profile.draft)
    assert other.provenance["draft kind"].startswith("modelled: parallel passes at the cost of ")
    assert other.digest != profile.digest


def test_a_look_up_in_the_place_of_a_model_is_a_stated_prior() -> None:
    profile = with_draft_kind(Profile.load("default"), "ngram")
    assert (profile.draft, profile.draft_model.huggingface_id) == (LOOK_UP, "ngram")
    assert "prior" in profile.provenance["look-up"]


def test_a_look_up_has_no_model_that_could_draft_otherwise() -> None:
    profile = with_draft_kind(Profile.load("default"), "ngram")
    with pytest.raises(InputError, match=r"--draft-kind parallel: profile .* drafts by look-up"):
        with_draft_kind(profile, "parallel")


def test_replay_of_a_look_up_by_rows() -> None:
    """Every row has its own length: the row that a step replays decides."""
    prob = np.array([[1, 1, 1], [0, 0, 0], [1, 0, 0]], np.float32)
    windows = Windows("test", "synthetic", prob.copy(), {"draft_prob": prob, "kld": prob})
    assert windows.proposed.tolist() == [3, 0, 1]
    made = executor(windows=windows, draft_kind="ngram")
    row = Replay.row(made.replay, batch().request, batch().emitted)
    outcome = made.run(Plan(batch(), np.full(3, 2), True), None, None)
    assert outcome.proposed.tolist() == [min(2, [3, 0, 1][index]) for index in row]
