"""Acceptance rules by hand: what each lets stand, what AdaSD's threshold learns, what a lossy run says of itself."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest

from sim.__main__ import main
from sim.control.executor import Outcome, StepTime, standing
from sim.policies import make_rule
from sim.policies.acceptance_rules import AdaSDRule, Midpoint
from sim.replay.acceptance import Replay
from sim.replay.windows import Windows
from sim.results import read_results
from tests.sim.policy_driver import GivenSignals, batch
from tests.sim.serving import requests, run
from traces.errors import InputError, run_command

RULES = ["typical", "fuzzy", "fuzzy:kld=0.2", "adasd"]


def given(**tables: list[list[float]]) -> GivenSignals:
    """Signals of one step; those not named are NaN."""
    shape = np.shape(next(iter(tables.values())))
    names = ("kld", "draft_entropy", "draft_prob", "jsd", "target_entropy", "target_prob")
    return GivenSignals(**{name: np.array(tables.get(name, np.full(shape, np.nan))) for name in names})


def passes(spec: str, **tables: list[list[float]]) -> list[list[bool]]:
    signals = given(**tables)
    rows, depth = signals.jsd.shape
    return make_rule(spec).passes(batch(range(rows)), depth, signals).tolist()


def test_typical_by_hand():
    # least p = min(.09, .3 exp(-H)): H = 0 -> .09; H = 2 -> .0406; H = 5 -> .00202
    found = passes("typical", target_entropy=[[0, 0, 2, 2, 5, 5]], target_prob=[[0.09, 0.1, 0.04, 0.041, 0.002, 0.003]])
    assert found == [[False, True, False, True, False, True]]


def test_a_greedy_targets_own_token_is_always_typical():
    # exp(-H) <= max p for every distribution, so .3 exp(-H) < max p
    p = np.random.default_rng(0).dirichlet(np.full(50, 0.3), 200)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)
    assert np.array(passes("typical:threshold=1", target_entropy=[entropy], target_prob=[p.max(axis=1)])).all()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("fuzzy", [True, True, False]), ("fuzzy:jsd=.5", [True, True, True]), ("fuzzy:kld=.1", [False, True, False])],
)
def test_fuzzy_by_hand(spec, expected):
    assert passes(spec, jsd=[[0.1, 0.3, 0.5]], kld=[[0.2, 0.1, math.inf]]) == [expected]


@pytest.mark.parametrize("spec", RULES)
def test_undefined_signals_pass_nothing(spec):
    assert passes(spec, kld=[[math.nan, math.nan]]) == [[False, False]]


def test_the_accepted_run_under_a_rule():
    exact = np.array([[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]], bool)
    allowed = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1]], bool)
    accepted, by_rule = standing(exact, allowed, np.array([4, 4, 3, 2]))
    # row 0: exact, rule, exact, neither; row 1: neither at once; row 2: three were verified; row 3: two, both by rule
    assert accepted.tolist() == [3, 0, 3, 2]
    assert by_rule.sum(axis=1).tolist() == [1, 0, 0, 2]
    assert by_rule[0].tolist() == [False, True, False, False]


def judged(accepted: int, by_rule: list[bool], jsd: list[float]) -> Outcome:
    """One sequence that proposed as many tokens as there are distances."""
    k, a = np.array([len(jsd)]), np.array([accepted])
    signals = given(jsd=[jsd])
    return Outcome(k, k, a, a + 1, np.zeros(1, bool), k, signals, StepTime(0, 0, 0, 0), by_rule=np.array([by_rule]))


def test_adasd_learns_half_way_between_what_passes_and_what_fails():
    rule = AdaSDRule()
    lossless = [False, False]
    steps = [
        # accepted, by rule, distances -> mean of passed, of failed, threshold
        (2, lossless, [0.1, 0.3], None),  # passed .1 .3; nothing failed yet
        (0, lossless, [0.6, 0.7], 0.40),  # failed .6 (.7 is behind it, not judged): (.2 + .6) / 2
        (1, lossless, [0.2, 0.4], 0.35),  # passed .1 .3 .2 -> .2; failed .6 .4 -> .5
        (2, [True, False], [0.2, 0.0], 0.275),  # .2 stood by the rule: failed .6 .4 .2 -> .4; passed + 0 -> .15
        (2, [False, True], [0.15, 0.4], 0.275),  # passed + .15 -> .15; failed + .4 -> .4
        (0, lossless, [math.inf, 0.1], (0.15 + (1.6 + math.sqrt(math.log(2))) / 5) / 2),  # undefined counts as .8326
    ]
    for accepted, by_rule, jsd, expected in steps:
        rule.observe(batch([0]), judged(accepted, by_rule, jsd))
        assert rule.threshold.value == (None if expected is None else pytest.approx(expected))


def test_adasd_lets_nothing_stand_before_it_has_seen_both_kinds():
    assert passes("adasd", jsd=[[0.0, 0.0]]) == [[False, False]]


def test_adasd_accepts_up_to_its_threshold():
    rule = AdaSDRule()
    rule.threshold = Midpoint()
    rule.threshold.update(np.array([0.25, 0.75]), np.array([True, False]), np.array([False, True]))
    assert rule.passes(batch([0]), 3, given(jsd=[[0.2, 0.5, 0.51]])).tolist() == [[True, True, False]]


def test_adasd_learns_nothing_from_a_step_without_a_draft():
    rule = AdaSDRule()
    rule.observe(batch([0]), judged(0, [], []))
    assert rule.threshold.count.tolist() == [0, 0]


def greedy(jsd: float) -> Windows:
    """Every third token of one text is rejected; a constant distance, one position apart so that it is no constant."""
    accept = np.array([[1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 0]], np.float32)
    table = np.full((3, 4), jsd, np.float32)
    return Windows("test", "measured", accept, {"jsd": table, "kld": table}, {"jsd": table + 0.25})


def test_exact_verdicts_behind_a_rejection_are_those_of_the_recorded_text():
    replay = Replay(greedy(0.1), requests([8], 50), seed=0)
    rows = {int(replay.row(np.array([0]), np.array([t]))[0]): t for t in range(3)}
    one = np.array([0])
    for row, position in rows.items():
        view = batch([0])
        view.emitted[:] = position
        assert replay.exact(view, np.array([row]), 4).tolist() == (replay.windows.accept[[row]] == 1).tolist()
        assert replay.runs(view, one + row, 4).tolist() == [[2, 1, 0][row]]


@pytest.mark.parametrize("spec", RULES)
def test_a_rule_only_adds_to_what_is_accepted(spec):
    # the same policy and luck: a rule's first step can only be longer, and everyone still gets all their tokens
    workload = requests(np.arange(1, 40), 60)
    lossless, lossy = (
        run(workload, policy="fixed:k=5", acceptance="regimes", acceptance_rule=rule).log for rule in ("lossless", spec)
    )
    assert np.bincount(lossy.emissions["request"], lossy.emissions["tokens"]).tolist() == [60] * 39
    assert lossy.emissions["lossy"].sum() > 0
    assert len(lossy.steps) < len(lossless.steps)
    assert lossless.emissions["lossy"].sum() == 0


def test_a_rule_that_passes_nothing_is_lossless():
    workload = requests(np.arange(1, 40), 60)
    logs = [run(workload, policy="fixed:k=5", acceptance="regimes", acceptance_rule=rule).log for rule in RULES_OF_ZERO]
    rows = [[log.emissions[name].tolist() for name in log.emissions.NAMES] for log in logs]
    assert rows[0] == rows[1] == rows[2]


RULES_OF_ZERO = ("lossless", "fuzzy:kld=0", "typical:threshold=1,alpha=1e9")


def test_everything_stands_where_the_threshold_is_the_largest_distance():
    # ln 2 is the largest divergence, so jsd = 1 accepts all: k + 1 tokens a step while they last, 1 + 5 * 12 = 61
    log = run(requests([8], 61), policy="fixed:k=4", acceptance="regimes", acceptance_rule="fuzzy:jsd=1").log
    assert log.emissions["tokens"].tolist() == [1] + [5] * 12


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("nix", "unknown acceptance rule"),
        ("fuzzy:jsd=.1,kld=.1", "not both"),
        ("fuzzy:jsd=-1", "0 or more"),
        ("fuzzy:kld=nan", "0 or more"),
        ("typical:threshold=2", "threshold of 0 to 1"),
        ("typical:alpha=-1", "alpha >= 0"),
        ("adasd:tau=1", "options: none"),
    ],
)
def test_bad_rules(spec, line):
    with pytest.raises(InputError, match=line):
        make_rule(spec)


SMALL = ["--trace", "random", "--input-len", "50", "--output-len", "40", "--num-prompts", "12", "--policy", "fixed:k=4"]


def sim(monkeypatch: pytest.MonkeyPatch, *args: object) -> int:
    monkeypatch.setattr(sys, "argv", ["sim", *SMALL, *map(str, args)])
    return run_command(main)


@pytest.mark.parametrize("source", ["iid:0.8", "positions:.9,.5"])
def test_constant_signals_are_refused(monkeypatch, capsys, source):
    assert sim(monkeypatch, "--acceptance", source, "--acceptance-rule", "fuzzy") == 2
    assert "constants in acceptance" in capsys.readouterr().err


def test_a_bank_without_the_signal_is_refused(monkeypatch, capsys, tmp_path):
    greedy(0.1).save(tmp_path)
    assert sim(monkeypatch, "--acceptance", tmp_path, "--acceptance-rule", "typical") == 2
    error = capsys.readouterr().err
    assert "has no target_prob nor target_entropy" in error
    assert len(error.strip().splitlines()) == 1


def test_a_stop_rule_without_its_signal_is_refused(monkeypatch, capsys, tmp_path):
    greedy(0.1).save(tmp_path)
    assert sim(monkeypatch, "--acceptance", tmp_path, "--policy", "svip") == 2
    error = capsys.readouterr().err
    assert "has no signal draft_entropy" in error
    assert len(error.strip().splitlines()) == 1


def test_a_lossy_run_says_so_in_its_results(monkeypatch, tmp_path):
    arguments = ["--acceptance", "regimes", "--acceptance-rule", "adasd", "--output-dir", tmp_path]
    assert sim(monkeypatch, *arguments, "--baseline", "fixed:k=4") == 0
    saved = read_results(tmp_path)
    assert saved.config["acceptance_rule"] == "adasd"
    assert saved.metrics["lossless"] is False
    assert 0 < saved.metrics["lossy_output_share"] < saved.metrics["lossy_accepted_share"] < 1
    notes = " ".join(saved.provenance["notes"])
    assert "LOSSY" in notes
    assert "reconstruction" in notes
    baseline = saved.metrics["baseline"]  # takes its own rule, as it takes its own cap
    assert (baseline["lossless"], baseline["lossy_accepted_tokens"]) == (True, 0)


def test_a_lossy_run_says_so_in_its_table(monkeypatch, capsys):
    assert sim(monkeypatch, "--acceptance", "regimes", "--acceptance-rule", "fuzzy") == 0
    shown = capsys.readouterr().out
    assert "fuzzy (LOSSY)" in shown
    assert "accepted by rule only" in shown


def test_a_lossless_table_does_not_speak_of_rules(monkeypatch, capsys):
    assert sim(monkeypatch, "--acceptance", "regimes") == 0
    shown = capsys.readouterr().out
    assert "rule" not in shown
    assert "LOSSY" not in shown


def test_shares_by_hand(monkeypatch, capsys):
    # regimes with fuzzy:jsd=1: everything is accepted, so that the lossy tokens are all that the exact test rejects
    assert sim(monkeypatch, "--acceptance", "regimes", "--acceptance-rule", "fuzzy:jsd=1", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["spec_decode_acceptance_rate"] == 100
    # 12 requests of 1 + 7 * 5 + 4 tokens (k = 3 in the last step): 31 accepted of 39 decoded
    assert document["spec_decode_accepted_tokens"] == 12 * 31
    assert document["lossy_output_share"] == document["lossy_accepted_tokens"] / (12 * 39)
