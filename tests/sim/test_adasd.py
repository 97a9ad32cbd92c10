"""AdaSD, our reconstruction, by hand: its stop, and that it brings its rule. The rule: test_acceptance_rules.py."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest

from sim.__main__ import main
from sim.policies import default_rule, policies
from tests.sim.draft_loop import drafted, steps, verify
from tests.sim.policy_driver import policy
from traces.errors import InputError, run_command


def test_five_steps_of_one_sequence():
    script = [
        # nothing known: no stop. Accepted .2 .4 (mean .3), rejected 1.0; 2.0 is behind it. tau = .65
        ([0.2, 0.4, 1.0, 2.0], 2),
        # .7 is above. Accepted .2 .4 .1 .7 (.35), rejected 1.0: tau = .675
        ([0.1, 0.7, 0.1, 0.1], 2),
        # .676 is above. Rejected 1.0 .5 (.75): tau = .55
        ([0.5, 0.676, 0.1, 0.1], 0),
        # .56 is above. Accepted + .54: 1.94 / 5 = .388; rejected + .56: 2.06 / 3 = .68667; tau = .53733
        ([0.54, 0.56, 0.1, 0.1], 1),
        # .537 is not above, .538 is
        ([0.537, 0.538, 0.1, 0.1], 0),
    ]
    assert steps(policy("adasd"), script) == [4, 2, 2, 2, 2]


@pytest.mark.parametrize("accepted", [0, 4])
def test_one_kind_alone_stops_nothing(accepted):
    rule = policy("adasd")
    for _ in range(5):
        verify(rule, [[0.3] * 4], [4], [accepted])
    assert drafted(rule, [[9.0] * 4]) == [4]


def test_all_sequences_of_an_engine_share_the_threshold():
    rule = policy("adasd")
    verify(rule, [[0.2, 0.4], [0.6, 1.0]], [2, 2], [2, 0])
    # accepted .2 .4; rejected .6: tau = .45
    rule.begin(np.array([0, 1]))
    assert drafted(rule, [[0.44, 0.46, 0.0], [0.46, 0.0, 0.0]]) == [2, 1]


@pytest.mark.parametrize("entropy", [math.inf, math.nan])
def test_an_undefined_entropy_counts_as_a_large_one(entropy):
    rule = policy("adasd")
    verify(rule, [[0.2, entropy]], [2], [1])
    # accepted .2, rejected 20: tau = 10.1
    assert drafted(rule, [[10.0, 10.2, 0.0]]) == [2]
    assert drafted(rule, [[entropy, 0.0, 0.0]]) == [1]


def test_a_step_without_a_draft_changes_nothing():
    rule = policy("adasd")
    verify(rule, [[0.2]], [0], [0])
    assert rule.threshold.count.tolist() == [0, 0]


def test_at_most_k_and_at_most_what_is_left():
    assert drafted(policy("adasd:k=3"), [[0.0] * 8]) == [3]
    assert drafted(policy("adasd"), [[0.0] * 8], remaining=5) == [4]


def test_it_brings_its_rule():
    assert default_rule("adasd:k=5") == "adasd"
    assert "accept" in policies["adasd"].hooks()


def test_every_other_policy_is_lossless():
    lossy = [name for name in policies if not policies[name].lossless or default_rule(name) != "lossless"]
    assert lossy == ["adasd"]


SMALL = ["--trace", "random", "--input-len", "50", "--output-len", "40", "--num-prompts", "12"]


def sim(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr(sys, "argv", ["sim", *args])
    return run_command(main)


def test_the_list_says_what_it_is(monkeypatch, capsys):
    assert sim(monkeypatch, "--policy", "list") == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("adasd"))
    for word in ("LOSSY", "lengths+stop+accept+observe", "2512.11280", "RECONSTRUCTION"):
        assert word in row


def test_its_results_say_what_it_is(monkeypatch, capsys):
    assert sim(monkeypatch, *SMALL, "--policy", "adasd", "--acceptance", "regimes", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["lossless"] is False
    assert document["config"]["acceptance_rule"] == "adasd"
    assert document["lossy_accepted_tokens"] > 0
    notes = document["provenance"]["notes"]
    assert any("LOSSY" in note for note in notes)
    assert any("policy adasd is our reconstruction" in note for note in notes)


def test_its_summary_says_what_it_is(monkeypatch, capsys):
    assert sim(monkeypatch, *SMALL, "--policy", "adasd", "--acceptance", "regimes") == 0
    shown = capsys.readouterr().out
    assert "adasd (LOSSY)" in shown
    assert "our reconstruction of AdaSD" in shown.replace("\n", " ")


def test_with_the_exact_test_alone_it_is_lossless(monkeypatch, capsys):
    arguments = ["--policy", "adasd", "--acceptance", "regimes", "--acceptance-rule", "lossless", "--json"]
    assert sim(monkeypatch, *SMALL, *arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["lossless"], document["lossy_accepted_tokens"]) == (True, 0)


@pytest.mark.parametrize("spec", ["k=-1", "tau=1"])
def test_bad_options(spec):
    with pytest.raises(InputError, match="policy adasd"):
        policy(f"adasd:{spec}")
