"""Speed of the replay: microseconds per engine step, beside the bare cost of a SimPy timeout, in one run.

    python benchmarks/replay_speed.py --trace azure2023_conv.csv.gz --request-rate 'trace*4'

Without --trace it samples azure-conv at four times its rate. CPU seconds; `loop` is the SimPy run alone,
`process` everything from the start of the interpreter to written results. Each policy and size runs in its own process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time

import simpy

from sim.replay.bundled import DEFAULT


def timeout_cost_us(events: int = 200_000) -> float:
    """CPU microseconds of one SimPy process that yields timeouts and does nothing else."""
    env = simpy.Environment()

    def process():
        for _ in range(events):
            yield env.timeout(1.0)

    env.process(process())
    start = time.process_time()
    env.run()
    return (time.process_time() - start) / events * 1e6


def measure(trace: str, rate: str, acceptance: str, num_prompts: int, policy: str) -> None:
    """One run in this process; prints a JSON line."""
    from sim.cluster import Cluster
    from sim.config import SimConfig
    from sim.simulate import load_inputs, simulate

    loop_s = 0.0
    run_cluster = Cluster.run

    def timed(self: Cluster, until_s: float | None = None) -> float:
        nonlocal loop_s
        start = time.process_time()
        ended = run_cluster(self, until_s)
        loop_s = time.process_time() - start
        return ended

    Cluster.run = timed  # type: ignore[method-assign]
    is_file = "." in trace
    config = SimConfig(
        trace=trace,
        request_rate=rate,
        acceptance=acceptance,
        num_prompts=num_prompts,
        policy=policy,
        oversample=is_file,
    )
    run = simulate(config, load_inputs(config))
    with tempfile.TemporaryDirectory() as directory:
        run.save(directory)
    figures = {
        "steps": run.metrics["num_steps"],
        "batch": run.metrics["mean_batch"],
        "completed": run.metrics["completed"],
        "loop_s": loop_s,
        "process_s": time.process_time(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", default="azure-conv")
    parser.add_argument("--request-rate", default=None)
    parser.add_argument("--acceptance", default=DEFAULT)
    parser.add_argument("--num-prompts", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--policies", nargs="+", default=["dsde", "fixed:k=4", "none"])
    parser.add_argument("--repeats", type=int, default=3, help="of runs below 20,000 requests; the fastest is shown")
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        trace, rate, acceptance, num_prompts, policy = options.measure
        measure(trace, rate, acceptance, int(num_prompts), policy)
        return
    rate = options.request_rate or "22.1"  # four times the 5.53 req/s of azure-conv
    bare = min(timeout_cost_us() for _ in range(3))
    print(f"bare SimPy timeout: {bare:.2f} us")
    print("requests policy          steps  batch  loop s  us/step  x timeout  process s  peak MB  completed")
    for num_prompts in options.num_prompts:
        for policy in options.policies:
            inputs = [options.trace, rate, options.acceptance, str(num_prompts)]
            command = [sys.executable, __file__, "--measure", *inputs, policy]
            repeats = options.repeats if num_prompts < 20_000 else 1
            runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(repeats)]
            best = min(runs, key=lambda run: run["loop_s"])
            per_step = best["loop_s"] / best["steps"] * 1e6
            print(
                f"{num_prompts:>8} {policy:<13} {best['steps']:>7} {best['batch']:>6.1f} {best['loop_s']:>7.2f}"
                f" {per_step:>8.0f} {per_step / bare:>10.0f} {min(run['process_s'] for run in runs):>10.2f}"
                f" {best['peak_mb']:>8.0f} {best['completed']:>10}",
                flush=True,
            )


if __name__ == "__main__":
    main()
