"""Every figure: with one policy, with twelve, with a column missing, with nothing; and what it draws."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
import pytest

import analysis
from analysis.acceptance import classes, pooled_by_depth
from analysis.gain import draft_length, speed_ups
from analysis.load import pareto_front, regrets
from analysis.style import draw, save, styles
from sim.replay.windows import Windows
from sim.style import STYLE, new_figure
from tests.analysis.frames import TWELVE, frame, requests, row, steps, windows
from tests.sim.runs import empty, small
from traces.errors import InputError

NEEDED = {
    "latency": "mean_tpot_ms",
    "pareto": "output_throughput",
    "speed_up": "mean_tpot_ms",
    "regret": "seed",
    "straggler_and_waste": "draft_idle_share",
    "time_split": "host_time_s",
    "acceptance_by_depth": "spec_decode_per_position_acceptance_rates",
}
FRAMES = {figure.__name__: figure for figure in analysis.FRAME_FIGURES}
BATCH = {"max_concurrency": 8.0}


def axes_of(figure, data, **options):
    with matplotlib.rc_context(STYLE):
        axes = new_figure(5, 4).add_subplot()
    assert figure(data, axes, **options) is axes
    axes.figure.canvas.draw()
    return axes


def texts(axes) -> set[str]:
    """Every label of a series: of the legend or of a row."""
    legend = axes.get_legend()
    found = {text.get_text() for text in (legend.get_texts() if legend else [])}
    return found | {label.get_text() for label in axes.get_yticklabels()}


def test_every_figure_of_a_frame_is_tested():
    assert FRAMES.keys() == NEEDED.keys()


@pytest.mark.parametrize("name", FRAMES)
def test_one_policy(name):
    policies = {"speed_up": ("none", "fixed:k=4"), "regret": ("oracle:goodput", "dsde")}.get(name, ("dsde",))
    shown = {"speed_up": "4"}.get(name, "dsde")
    assert shown in texts(axes_of(FRAMES[name], frame(policies, **BATCH)))


@pytest.mark.parametrize("name", FRAMES)
def test_twelve_policies(name):
    absent = {"regret": {"oracle:goodput"}, "acceptance_by_depth": {"none"}}.get(name, set())
    shown = {"1", "2", "4", "8"} if name == "speed_up" else set(TWELVE) - absent
    assert shown <= texts(axes_of(FRAMES[name], frame(TWELVE, ("1", "4", "16"), (0, 1, 2))))


@pytest.mark.parametrize("name", FRAMES)
def test_missing_column_is_one_clear_line(name):
    with pytest.raises(InputError, match=rf"^{name}: the frame has no column {NEEDED[name]}[^\n]*$"):
        axes_of(FRAMES[name], frame(TWELVE).drop(columns=NEEDED[name]))


@pytest.mark.parametrize(
    "data", [pd.DataFrame(), frame().iloc[:0], frame(error="out of memory")], ids=["bare", "no rows", "all failed"]
)
@pytest.mark.parametrize("name", FRAMES)
def test_nothing_says_so(name, data):
    assert [text.get_text() for text in axes_of(FRAMES[name], data).texts] in (["no runs"], ["nothing was drafted"])


@pytest.mark.parametrize("name", ["k_over_time", "timeline_of_steps"])
def test_steps_of_one_run_of_twelve_and_of_none(name):
    figure = getattr(analysis, name)
    one, many = axes_of(figure, steps()), axes_of(figure, dict.fromkeys(TWELVE, steps()))
    assert one.get_legend()
    assert set(TWELVE) <= texts(many)
    assert [text.get_text() for text in axes_of(figure, steps(0)).texts] == ["no steps"]
    with pytest.raises(InputError, match=rf"^{name}: the frame has no column max_draft"):
        axes_of(figure, steps().drop(columns="max_draft"))


def test_lengths_of_one_run_of_twelve_and_of_none():
    figure = analysis.k_distribution
    assert axes_of(figure, requests()).patches
    assert set(TWELVE) <= texts(axes_of(figure, dict.fromkeys(TWELVE, requests())))
    for data in (requests().iloc[:0], empty()):
        assert [text.get_text() for text in axes_of(figure, data).texts] == ["nothing was drafted"]
    with pytest.raises(InputError, match=r"^k_distribution: the frame has no column acceptance_histogram_by"):
        axes_of(figure, requests().drop(columns="acceptance_histogram_by_draft_length"))


def test_run_without_its_steps(tmp_path):
    from sim.results import read_results

    small().save(tmp_path)
    with pytest.raises(InputError, match=r"^k_over_time: the run was saved without its steps"):
        axes_of(analysis.k_over_time, read_results(tmp_path))


DATA = {name: frame(TWELVE, ("1", "4"), (0, 1)) for name in FRAMES}
DATA |= {"k_over_time": steps(), "k_distribution": requests(), "timeline_of_steps": steps()}
DATA |= {"acceptance_by_task": windows(), "signal_against_acceptance": windows()}


@pytest.mark.parametrize("name", DATA)
def test_same_data_same_bytes(tmp_path, name):
    for file in ("a.svg", "b.svg"):
        save(getattr(analysis, name), DATA[name], tmp_path / file)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_png_too(tmp_path):
    for file in ("a.png", "b.png"):
        save(analysis.latency, frame(), tmp_path / file)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_long_legend_makes_the_figure_higher_and_not_the_plot_smaller():
    few, many = (draw(analysis.latency, frame(policies)).get_size_inches()[1] for policies in (("dsde",), TWELVE))
    assert many > few + 0.3  # two more lines of 0.17 inch


def test_twelve_series_are_told_apart_without_colour():
    look = styles(TWELVE)
    assert len({(each["marker"], each["linestyle"]) for each in look.values()}) == 12


def test_latency_is_the_mean_over_seeds():
    # dsde at 1/s: 10.0 and 10.1 ms; at 4/s one more
    axes = axes_of(analysis.latency, frame(("dsde",), ("1", "4"), (0, 1)))
    assert axes.lines[0].get_xdata() == pytest.approx([1, 4])
    assert axes.lines[0].get_ydata() == pytest.approx([10.05, 11.05])


def test_slo_of_the_runs_is_drawn():
    axes = axes_of(analysis.latency, frame(goodput=["ttft:500", "tpot:50"]))
    assert axes.lines[-1].get_ydata()[0] == 50
    assert "SLO, 50 ms" in texts(axes)


def test_all_at_once_stands_behind_the_last_rate():
    axes = axes_of(analysis.latency, frame(("dsde",), ("1", "2", "inf")))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "inf"]
    assert np.all(np.diff(axes.lines[0].get_xdata()) > 0)


def test_rate_that_is_no_number():
    with pytest.raises(InputError, match=r"^latency: request_rate 'trace' is no number"):
        axes_of(analysis.latency, frame(rates=("trace",)))


def test_pareto_front():
    # throughput up, latency down: (3, 3), (1, 2) and (2, 2) are beaten by (3, 2); equal points count once
    points = np.array([[1, 1], [1, 2], [2, 2], [3, 3], [3, 2], [5, 9], [5, 9]], float)
    assert pareto_front(points, True, False).tolist() == [[1, 1], [3, 2], [5, 9]]


def test_pareto_front_of_nothing():
    assert len(pareto_front(np.empty((0, 2)), True, False)) == 0


def test_regret_is_paired_by_seed_and_sorted():
    # seed 0: 12 / 10 and seed 1: 24 / 20 are both 1.2 though the seeds differ by a factor; bass 1.5
    times = {"oracle:goodput": 10, "bass": 15, "dsde": 12}
    runs = [row(policy, seed=s, tpot=ms * (s + 1)) for policy, ms in times.items() for s in (0, 1)]
    data = pd.DataFrame(runs)
    table = regrets(data.assign(series=data["policy"]), ["4"], "mean_tpot_ms")
    assert list(table.index) == ["dsde", "bass"]
    assert table["4"].to_numpy() == pytest.approx([20, 50])


def test_regret_needs_the_oracle():
    with pytest.raises(InputError, match=r"^regret: no run of oracle:goodput in the frame"):
        axes_of(analysis.regret, frame())


@pytest.mark.parametrize(("policy", "k"), [("none", 0), ("fixed", 4), ("fixed:8", 8), ("fixed:k=2", 2), ("dsde", None)])
def test_draft_length(policy, k):
    assert draft_length(policy) == k


def test_speed_up():
    # 10 ms plain against 8 and 20 ms; k = 4 was not run at batch 1
    cells = [
        ("none", 0, 1, 10),
        ("none", 0, 8, 10),
        ("fixed:k=2", 2, 1, 8),
        ("fixed:k=2", 2, 8, 20),
        ("fixed:k=4", 4, 8, 5),
    ]
    runs = pd.DataFrame([row(p, tpot=ms, k=k, max_concurrency=float(b)) for p, k, b, ms in cells])
    table = speed_ups(runs, "max_concurrency", "mean_tpot_ms")
    assert table.to_numpy() == pytest.approx(np.array([[1.25, 0.5], [np.nan, 2.0]]), nan_ok=True)


def test_break_even_is_drawn_where_it_lies_inside():
    cells = [("none", 1, 10), ("none", 64, 10), ("fixed:k=1", 1, 8), ("fixed:k=1", 64, 9), ("fixed:k=4", 1, 9)]
    cells.append(("fixed:k=4", 64, 12))
    runs = pd.DataFrame([row(policy, tpot=ms, max_concurrency=float(batch)) for policy, batch, ms in cells])
    contours = [each for each in axes_of(analysis.speed_up, runs).collections if each.get_paths()]
    assert len(contours) == 2  # a white line under a black one


def test_speed_up_needs_plain_decoding():
    with pytest.raises(InputError, match=r"^speed_up: needs runs of none and of fixed"):
        axes_of(analysis.speed_up, frame(("fixed:k=4",), **BATCH))


def test_a_heat_map_has_no_room_for_another_setting():
    both = pd.concat([frame(("none", "fixed:k=4"), profile=name, **BATCH) for name in ("a", "b")])
    with pytest.raises(InputError, match=r"^speed_up: profile has 2 values in the frame; choose one"):
        axes_of(analysis.speed_up, both)


def test_time_split_in_percent():
    # draft 1, verify 2, prefill .5, host .5 of 4 s: the bars end at 25, 75, 87.5 and 100 %
    ends = [bar.get_x() + bar.get_width() for bar in axes_of(analysis.time_split, frame(("dsde",))).patches]
    assert ends == pytest.approx([25, 75, 87.5, 100])


def test_stragglers_and_waste_of_a_policy_that_drafts_nothing():
    means = [line.get_xdata() for line in axes_of(analysis.straggler_and_waste, frame(("none", "dsde"))).lines]
    assert [each.tolist() for each in means] == [[25], [50]]


def test_acceptance_is_pooled_over_runs():
    # position 1: (100 x .8 + 300 x .4) / 400 = .5; 2: reached by 80 and 120: (80 x .5 + 120 x 1) / 200 = .8;
    # 3: reached by 100 x .2 = 20 drafts of one run only: too few to show
    rates = {"spec_decode_per_position_acceptance_rates": [[0.8, 0.2, 0.1], [0.4, 0.4]]}
    rates |= {"spec_decode_per_position_conditional_acceptance_rates": [[0.8, 0.5, 0.5], [0.4, 1.0]]}
    runs = pd.DataFrame(rates | {"spec_decode_num_drafts": [100.0, 300.0]})
    assert pooled_by_depth(runs) == pytest.approx([0.5, 0.8])


def test_acceptance_by_task_from_requests():
    # code, position 1: 14 steps, 2 + 1 accepted none: 11/14 = 79 %; position 2, k = 2 only: 8 reached, 5 accepted: 62 %
    # prose: 2 of 2, never a second position. Most accepted on top
    axes = axes_of(analysis.acceptance_by_task, requests())
    assert [label.get_text() for label in axes.get_yticklabels()] == ["prose", "code"]
    assert [text.get_text() for text in axes.texts] == ["100", "79", "62"]


def test_acceptance_by_task_from_windows():
    # half of the rows accept all four tokens, half none: 50 % at first, then 100 % of those that got there
    axes = axes_of(analysis.acceptance_by_task, windows())
    assert [text.get_text() for text in axes.texts] == ["50", "100", "100", "100"] * 2


def test_acceptance_by_task_without_its_column():
    with pytest.raises(InputError, match=r"^acceptance_by_task: the frame has no column task"):
        axes_of(analysis.acceptance_by_task, requests().drop(columns="task"))


def test_signal_that_decides():
    # entropies 0..59 twice, accepted below 30: r = -sqrt(3)/2 (x uniform, y its sign); from 100 to 0 %
    axes = axes_of(analysis.signal_against_acceptance, windows())
    assert "draft entropy (r = -0.87)" in texts(axes)
    assert axes.lines[0].get_ydata()[[0, -1]].tolist() == [100, 0]


def test_no_signals():
    bare = Windows("x", "synthetic", np.ones((3, 2), np.float32), {})
    assert [text.get_text() for text in axes_of(analysis.signal_against_acceptance, bare).texts] == ["no signals"]


def test_equal_signals_share_a_class():
    # 9 zeros and 3 ones: percentiles 37.5 and 87.5; a third of the zeros and all ones accepted
    signal, accepted = np.repeat([0.0, 1.0], [9, 3]), np.array([1.0] * 3 + [0.0] * 6 + [1.0] * 3)
    x, y = classes(signal, accepted)
    assert (x.tolist(), y.tolist()) == ([37.5, 87.5], [pytest.approx(100 / 3), 100])


def test_k_over_time_of_one_run():
    # two sequences draft 4 and 2 and accept 1 each: longest 4, mean 3, accepted 1
    longest, mean, accepted = (np.nanmax(line.get_ydata()) for line in axes_of(analysis.k_over_time, steps()).lines)
    assert (longest, mean, accepted) == (4, 3, 1)


def test_k_distribution_of_a_run_in_memory():
    # `small` decodes with k = 3, 0 and 3: mean 2
    axes = axes_of(analysis.k_distribution, small())
    assert [text.get_text() for text in axes.texts] == ["2.0"]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([0.425, 0, 0, 0.85])


def test_timeline_shows_the_middle_steps():
    # 4 of 10 steps of 10 ms: from the fourth on, 40 ms; a draft of depth 4 on each
    axes = axes_of(analysis.timeline_of_steps, steps(), steps=4)
    assert axes.get_xlim() == pytest.approx((0, 40))
    assert "after 0.030 s" in axes.get_xlabel()
    assert [text.get_text() for text in axes.texts] == ["4"] * 4
