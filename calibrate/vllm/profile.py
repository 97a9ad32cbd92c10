"""All that was read of one server, put together as a profile and acceptance windows, with what is known and assumed."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from calibrate.fit import Fit, Residuals, fit
from calibrate.vllm import acceptance, costs
from calibrate.vllm.bench import BenchRun
from calibrate.vllm.log import EngineSteps, ServerLog
from calibrate.vllm.responses import Response
from calibrate.vllm.scrape import Counters, Scrape
from sim.replay.cost import ForwardCost, HostCost
from sim.replay.drafting import LOOK_UP, LOOK_UP_PROVENANCE
from sim.replay.profile import Model, Profile
from sim.replay.windows import Windows
from traces.errors import InputError

BLOCK_SIZE = 16
"""vLLM's default on a GPU, where nothing tells."""


@dataclass(frozen=True)
class Told:
    """What a server's operator has; any of it may be empty.

    warm  prompts of these runs were in a warm prefix cache (the run repeats an earlier one)
    """

    logs: Sequence[ServerLog] = ()
    runs: Sequence[BenchRun] = ()
    warm: frozenset[str] = frozenset()
    responses: Sequence[Response] = ()
    scrapes: Sequence[Scrape] = ()

    @property
    def block_size(self) -> int | None:
        return next((scrape.block_size for scrape in self.scrapes if scrape.block_size), None)

    def cached(self, run: BenchRun) -> np.ndarray | None:
        """Prompt tokens of a run that its server did not compute; None: none."""
        if run.path not in self.warm:
            return None
        if self.block_size is None:
            raise InputError(f"{run.path}: warm, but no scrape of /metrics tells the block size: add --metrics")
        return run.cached_tokens(self.block_size)


@dataclass(frozen=True)
class Measured:
    """The outcome: profile, windows (None without speculation), the steps with their errors, gaps in the data."""

    profile: Profile
    windows: Windows | None
    errors: dict[str, dict[str, float]]
    gaps: tuple[str, ...]


def build(
    told: Told,
    *,
    name: str,
    draft_kind: str = "autoregressive",
    device: str = "unknown",
    target_id: str | None = None,
    draft_id: str = "unknown",
    dtype: str = "unknown",
    num_gpus: int = 1,
) -> Measured:
    """Fit and put together. Raises InputError where the data holds no steps of the target alone."""
    look_up = draft_kind == "ngram"
    known: dict[str, str] = {}
    gaps = [gap for log in told.logs for gap in log.gaps] + [gap for run in told.runs for gap in run.gaps]
    gaps += _cached(told)
    host = _host(told)
    target_steps, drafting = _steps(told, look_up, host, known)
    target = fit(costs.points(target_steps), correct=False)
    residuals: dict[str, Any] = {"target": {phase: asdict(r) for phase, r in target.residuals.items()}}
    errors = {"target alone": step_errors(target_steps, target.cost)}
    draft, kind = _draft(drafting, target, draft_kind, known)
    if drafting is not None and not look_up:
        errors["with drafts"] = step_errors(drafting, target.cost, draft)
        # of whole steps: a draft's passes are not seen alone
        residuals["draft"] = {"steps": _residuals(costs.predicted(drafting, target.cost, draft) / drafting.seconds)}
    kv_tokens, block_size, kv_bytes = _pool(told, known)
    per_token = kv_bytes // kv_tokens if kv_bytes else 0
    model = target_id or next((run.model for run in told.runs), "unknown")
    known["models"] = "assumed: sizes of weights are not in what vLLM told (0 in the profile), nor is memory beyond KV"
    version = next((log.version for log in told.logs if log.version), None)
    drafter = "ngram" if kind == "ngram" else draft_id
    profile = Profile(
        name=name,
        device=device,
        device_memory_bytes=kv_bytes or 1,
        engine=f"vllm {version or 'of unknown version'}",
        target_model=Model(model, model, 0, 0, per_token, dtype, num_gpus),
        draft_model=Model(drafter, drafter, 0, 0, 0, "none" if kind == "ngram" else dtype, 1),
        draft_kind=kind,
        num_kv_blocks=kv_tokens // block_size,
        block_size=block_size,
        target=target.cost,
        draft=draft,
        host=host,
        versions={"vllm": version} if version else {},
        date=datetime.date.today().isoformat(),
        provenance=known,
        residuals=residuals,
    )
    return Measured(profile, _windows(told, look_up, known), errors, tuple(gaps))


def step_errors(steps: EngineSteps, target: ForwardCost, draft: ForwardCost | None = None) -> dict[str, float]:
    """Absolute percent per step, and percent of the whole."""
    seconds = costs.predicted(steps, target, draft)
    error = 100 * np.abs(seconds / steps.seconds - 1)
    return {
        "steps": len(steps),
        "mean_percent": round(float(error.mean()), 2),
        "p95_percent": round(float(np.percentile(error, 95)), 2),
        "total_percent": round(100 * (float(seconds.sum() / steps.seconds.sum()) - 1), 2),
    }


def _residuals(ratio: np.ndarray) -> dict[str, float]:
    """Absolute percent, as a fit reports it."""
    error = 100 * np.abs(ratio - 1)
    median, p95 = np.percentile(error, [50, 95])
    return asdict(Residuals(len(error), *(round(float(e), 2) for e in (median, p95, error.max()))))


def _cached(told: Told) -> list[str]:
    """Runs whose server computed other prompt tokens than the clients sent, by its log."""
    found = []
    for log in told.logs:
        for run in told.runs:
            where, cached = costs.stretch(log, run), told.cached(run)
            sent = int(run.timings.prompt_tokens.sum()) - (0 if cached is None else int(cached.sum()))
            if where is not None and (computed := int(log.steps.context_tokens[where].sum())) != sent:
                found.append(
                    f"{run.path}: {computed} prompt tokens were computed, {sent} expected: "
                    + ("a prefix cache? then --warm" if cached is None else "the cache was not warm for all of them")
                )
    return found


def _host(told: Told) -> HostCost:
    """Time between steps."""
    found = [spent[0] for log in told.logs for run in told.runs if (spent := costs.host_seconds(log, run)) is not None]
    if found:
        text = f"measured: {1e3 * np.median(found):.2f} ms a step, what clients waited beyond the steps of the log"
        return HostCost(round(float(np.median(found)), 6), 0.0, text)
    if told.logs:
        text = "assumed: none beyond the steps of the log (a --bench result of the same server would tell)"
    else:
        text = "measured: within the steps, as clients saw them"
    return HostCost(0.0, 0.0, text)


def _steps(told: Told, look_up: bool, host: HostCost, known: dict[str, str]) -> tuple[EngineSteps, EngineSteps | None]:
    """Steps of the target alone, and steps with passes of a draft model."""
    alone, drafting, sources = [], [], []
    for log in told.logs:
        if log.draft_tokens == 0 or look_up:
            alone.append(log.steps)
            sources.append(f"{len(log.steps)} steps of the log")
        else:
            drafting.append(log.steps)
    for run in told.runs:
        logged = any(costs.stretch(log, run) is not None for log in told.logs)
        if run.counters is not None or logged:
            continue
        steps = run.steps(told.cached(run))
        alone.append(steps.less_host(host.base_s))
        sources.append(f"{len(steps)} steps of {run.name}, told by when clients saw tokens")
    if not alone:
        raise InputError(
            "no step of the target alone: give the log or the bench result of a server without speculation (with "
            "--draft-kind ngram any log will do)"
        )
    known["target"] = f"measured: {'; '.join(sources)}; requests of a step taken as equally long"
    return EngineSteps.concat(alone), EngineSteps.concat(drafting) if drafting else None


def _draft(drafting: EngineSteps | None, target: Fit, kind: str, known: dict[str, str]) -> tuple[ForwardCost, str]:
    """The cost of a draft pass, and the kind it is of."""
    if kind == "ngram" or drafting is None:
        if kind != "ngram":
            known["draft kind"] = "assumed: ngram, since no log shows the passes of a draft model"
        known["look-up"] = LOOK_UP_PROVENANCE
        return LOOK_UP, "ngram"
    known["draft"] = f"measured: what {len(drafting)} steps that speculate took beyond the target's pass, affine"
    return costs.fit_draft(drafting, target.cost), kind


def _pool(told: Told, known: dict[str, str]) -> tuple[int, int, int | None]:
    """Tokens of the KV pool, block size, bytes of the pool. The smallest pool that any source tells."""
    sizes = [size for size in [log.kv_tokens for log in told.logs] + [s.kv_tokens for s in told.scrapes] if size]
    block = told.block_size or BLOCK_SIZE
    bytes_ = next((scrape.kv_bytes for scrape in told.scrapes if scrape.kv_bytes), None)
    words = f"blocks of {block}" + ("" if told.block_size else " (assumed)")
    if sizes:
        known["kv pool"] = f"measured: {min(sizes)} tokens, {words}"
        return min(sizes), block, bytes_
    longest = [int((run.timings.prompt_tokens + run.output_tokens).max()) for run in told.runs]
    needed = 256 * max([block, *longest])
    known["kv pool"] = f"assumed: room for 256 of the longest requests ({needed} tokens), {words}; nothing tells"
    return needed, block, bytes_


def _windows(told: Told, look_up: bool, known: dict[str, str]) -> Windows | None:
    """The best there is: every step, every request, sums."""
    speculating = [run for run in told.runs if run.counters is not None]
    counters = [scrape.counters for scrape in told.scrapes if scrape.counters is not None]
    if told.responses:
        known["windows beside it"] = f"measured: every step of {len(told.responses)} responses"
        return acceptance.of_responses(told.responses, "responses", look_up)
    if speculating:
        run = speculating[0]
        known["windows beside it"] = (
            f"measured: steps of each of {len(run)} requests of {run.name}; order of its steps drawn"
        )
        return acceptance.of_bench(run, run.name, look_up)
    if counters:
        total: Counters = counters[-1] - counters[0] if len(counters) > 1 else counters[0]
        known["windows beside it"] = "measured: rates per position, nothing of single requests"
        return acceptance.of_counters(total, "metrics")
    return None
