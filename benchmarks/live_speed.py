"""Speed of the live engine with k = 0 against transformers' generate, the same prompts and batch, side by side.

    python benchmarks/live_speed.py --target tiny --batch 1 4 16

Seconds from prompts to texts, greedy, all texts of the same length: of CPU time on a CPU, so that other work on the
machine counts little, of the wall clock on a GPU. The two take turns, so that a slow minute hits both; the table shows
the fastest of the repeats of each and the median of the ratios of turns.
`engine` is everything between the first request's arrival and the last text: scheduler, KV accounting, passes, books.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import numpy as np
import torch

from calibrate.live.executor import LiveSettings
from calibrate.live.serve import LiveServer
from calibrate.pairs import Pair, load_pair
from calibrate.prompts import load_prompts, render
from calibrate.signals import Sampling
from sim.control.scheduler import SchedulerConfig
from sim.serve import ServerConfig
from traces.workload import Workload


def generate(pair: Pair, prompts: list[list[int]], output: int) -> tuple[float, list[list[int]]]:
    """Left-padded as transformers wants it; seconds and the texts."""
    width = max(map(len, prompts))
    tokens = torch.tensor([[0] * (width - len(ids)) + ids for ids in prompts], device=pair.device)
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts], device=pair.device)
    started = clock(pair)
    found = pair.target.generate(
        input_ids=tokens,
        attention_mask=mask,
        max_new_tokens=output,
        do_sample=False,
        pad_token_id=0,
    )
    return clock(pair) - started, found[:, width:].tolist()


def engine(pair: Pair, prompts: list[list[int]], output: int) -> tuple[float, list[list[int]]]:
    """A fresh server, warmed up, then timed."""
    size, longest = len(prompts), max(map(len, prompts)) + output
    workload = Workload(
        "benchmark", "synthetic", np.zeros(size), np.array([len(ids) for ids in prompts]), np.full(size, output)
    )
    scheduler = SchedulerConfig(size, max(8192, size), longest)
    server = ServerConfig(num_gpu_blocks=size * (longest // 16 + 2), policy="fixed:k=0", scheduler=scheduler)
    live = LiveServer(pair, workload, prompts, server, LiveSettings(size, longest, 1, Sampling(), ignore_eos=True))
    started = clock(pair)
    run = live.run()
    seconds = clock(pair) - started
    if run.failure:
        raise RuntimeError(run.failure)
    return seconds, [run.texts.output(request) for request in range(size)]


def clock(pair: Pair) -> float:
    if pair.device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(pair.device)
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="tiny")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    pair = load_pair(options.target, "ngram", device=options.device, dtype=options.dtype)
    pair.target.generation_config.eos_token_id = None  # both write on
    source = "tiny" if options.target == "tiny" else None
    prompts = [render(prompt, pair.tokenizer) for prompt in load_prompts(source, limit=max(options.batch))]
    prompts = [prompts[index % len(prompts)] for index in range(max(options.batch))]
    print("batch  generate s  engine s  tok/s generate  tok/s engine  generate/engine  equal texts")
    for size in options.batch:
        own = prompts[:size]
        turns = []
        for turn in range(options.repeats + 1):  # the first warms up
            first, second = (generate, engine) if turn % 2 else (engine, generate)
            found = {first: first(pair, own, options.output_len), second: second(pair, own, options.output_len)}
            if turn:
                turns.append((found[generate][0], found[engine][0]))
        equal = sum(a == b for a, b in zip(found[generate][1], found[engine][1], strict=True))
        theirs, ours = (min(column) for column in zip(*turns, strict=True))
        tokens = size * options.output_len
        ratio = statistics.median(a / b for a, b in turns)
        print(
            f"{size:>5} {theirs:>11.3f} {ours:>9.3f} {tokens / theirs:>15.0f} {tokens / ours:>13.0f} {ratio:>16.2f}"
            f" {equal:>9}/{size}",
            flush=True,
        )


if __name__ == "__main__":
    main()
