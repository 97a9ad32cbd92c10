"""Host work of a step: what it emits, and the line through its times."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from calibrate import host  # noqa: E402
from calibrate.timing import Timer, wall_stopwatch  # noqa: E402


class Clock:
    now = 0.0

    def work(self, seconds: float) -> None:
        self.now += seconds


def test_line_through_times() -> None:
    """2 ms + 0.5 ms for each sequence."""
    clock = Clock()
    timer = Timer(wall_stopwatch(clock=lambda: clock.now))
    found = host.line((1, 4, 16), lambda size: lambda: clock.work(0.002 + 0.0005 * size), timer)
    assert found == pytest.approx((0.002, 0.0005))


def logits(*tokens: int) -> object:
    """Rows that put all on one token of five."""
    return 100.0 * torch.nn.functional.one_hot(torch.tensor(tokens), 5).float()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((3, 3, 3), [3, 3, 3]),  # both drafts of 3 accepted, and the bonus
        ((3, 1, 4), [3, 1]),  # one accepted, the target's own in place of the second
        ((2, 3, 3), [2]),
    ],
)
def test_steps_emit_what_the_target_wants(wanted: tuple[int, ...], expected: list[int]) -> None:
    """The draft always says 3; with logits this sharp sampling is greedy."""
    draft, target = logits(3), logits(*wanted)[None]  # type: ignore[index]
    torch.manual_seed(0)
    assert host.greedy_step(draft, target) == [expected]
    assert host.sampled_step(draft, target, 1.0) == [expected]


def test_cost_is_measured_and_says_so() -> None:
    found = host.host_cost(64, torch.device("cpu"), max_num_seqs=8)
    assert found.seconds(8) > 0
    assert found.provenance.startswith("measured: greedy")
