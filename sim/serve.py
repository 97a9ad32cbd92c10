"""Serve a workload with simulated replicas: build the engines, run the clock, hand back the event log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from sim.cluster import ClientConfig, Cluster
from sim.control.engine import Engine
from sim.control.executor import Executor
from sim.control.kv_cache import KVCache
from sim.control.log import EventLog
from sim.control.scheduler import Scheduler, SchedulerConfig
from sim.control.speculation import Speculation
from sim.policies import AcceptanceRule, PolicyContext, make_cap, make_policy, make_rule
from sim.replay.acceptance import Replay
from sim.replay.execution import Execution
from sim.replay.profile import Profile
from sim.replay.simulated import SimulatedExecutor
from sim.replay.windows import Windows
from sim.routers import routers
from traces.errors import InputError
from traces.workload import Workload

_STREAM_ROUTER, _STREAM_POLICY = 103, 104
MOST_REPLICAS = 10_000


@dataclass(frozen=True)
class ServerConfig:
    """The replicas and how they decide. Specs are those of the command line.

    num_gpu_blocks         KV blocks of each replica's pool
    enable_prefix_caching  reuse the KV of equal prompt prefixes; needs a trace that knows its prefixes
    """

    num_gpu_blocks: int
    block_size: int = 16
    policy: str = "none"
    cap: str = "none"
    acceptance_rule: str = "lossless"
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    execution: Execution = field(default_factory=Execution)
    enable_prefix_caching: bool = False
    num_replicas: int = 1
    router: str = "round-robin"

    def __post_init__(self) -> None:
        if not 1 <= self.num_replicas <= MOST_REPLICAS:
            raise InputError(f"number of replicas is {self.num_replicas}, expected at least 1, at most {MOST_REPLICAS}")


@dataclass(frozen=True)
class Run:
    """What happened.

    ended_s             the clock when the run stopped
    interrupted         stopped by Ctrl-C: the log holds what was finished
    passes, outside     forward passes looked up in the cost model, and those beyond its measured range
    """

    log: EventLog
    ended_s: float
    interrupted: bool
    engines: tuple[Engine, ...]
    passes: int
    outside: int


def serve(
    workload: Workload,
    profile: Profile,
    windows: Windows,
    server: ServerConfig,
    client: ClientConfig | None = None,
    *,
    seed: int = 0,
    until_s: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Serve `workload` until all requests have ended, or until the clock reads `until_s` seconds.

    Raises InputError for a policy, cap, acceptance rule or router that does not exist or whose options are wrong, and
    for a rule that the windows have no signals for.
    """
    if until_s is not None and not 0 < until_s < float("inf"):
        raise InputError(f"the run is to stop at {until_s} s, expected a time above 0")
    prefix_tokens = 0
    if server.enable_prefix_caching:
        if workload.prefix_blocks is None:
            raise InputError(
                f"prefix caching: {workload.name} does not say which prompts share a prefix (mooncake does)"
            )
        prefix_tokens = workload.prefix_blocks.block_tokens
    log = EventLog(len(workload))
    replay = Replay(windows, workload, seed)
    _check_signals(make_rule(server.acceptance_rule), windows)
    executors = [SimulatedExecutor(profile, replay, server.execution) for _ in range(server.num_replicas)]
    engines = tuple(
        make_engine(executor, workload, server, log, seed, index=index, prefix_tokens=prefix_tokens)
        for index, executor in enumerate(executors)
    )
    _check_stop(engines[0].speculation, executors[0], profile.draft_kind)
    router = routers[server.router](
        np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _STREAM_ROUTER])))
    )
    cluster = Cluster(engines, router, workload.arrival_s, client or ClientConfig(), progress)
    interrupted = False
    try:
        ended_s = cluster.run(until_s)
    except KeyboardInterrupt:
        ended_s, interrupted = float(cluster.env.now), True
    return Run(
        log,
        ended_s,
        interrupted,
        engines,
        sum(each.passes for each in executors),
        sum(each.outside for each in executors),
    )


def make_engine(
    executor: Executor,
    workload: Workload,
    server: ServerConfig,
    log: EventLog,
    seed: int,
    *,
    index: int = 0,
    prefix_tokens: int = 0,
) -> Engine:
    """One replica over any executor. Raises InputError for a policy or cap that does not exist or has wrong options."""
    rule = make_rule(server.acceptance_rule)
    context = PolicyContext(
        num_slots=server.scheduler.max_num_seqs,
        max_draft_tokens=executor.max_draft_tokens,
        cap=None,
        accepted_runs=executor.accepted_runs,
        acceptance_chances=executor.acceptance_chances,
        step_seconds=executor.step_seconds,
        step_seconds_many=executor.step_seconds_many,
        verify_seconds_many=executor.verify_seconds_many,
        seed=int(np.random.SeedSequence([seed, _STREAM_POLICY, index]).generate_state(1)[0]),
    )
    context = replace(context, cap=make_cap(server.cap, context))
    speculation = Speculation(make_policy(server.policy, context), context.cap, executor.max_draft_tokens, rule)
    kv = KVCache(server.num_gpu_blocks, server.block_size, prefix_tokens)
    scheduler = Scheduler(server.scheduler, kv, workload, log, speculation)
    return Engine(scheduler, speculation, executor, log, index)


def _check_signals(rule: AcceptanceRule, windows: Windows) -> None:
    """Raises InputError where a lossy rule would have nothing to go by."""
    if rule.lossless:
        return
    what = f"acceptance rule {rule.name} looks at {' and '.join(rule.needs)}"
    missing = [name for name in rule.needs if name not in windows.on]
    if missing:
        raise InputError(f"{what}, and acceptance {windows.name} has no {' nor '.join(missing)}; record it anew")
    if len(windows.accept) == 1:
        raise InputError(
            f"{what}: constants in acceptance {windows.name}, of which it would accept all or nothing; use recorded "
            "windows or regimes"
        )


def _check_stop(speculation: Speculation, executor: SimulatedExecutor, kind: str) -> None:
    """Raises InputError where there is no moment at which a draft could be stopped."""
    if speculation.stop and executor.drafting.at_once:
        raise InputError(
            f"policy {speculation.policy.name} decides after each draft token whether to go on, and drafts of kind "
            f"{kind} come all at once; policies without the hook `stop` (--policy list) do"
        )
