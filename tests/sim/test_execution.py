"""What the engine charges beyond its passes: graph sizes, changes of width; and drafting beside verification."""

from __future__ import annotations

import numpy as np
import pytest

from sim.control.batch import DecodeBatch
from sim.control.executor import Plan
from sim.replay.cost import ForwardCost
from sim.replay.execution import Execution, capture_sizes
from sim.serve import Run
from tests.sim.serving import executor, requests, run
from traces.errors import InputError


def durations_ms(result: Run) -> list[float]:
    columns = result.log.step_columns()
    return (1e3 * (columns["end_s"] - columns["start_s"])).tolist()


def in_ms(result: Run, column: str) -> list[float]:
    return (1e3 * result.log.step_columns()[column]).tolist()


# Graph sizes


def test_graphs_are_padded_to_the_next_size() -> None:
    # Three requests of 2 tokens, prompts of 4: prefill of 12 tokens is beyond the largest graph and pays for 12. Then
    # one token each: 3 tokens pay for 4. 10 ms a pass and 1 ms a token.
    result = run(
        requests([4, 4, 4], 2), target=ForwardCost.affine(0.010, 0.001), execution=Execution(capture_sizes=(1, 2, 4, 8))
    )
    assert durations_ms(result) == pytest.approx([22, 14])


def test_draft_and_verification_are_padded() -> None:
    # Three sequences with k = 1: 6 tokens pay for 8: 18 ms; 3 draft tokens pay for 4: 1.4 ms. Draft prefill of 12
    # tokens is not padded: 2.2 ms. All accepted: 1 + 2 tokens.
    result = run(
        requests([4, 4, 4], 3),
        policy="fixed:k=1",
        acceptance="iid:1",
        target=ForwardCost.affine(0.010, 0.001),
        draft=ForwardCost.affine(0.001, 0.0001),
        execution=Execution(capture_sizes=(1, 2, 4, 8)),
    )
    assert durations_ms(result) == pytest.approx([22 + 2.2, 18 + 1.4])


@pytest.mark.parametrize("words", [["1", "2", "8", "4"], ["1,2", "4,8"], ["8,4,2,1,1"]])
def test_sizes_as_vllm_or_with_commas(words: list[str]) -> None:
    assert capture_sizes(words) == (1, 2, 4, 8)


@pytest.mark.parametrize("word", ["0", "-1", "2.5", "two", "1;2", "2147483648"])
def test_sizes_are_whole_numbers(word: str) -> None:
    with pytest.raises(InputError, match=r"--cudagraph-capture-sizes: .* is no whole number from 1 to"):
        capture_sizes([word])


# Switch cost


def test_a_change_of_width_is_charged() -> None:
    # k = 3, nothing accepted, 6 tokens: prefill; k = 3, 3, then what the request has left but for one: 2, 1, 0. 1 ms a
    # draft pass, 10 ms the target, 5 ms for each of the three changes; the first width of all is none.
    result = run(requests(8, 6), policy="fixed:k=3", acceptance="iid:0", execution=Execution(switch_cost_ms=5))
    assert durations_ms(result) == pytest.approx([11, 13, 13, 12 + 5, 11 + 5, 10 + 5])
    assert in_ms(result, "switch_s") == pytest.approx([0, 0, 0, 5, 5, 5])
    assert in_ms(result, "host_s") == pytest.approx([0, 0, 0, 5, 5, 5])


def test_a_policy_is_told_of_the_switch() -> None:
    made = executor(execution=Execution(switch_cost_ms=5))
    lengths = np.array([[2, 1], [2, 2], [1, 1]])
    before = made.step_seconds_many(batch(), lengths)
    made.run(Plan(batch(), np.array([2, 0]), True), None, None)
    assert 1e3 * (made.step_seconds_many(batch(), lengths) - before) == pytest.approx([0, 0, 5])
    assert 1e3 * (made.verify_seconds_many(batch(), lengths)) == pytest.approx([10, 10, 15])


@pytest.mark.parametrize("cost_ms", [-1.0, float("nan"), float("inf")])
def test_switch_cost_is_a_time(cost_ms: float) -> None:
    with pytest.raises(InputError, match=r"--switch-cost-ms is .*, expected 0 to 1e\+06"):
        Execution(switch_cost_ms=cost_ms)


# Overlap: 10 ms the target, 1 ms a draft pass

OVERLAP = Execution(overlap=True)


def batch() -> DecodeBatch:
    slot, known = np.arange(2), np.array([100, 200])
    return DecodeBatch(slot, slot, known, known - 1, slot + 1, 40 - slot, 0.0, 2, 0)


def test_drafts_hide_behind_verification() -> None:
    # k = 3, all accepted, 13 tokens. Prefill: 10 ms, the draft's 1 ms beside it. Then 3 passes, and beside the target
    # the guess and 3 more (4 ms): 13 ms. The next step finds its draft made: 10 ms. The last one drafts nothing ahead.
    result = run(requests(8, 13), policy="fixed:k=3", acceptance="iid:1", execution=OVERLAP)
    assert durations_ms(result) == pytest.approx([10, 13, 10, 10])
    assert in_ms(result, "draft_s") == pytest.approx([0, 3, 0, 0])
    assert in_ms(result, "hidden_draft_s") == pytest.approx([1, 4, 4, 0])
    assert in_ms(result, "wasted_draft_s") == pytest.approx([0, 0, 0, 0])


def test_a_rejected_chunk_is_thrown_away() -> None:
    # k = 3, nothing accepted, 10 tokens. With 9 and 8 to come the draft goes on by 1 + 3, with 7 by 1 + 2, with 6 by 1
    # + 1, after that by nothing (a draft behind k + 1 tokens needs 2 more); all of it in vain.
    result = run(requests(8, 10), policy="fixed:k=3", acceptance="iid:0", execution=OVERLAP)
    assert durations_ms(result) == pytest.approx([10, 13, 13, 13, 13, 13, 13, 12, 11, 10])
    assert in_ms(result, "wasted_draft_s") == pytest.approx([0, 4, 4, 3, 2, 0, 0, 0, 0, 0])


def test_a_slow_draft_makes_the_step_wait() -> None:
    # 4 ms a draft pass: guess and 3 more take 16 ms beside the target's 10; 6 of them show
    result = run(
        requests(8, 13), policy="fixed:k=3", acceptance="iid:1", execution=OVERLAP, draft=ForwardCost.affine(0.004)
    )
    assert durations_ms(result) == pytest.approx([10, 12 + 16, 16, 10])
    assert in_ms(result, "draft_s") == pytest.approx([0, 12 + 6, 6, 0])
    assert in_ms(result, "hidden_draft_s") == pytest.approx([4, 10, 10, 0])


def test_a_longer_draft_than_was_made_ahead_is_completed() -> None:
    # two sequences, all accepted. First k = 1 and 3: ahead, padded, guess and 3 more for both: 4 passes; the first has
    # 1 token standing, the second 3. Then k = 3 each: the first lacks 2: 2 ms before the target's 10.
    made = executor(acceptance="iid:1", execution=OVERLAP)
    first = made.run(Plan(batch(), np.array([1, 3]), True), None, None)
    assert first.draft_tokens.tolist() == [102, 204]  # guess and all: the draft has seen what is known now
    assert first.time.total_s == pytest.approx(0.013)
    later = after(batch(), first)
    second = made.run(Plan(later, np.array([3, 3]), True), None, None)
    assert (second.time.draft_s, second.time.verify_s) == pytest.approx((0.002, 0.010))


def test_a_shorter_draft_leaves_the_rest_standing() -> None:
    # 3 stand, 1 is proposed: the two others are the next guess and one behind it, which is the draft of 1 that is
    # wanted: nothing is drafted at all
    made = executor(acceptance="iid:1", execution=OVERLAP)
    first = made.run(Plan(batch(), np.array([3, 3]), True), None, None)
    second = made.run(Plan(after(batch(), first), np.array([1, 1]), True), None, None)
    assert (second.time.draft_s, second.time.hidden_draft_s) == (0, 0)
    third = made.run(Plan(after(after(batch(), first), second), np.array([1, 1]), True), None, None)
    assert (third.time.draft_s, third.time.hidden_draft_s) == pytest.approx((0, 0.002))


def test_a_wrong_guess_behind_a_whole_draft_is_thrown_away_too() -> None:
    # chances 1, 1, 0: with k = 2 both tokens are accepted and the guess behind them is always wrong: each step drafts
    # 2 ms anew, and throws 3 ms away: 4 steps of 3 tokens, the last drafts nothing ahead
    result = run(requests(8, 13), policy="fixed:k=2", acceptance="positions:1,1,0", execution=OVERLAP)
    assert durations_ms(result) == pytest.approx([10, 12, 12, 12, 12])
    assert in_ms(result, "wasted_draft_s") == pytest.approx([0, 3, 3, 3, 0])


def test_a_sequence_that_leaves_takes_its_draft_with_it() -> None:
    made = executor(acceptance="iid:1", execution=OVERLAP)
    first = made.run(Plan(batch(), np.array([3, 3]), True), None, None)
    made.release([0])
    again = after(batch(), first)
    assert made.run(Plan(again, np.array([3, 3]), True), None, None).time.draft_s == pytest.approx(0.003)


@pytest.mark.parametrize("draft", ["padded", "compact"])
@pytest.mark.parametrize("lengths", [[0, 0], [3, 1], [5, 5], [0, 7]])
def test_what_a_policy_is_told_is_what_the_step_takes(draft: str, lengths: list[int]) -> None:
    costs = {
        "target": ForwardCost.affine(0.002, 1e-4, 1e-7, 1e-9, 1e-5),
        "draft": ForwardCost.affine(0.001, 1e-5, 1e-7),
    }
    execution = Execution(draft=draft, overlap=True, switch_cost_ms=1)  # type: ignore[arg-type]
    made = executor(acceptance="iid:1", execution=execution, **costs)
    first = made.run(Plan(batch(), np.array([2, 4]), True), None, None)
    later = after(batch(), first)
    told = made.step_seconds(later, np.array(lengths))
    assert made.run(Plan(later, np.array(lengths), True), None, None).time.total_s == pytest.approx(told, rel=1e-12)


def test_overlap_changes_times_and_no_token() -> None:
    workload = requests(np.arange(1, 20), np.arange(30, 11, -1))
    results = [
        run(workload, policy="fixed:k=3", acceptance="regimes", execution=Execution(overlap=overlap))
        for overlap in (False, True)
    ]
    tokens = [{name: each.log.emissions[name].tolist() for name in ("request", "accepted")} for each in results]
    assert tokens[0] == tokens[1]
    assert results[1].ended_s < results[0].ended_s


@pytest.mark.parametrize("kind", ["parallel", "early-exit", "eagle", "ngram"])
def test_overlap_needs_a_draft_of_its_own(kind: str) -> None:
    with pytest.raises(InputError, match=rf"--overlap needs a draft of its own .*, not {kind}"):
        executor(draft_kind=kind, execution=OVERLAP)


def after(batch_: DecodeBatch, outcome) -> DecodeBatch:
    """The batch as the scheduler leaves it after a step."""
    emitted = outcome.emitted
    return DecodeBatch(
        batch_.slot,
        batch_.request,
        batch_.known_tokens + emitted,
        outcome.draft_tokens,
        batch_.emitted + emitted,
        batch_.remaining - emitted,
        0.0,
        len(batch_),
        0,
    )
