"""python -m calibrate --target ID|DIR --draft ID|DIR --output DIR: measure a pair on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from traces.command import at_least, parse
from traces.errors import InputError, run_command

DESCRIPTION = (
    "Measure a draft/target pair on this machine: forward costs and acceptance windows, for python -m sim "
    "--profile DIR --acceptance DIR. Interrupted runs go on where they stopped. "
    "`python -m calibrate show DIR` prints what was measured."
)


@dataclass(frozen=True)
class CalibrateConfig:
    """What is measured and where it goes."""

    target: str = "tiny"
    """`tiny` (small models that ship with the package), `smollm2`, a Hugging Face id or a local directory."""

    draft: str | None = None
    """A model (id or directory; `draft-s` or `draft-m` of tiny; `eagle` of smollm2, or a directory that
    calibrate.distill wrote), `skip:14,16,18`, the target without those layers, or `ngram`, prompt lookup. Default: the
    named target's own."""

    dummy_weights: bool = False
    """Measure the costs of two shapes from their configurations alone, without weights and so without text."""

    num_layers: int | None = None
    """With --dummy-weights: layers of the target to measure (and half of them), from which all are extrapolated."""

    output: Path = Path("calibration")
    """Directory for profile.json, cost.json, forward.parquet, acceptance.parquet and reconciliation.json."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps."""

    dtype: str = "auto"
    """auto (float32 on a CPU, otherwise bfloat16), float32, bfloat16 or float16."""

    threads: int = 1
    """Threads of a CPU that torch computes with."""

    prompts: Path | None = None
    """HumanEval, GSM8K, MT-bench, Spec-Bench, vLLM custom JSONL or plain text. Default: 96 prompts in 8 tasks, and for
    tiny held-out text of its own tasks."""

    num_prompts: int = 96
    """Prompts that are used, evenly over their tasks."""

    output_len: int = 64
    """Tokens that the target writes after each prompt."""

    temperature: float = 0.0
    """Of both models; 0 is greedy."""

    top_p: float = 1.0
    """Of both models."""

    depth: int = 16
    """Draft tokens of a window: the longest draft that can be replayed."""

    reconcile_k: int = 4
    """Draft tokens a step of the live run that the windows are held against."""

    max_num_seqs: int = 32
    """Largest batch that is measured."""

    max_model_len: int = 1024
    """Longest sequence that is measured; less if the target's positions end before."""

    max_num_batched_tokens: int = 512
    """Largest prefill chunk that is measured."""

    num_gpu_blocks: int | None = None
    """Upper bound of the KV pool, in blocks of 16 tokens. Default: what the free memory holds."""

    budget_s: float | None = None
    """Seconds for forward costs; more time, more points. Default: 110 for tiny, 600 otherwise."""

    seed: int = 0
    """Of prompts, draws and the order of measurement."""

    def __post_init__(self) -> None:
        at_least(self, threads=1, num_prompts=2, output_len=2, depth=1, reconcile_k=1, max_num_seqs=1, seed=0)
        at_least(self, max_model_len=64, max_num_batched_tokens=1)
        if self.reconcile_k > self.depth:
            raise InputError(f"--reconcile-k {self.reconcile_k}: expected at most --depth, which is {self.depth}")
        if self.num_layers is not None and not self.dummy_weights:
            raise InputError("--num-layers: only with --dummy-weights")
        if self.budget_s is not None and self.budget_s <= 0:
            raise InputError(f"--budget-s {self.budget_s:g}: expected seconds > 0")


def main() -> int:
    if sys.argv[1:2] == ["show"]:
        from calibrate import show

        show.main(sys.argv[2:])
        return 0
    config = parse(CalibrateConfig, "calibrate", DESCRIPTION)
    try:
        from calibrate.calibration import calibrate
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; pip install 'draftlab[calibrate]'") from None
    with _progress() as progress:
        calibrate(config, _say, progress)
    from calibrate import show

    show.main([str(config.output)])
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _progress() -> Iterator[Callable[[str, float, float], None]]:
    """`(stage, done, total)` as bars with the time left, on a terminal's standard error; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = {}

        def update(stage: str, done: float, total: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=min(done, total))

        yield update


if __name__ == "__main__":
    sys.exit(run_command(main))
