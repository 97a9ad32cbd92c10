"""From settings to results: load the models and the text, serve, and say what the figures rest on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from calibrate import machine
from calibrate.live.config import LiveConfig, settings
from calibrate.live.executor import LiveSettings
from calibrate.live.outputs import Outputs
from calibrate.live.passes import PaddedPasses
from calibrate.live.serve import LiveRun, LiveServer
from calibrate.live.workload import LiveRequests, live_requests
from calibrate.pairs import TINY, Pair, load_pair
from calibrate.signals import Sampling
from sim.cluster import ClientConfig
from sim.control.scheduler import SchedulerConfig
from sim.latency import parse_goodput
from sim.metrics import summarize
from sim.policies import default_cap, default_rule
from sim.replay.execution import Execution
from sim.replay.profile import Profile
from sim.results import Provenance, Results, versions
from sim.serve import ServerConfig

WITHOUT: dict[str, object] = {"cudagraph_capture_sizes": (), "switch_cost_ms": 0.0, "overlap": False}
"""Settings of a simulation that this engine has no counterpart of."""

Progress = Callable[[int], None]


@dataclass(frozen=True)
class LiveInputs:
    """What a run needs beside its settings; may be shared between runs that differ only in how they serve."""

    pair: Pair
    requests: LiveRequests
    profile: Profile | None


def load_inputs(config: LiveConfig, say: Callable[[str], None] = lambda _: None) -> LiveInputs:
    """Load and check everything that the settings name. Raises InputError."""
    profile = None if config.profile is None else Profile.load(config.profile)
    machine.pin_threads(config.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries
        pair = load_pair(config.target, config.draft, device=config.device, dtype=config.dtype, progress=say)
    source = TINY if config.prompts is None and config.target == TINY else config.prompts
    return LiveInputs(pair, live_requests(config, source, pair.tokenizer), profile)


def run_live(config: LiveConfig, inputs: LiveInputs | None = None, progress: Progress | None = None) -> Results:
    """One live run. Writes outputs.jsonl while it goes, if there is an output directory; the rest is the caller's.

    Raises InputError for bad settings. Ctrl-C ends the run early and is noted in the results, and so is a failure of
    the models: `failure_of` tells.
    """
    inputs = inputs or load_inputs(config)
    slo = parse_goodput(config.goodput)
    config = _resolved(config, inputs)
    server = _server(config)
    workload = inputs.requests.workload
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        live = LiveServer(
            inputs.pair,
            workload,
            inputs.requests.prompts,
            server,
            _settings(config),
            profile=inputs.profile,
            wall=config.clock == "wall",
            skip_idle=config.skip_idle,
            client=ClientConfig(config.max_concurrency, config.think_time_s),
            seed=config.seed,
        )
        outputs = None
        if config.output_dir is not None:
            outputs = Outputs(config.output_dir, workload, live.texts, live.log, inputs.pair.tokenizer)

        def ended(count: int) -> None:
            if outputs is not None:
                outputs.write_finished()
            if progress is not None:
                progress(count)

        try:
            run = live.run(ended)
        finally:
            if outputs is not None:
                outputs.close()
    metrics = summarize(
        run.log,
        workload,
        slo=slo,
        warmup_s=config.warmup_s,
        horizon_s=run.ended_s if run.interrupted or run.failure else None,
        kv_blocks=server.num_gpu_blocks,
        num_replicas=1,
    )
    metrics |= {"lossless": run.engine.speculation.rule is None, "failure": run.failure}
    provenance = _provenance(config, inputs, run)
    recorded = settings(config) | {"draft_kind": inputs.pair.drafter.kind} | WITHOUT
    return Results(metrics, recorded, provenance, workload, run.log, slo, run.interrupted, "draftlab-live")


def server_and_settings(config: LiveConfig, inputs: LiveInputs) -> tuple[ServerConfig, LiveSettings]:
    """What `run_live` serves with. Raises InputError for a policy that does not exist."""
    config = _resolved(config, inputs)
    return _server(config), _settings(config)


def _resolved(config: LiveConfig, inputs: LiveInputs) -> LiveConfig:
    """With the defaults that depend on the policy and on the requests."""
    rule = config.acceptance_rule or default_rule(config.policy)
    config = replace(config, cap=config.cap or default_cap(config.policy), acceptance_rule=rule)
    return replace(config, max_model_len=_max_model_len(config, inputs))


def _max_model_len(config: LiveConfig, inputs: LiveInputs) -> int:
    """As given, or what the longest request takes; not more than the positions of the target leave room for."""
    limit = inputs.pair.max_positions
    room = None if limit is None else limit - config.max_draft_tokens
    if config.max_model_len is not None:
        return config.max_model_len  # the executor refuses one that does not fit
    workload = inputs.requests.workload
    longest = int((workload.prompt_tokens + workload.output_tokens).max())
    return longest if room is None else max(min(longest, room), 1)


def _server(config: LiveConfig) -> ServerConfig:
    assert config.max_model_len is not None
    blocks = config.num_gpu_blocks
    if blocks is None:
        blocks = config.max_num_seqs * -(-(config.max_model_len + config.max_draft_tokens) // config.block_size)
    return ServerConfig(
        num_gpu_blocks=blocks,
        block_size=config.block_size,
        policy=config.policy,
        cap=config.cap or "none",
        acceptance_rule=config.acceptance_rule or "lossless",
        scheduler=SchedulerConfig(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=config.max_model_len,
            temperature=config.temperature,
        ),
        execution=Execution(config.draft_execution, config.verify_execution),
    )


def _settings(config: LiveConfig) -> LiveSettings:
    assert config.max_model_len is not None
    return LiveSettings(
        max_num_seqs=config.max_num_seqs,
        max_model_len=config.max_model_len,
        max_draft_tokens=config.max_draft_tokens,
        sampling=Sampling(config.temperature, config.top_p, config.top_k),
        compact=config.draft_execution == "compact",
        ignore_eos=config.ignore_eos,
        seed=config.seed,
    )


def _provenance(config: LiveConfig, inputs: LiveInputs, run: LiveRun) -> Provenance:
    pair, workload, profile = inputs.pair, inputs.requests.workload, inputs.profile
    place = f"{machine.device_name(pair.device)}, {str(pair.dtype).removeprefix('torch.')}"
    kinds: dict[str, list[str]] = {"measured": ["acceptance: the models themselves"]}
    kinds |= {"modelled": [], "sampled": [], "synthetic": []}
    if config.clock == "wall":
        kinds["measured"].append(f"time: the wall clock, {place}")
    else:
        assert profile is not None
        kinds["modelled"].append(f"time: the cost model of {profile.name}; the models ran on {place}")
    origin = {"replayed": "measured", "sampled": "sampled"}.get(workload.origin.partition(" ")[0], "synthetic")
    kinds[origin].append(f"requests: {workload.origin}")
    notes = [*run.engine.speculation.notes(), *workload.notes]
    if isinstance(run.executor.passes_of_target, PaddedPasses):
        notes.append("The target's attention cannot be packed: verification was padded to the longest draft.")
    if config.skip_idle:
        notes.append("Stretches without work were skipped, not waited for.")
    if run.interrupted:
        notes.append(f"interrupted at {run.ended_s:.3f} s: figures cover what had happened by then")
    if run.failure:
        notes.append(f"broken off at {run.ended_s:.3f} s: {run.failure}")
    return Provenance(
        seed=config.seed,
        trace=workload.name,
        trace_origin=workload.origin,
        profile=profile.name if profile else "none: live",
        profile_digest=profile.digest if profile else "",
        target=pair.target_name,
        draft=pair.draft_name,
        acceptance="live",
        notes=tuple(notes),
        versions={**versions(), **machine.versions()},
        **{kind: tuple(lines) for kind, lines in kinds.items()},
    )


def failure_of(results: Results) -> str | None:
    """What broke a run off, in one line; None if nothing did."""
    found = results.metrics.get("failure")
    return None if found is None else str(found)
