"""Live runs of a few requests: small pairs, a server in virtual time whose steps cost 10 ms and 1 ms a draft token."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from calibrate.live.executor import LiveSettings
from calibrate.live.serve import LiveRun, LiveServer
from calibrate.pairs import Pair
from calibrate.signals import Sampling
from sim.control.scheduler import SchedulerConfig
from sim.policies import default_cap
from sim.replay.cost import ForwardCost, HostCost
from sim.serve import ServerConfig
from traces.workload import Workload

COSTS: Any = SimpleNamespace(
    name="test",
    draft_kind="autoregressive",
    target=ForwardCost.affine(0.010),
    draft=ForwardCost.affine(0.001),
    host=HostCost(0.0, 0.0, "test"),
)


def server(
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    output: Any,
    *,
    policy: str = "none",
    cap: str | None = None,
    rule: str = "lossless",
    arrival: Any = 0.0,
    sampling: Sampling | None = None,
    blocks: int = 10_000,
    block_size: int = 4,
    max_num_seqs: int = 4,
    tokens: int = 256,
    max_model_len: int = 100,
    depth: int = 8,
    compact: bool = False,
    ignore_eos: bool = False,
    wall: bool = False,
    seed: int = 0,
) -> LiveServer:
    count = len(prompts)
    arrival_s = np.broadcast_to(np.asarray(arrival, np.float64), count).copy()
    lengths = np.array([len(ids) for ids in prompts], np.int64)
    workload = Workload(
        "test", "synthetic", arrival_s, lengths, np.broadcast_to(np.asarray(output, np.int64), count).copy()
    )
    config = ServerConfig(
        num_gpu_blocks=blocks,
        block_size=block_size,
        policy=policy,
        cap=cap or default_cap(policy),
        acceptance_rule=rule,
        scheduler=SchedulerConfig(max_num_seqs, tokens, max_model_len, (sampling or Sampling()).temperature),
    )
    settings = LiveSettings(max_num_seqs, max_model_len, depth, sampling or Sampling(), compact, ignore_eos, seed)
    return LiveServer(pair, workload, prompts, config, settings, profile=COSTS, wall=wall, seed=seed)


def serve(pair: Pair, prompts: Sequence[Sequence[int]], output: Any, **options: Any) -> LiveRun:
    run = server(pair, prompts, output, **options).run()
    assert run.failure is None, run.failure
    return run


def texts(run: LiveRun) -> list[list[int]]:
    return [run.texts.output(request) for request in range(len(run.texts))]


def generated(pair: Pair, prompts: Sequence[Sequence[int]], output: Sequence[int]) -> list[list[int]]:
    """What transformers' own generation writes after each prompt, one at a time."""
    found = []
    for ids, count in zip(prompts, output, strict=True):
        tokens = torch.tensor([ids])
        whole = pair.target.generate(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, do_sample=False
        )
        found.append(whole[0, len(ids) :].tolist())
    return found


def some_prompts(count: int, vocabulary: int, seed: int = 0) -> list[list[int]]:
    """Of 3 to 20 tokens."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocabulary, rng.integers(3, 21)).tolist() for _ in range(count)]
