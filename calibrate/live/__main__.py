"""python -m calibrate.live --trace NAME|FILE --policy NAME --target ID --draft ID: serve requests with real models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from calibrate.live.config import LiveConfig
from sim.results import Results
from traces.command import parse
from traces.errors import InputError, run_command

DESCRIPTION = (
    "Serve a workload with real models and real time, under the same scheduler, policies and caps as python -m sim, "
    "whose result files it writes, and the text of every request."
)


def main() -> int:
    config = parse(LiveConfig, "calibrate.live", DESCRIPTION)
    _check_outputs(config)
    try:
        from calibrate.live.run import failure_of, load_inputs, run_live
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; pip install 'draftlab[calibrate]'") from None
    inputs = load_inputs(config, _say)
    with _progress(config.policy, len(inputs.requests.workload)) as progress:
        results = run_live(config, inputs, progress)
    failure, completed = failure_of(results), results.metrics["completed"]
    if failure is not None and not completed:
        raise InputError(failure)
    _report(config, results)
    if failure is not None:
        kept = f"; they are in {config.output_dir}" if config.output_dir is not None else ""
        raise InputError(f"{failure} ({completed} of {len(results.workload)} requests were finished{kept})")
    if results.interrupted:
        _say(f"interrupted: figures of {config.policy} cover what had happened by then")
        return 130
    if not results.metrics["completed"]:
        _say(f"warning: no request of {config.policy} was completed")
    return 0


def _check_outputs(config: LiveConfig) -> None:
    """Refuse what could not be written before anything is loaded."""
    for flag, wanted in (("--save-detailed", config.save_detailed), ("--timeline", config.timeline)):
        if wanted and config.output_dir is None:
            raise InputError(f"{flag} writes into --output-dir: give that too")
    if config.output_dir is not None and config.output_dir.exists() and not config.output_dir.is_dir():
        raise InputError(f"--output-dir {config.output_dir} is a file, expected a directory")
    if config.plot is not None:
        from sim.plot import check_path

        check_path(config.plot)


def _report(config: LiveConfig, results: Results) -> None:
    if config.output_dir is not None:
        results.save(config.output_dir, detailed=config.save_detailed, timeline=config.timeline)
    if config.plot is not None:
        from sim.plot import plot

        plot(results, config.plot)
    if config.json:
        sys.stdout.write(results.to_json())
        return
    from sim.table import print_table

    print_table(results)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _progress(policy: str, num_requests: int) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on a terminal's standard error; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(policy, total=num_requests)
        yield lambda ended: bar.update(task, completed=ended)


if __name__ == "__main__":
    sys.exit(run_command(main))
