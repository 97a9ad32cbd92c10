"""python -m calibrate.live --trace NAME|FILE --policy NAME --target ID --draft ID: serve requests with real models."""

from __future__ import annotations

import sys

from calibrate.live.config import LiveConfig
from sim.output import check_outputs, report, requests_bar
from traces.command import parse
from traces.errors import InputError, run_command

DESCRIPTION = (
    "Serve a workload with real models and real time, under the same scheduler, policies and caps as python -m sim, "
    "whose result files it writes, and the text of every request."
)


def main() -> int:
    config = parse(LiveConfig, "calibrate.live", DESCRIPTION)
    check_outputs(config)
    try:
        from calibrate.live.run import failure_of, load_inputs, run_live
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; pip install 'draftlab[calibrate]'") from None
    inputs = load_inputs(config, _say)
    with requests_bar(config.policy, len(inputs.requests.workload)) as progress:
        results = run_live(config, inputs, progress)
    failure, completed = failure_of(results), results.metrics["completed"]
    if failure is not None and not completed:
        raise InputError(failure)
    report(config, results)
    if failure is not None:
        kept = f"; they are in {config.output_dir}" if config.output_dir is not None else ""
        raise InputError(f"{failure} ({completed} of {len(results.workload)} requests were finished{kept})")
    if results.interrupted:
        _say(f"interrupted: figures of {config.policy} cover what had happened by then")
        return 130
    if not results.metrics["completed"]:
        _say(f"warning: no request of {config.policy} was completed")
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
