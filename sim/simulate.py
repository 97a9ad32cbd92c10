"""From settings to results: load what they name, serve it, summarise the log, say what the figures rest on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sim.cluster import ClientConfig
from sim.config import SimConfig, settings
from sim.control.scheduler import SchedulerConfig
from sim.latency import parse_goodput
from sim.metrics import summarize
from sim.policies import default_cap, default_rule
from sim.replay.drafting import with_draft_kind
from sim.replay.execution import Execution, capture_sizes
from sim.replay.profile import Profile
from sim.replay.sources import acceptance_source
from sim.replay.windows import Windows
from sim.results import Provenance, Results
from sim.serve import Run, ServerConfig, serve
from traces import Workload, load
from traces.errors import InputError

Progress = Callable[[int], None]
AFTER_LOSSY = (
    "Behind a token that only the lossy rule let stand the replay takes the recorded text's verdicts: approximate."
)
MOST_BLOCK_TOKENS = 1_000_000


@dataclass(frozen=True)
class Inputs:
    """What a run replays; loaded once, shared by all runs over it."""

    workload: Workload
    profile: Profile
    windows: Windows


def load_inputs(config: SimConfig) -> Inputs:
    """Load and check everything that the settings name. Raises InputError."""
    windows = acceptance_source(config.acceptance)
    if config.acceptance_rate is not None:
        windows = windows.tilted(config.acceptance_rate)
    return Inputs(load(config), Profile.load(config.profile), windows)


def simulate(config: SimConfig, inputs: Inputs | None = None, progress: Progress | None = None) -> Results:
    """Run one simulation.

    `inputs` may be shared between runs that differ only in how they serve. Raises InputError for bad settings; Ctrl-C
    ends the run early and is noted in the results, which hold what had happened by then.
    """
    inputs = inputs or load_inputs(config)
    if config.until_s is not None and 0 < config.until_s <= config.warmup_s:
        raise InputError(
            f"--warmup-s {config.warmup_s:g} leaves nothing to measure before --until-s {config.until_s:g}"
        )
    slo = parse_goodput(config.goodput)
    if not 0 <= config.warmup_s < float("inf"):
        raise InputError(f"--warmup-s is {config.warmup_s}, expected 0 or more")
    rule = config.acceptance_rule or default_rule(config.policy)
    config = replace(config, cap=config.cap or default_cap(config.policy), acceptance_rule=rule)
    inputs = replace(inputs, profile=with_draft_kind(inputs.profile, config.draft_kind))
    sizes = tuple(map(str, capture_sizes(config.cudagraph_capture_sizes)))
    config = replace(config, cudagraph_capture_sizes=sizes)
    server = server_config(config, inputs.profile)
    client = ClientConfig(config.max_concurrency, config.think_time_s)
    run = serve(
        inputs.workload,
        inputs.profile,
        inputs.windows,
        server,
        client,
        seed=config.seed,
        until_s=config.until_s,
        progress=progress,
    )
    metrics = summarize(
        run.log,
        inputs.workload,
        slo=slo,
        warmup_s=config.warmup_s,
        horizon_s=run.ended_s if config.until_s is not None or run.interrupted else None,
        kv_blocks=server.num_gpu_blocks,
        num_replicas=server.num_replicas,
    )
    metrics |= {"lossless": run.engines[0].speculation.rule is None}
    metrics |= {"forward_passes": run.passes, "forward_passes_outside_measured": run.outside}
    recorded, provenance = _recorded(config, inputs), _provenance(config, inputs, run)
    return Results(metrics, recorded, provenance, inputs.workload, run.log, slo, run.interrupted)


def check(config: SimConfig, inputs: Inputs) -> None:
    """Raises InputError for settings that `simulate` would refuse: the engines are built, and stopped at once."""
    simulate(replace(config, until_s=1e-9, warmup_s=0.0), inputs)


def server_config(config: SimConfig, profile: Profile) -> ServerConfig:
    """The server of these settings. Raises InputError."""
    block_size = profile.block_size if config.block_size is None else config.block_size
    if not 1 <= block_size <= MOST_BLOCK_TOKENS:
        raise InputError(f"--block-size is {block_size}, expected at least 1, at most {MOST_BLOCK_TOKENS}")
    blocks = profile.kv_tokens // block_size if config.num_gpu_blocks is None else config.num_gpu_blocks
    return ServerConfig(
        num_gpu_blocks=blocks,
        block_size=block_size,
        policy=config.policy,
        cap=config.cap or "none",
        acceptance_rule=config.acceptance_rule or "lossless",
        scheduler=SchedulerConfig(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=config.max_model_len,
            temperature=config.temperature,
        ),
        execution=Execution(
            draft=config.draft_execution,
            verify=config.verify_execution,
            capture_sizes=capture_sizes(config.cudagraph_capture_sizes),
            switch_cost_ms=config.switch_cost_ms,
            overlap=config.overlap,
        ),
        enable_prefix_caching=config.enable_prefix_caching,
        num_replicas=config.num_replicas,
        router=config.router,
    )


def _recorded(config: SimConfig, inputs: Inputs) -> Mapping[str, object]:
    offered = float(f"{inputs.workload.offered_rate_rps:.4g}")
    rate = config.request_rate or ("trace" if inputs.workload.has_times else offered)
    return settings(config) | {"request_rate": rate, "draft_kind": inputs.profile.draft_kind}


def _provenance(config: SimConfig, inputs: Inputs, run: Run) -> Provenance:
    """Sort what the figures rest on into measured, modelled, sampled and synthetic."""
    workload, profile, windows = inputs.workload, inputs.profile, inputs.windows
    sorted_: dict[str, list[str]] = {"measured": [], "modelled": [], "sampled": [], "synthetic": []}
    for what, text in {"host": profile.host.provenance, **profile.provenance}.items():
        kind = text.partition(" ")[0].rstrip(":")
        words = text.removeprefix(kind).lstrip(": ") if kind in sorted_ else text
        sorted_[kind if kind in sorted_ else "modelled"].append(f"{what.replace('_', ' ')}: {words}")
    sorted_["modelled"] += _as_told(config)
    other = f", recorded with another pair ({windows.pair})" if windows.pair not in (None, profile.pair) else ""
    sorted_["measured" if windows.kind == "measured" else "synthetic"].append(f"acceptance: {windows.name}{other}")
    origin = workload.origin.partition(" ")[0]
    place = {"replayed": "measured", "sampled": "sampled"}.get(origin, "synthetic")
    sorted_[place].append(f"requests: {workload.origin}")
    speculation = run.engines[0].speculation
    notes = [*speculation.notes(), *([AFTER_LOSSY] if speculation.rule else []), *workload.notes, *windows.notes]
    notes += [f"{count:,} rows dropped: {reason}" for reason, count in workload.dropped.items()]
    notes += filter(None, (_look_up_note(profile, windows), _temperature_note(config, windows)))
    if run.outside:
        share = 100 * run.outside / run.passes
        notes.append(f"{run.outside:,} of {run.passes:,} forward passes ({share:.1f} %) lie beyond the measured range")
    if run.interrupted:
        notes.append(f"interrupted at {run.ended_s:.3f} s of simulated time: figures cover what had happened by then")
    return Provenance(
        seed=config.seed,
        trace=workload.name,
        trace_origin=workload.origin,
        profile=profile.name,
        profile_digest=profile.digest,
        target=profile.target_model.huggingface_id,
        draft=profile.draft_model.huggingface_id,
        acceptance=windows.name,
        measured=tuple(sorted_["measured"]),
        modelled=tuple(sorted_["modelled"]),
        sampled=tuple(sorted_["sampled"]),
        synthetic=tuple(sorted_["synthetic"]),
        notes=tuple(notes),
    )


def _as_told(config: SimConfig) -> list[str]:
    """Options of the engine that nothing was measured for."""
    told = []
    if sizes := config.cudagraph_capture_sizes:
        told.append(f"graphs: new tokens of a pass rounded up to one of {len(sizes)} sizes to {sizes[-1]}, as told")
    if config.switch_cost_ms:
        told.append(f"switch: {config.switch_cost_ms:g} ms for each change of the verification's width, as told")
    if config.overlap:
        told.append("overlap: draft and target on devices of their own, neither slows the other (PEARL)")
    return told


def _look_up_note(profile: Profile, windows: Windows) -> str | None:
    """A warning where drafts and acceptance are of different kinds."""
    if windows.looked_up == (profile.draft_kind == "ngram"):
        return None
    if windows.looked_up:
        return (
            f"acceptance {windows.name} was recorded with a look-up; a draft of kind {profile.draft_kind} proposes "
            "tokens where that found none, and all of these are rejected"
        )
    return f"acceptance {windows.name} was not recorded with a look-up: every draft is as long as the policy asks for"


def _temperature_note(config: SimConfig, windows: Windows) -> str | None:
    """A warning where the requests sample in another way than the recording did."""
    if windows.temperature in (None, config.temperature):
        return None
    recorded = f"at temperature {windows.temperature:g}" if windows.temperature else "with greedy decoding"
    return (
        f"requests have temperature {config.temperature:g}; acceptance {windows.name} was recorded {recorded} and is "
        "replayed as it stands: only policies look at the temperature"
    )
