"""Costs of a pair's shapes without its weights: `python -m calibrate --dummy-weights --target ID|DIR --draft ID|DIR`.

Random weights cost what real ones do (mixture-of-experts routing apart), so that only the configurations are needed.
With `--num-layers` the target is measured with that many layers and with half of them, and scaled to all of its layers:
a 70B shape on one GPU. Their text means nothing, so there are no windows.
"""

from __future__ import annotations

import dataclasses
from datetime import date
from typing import TYPE_CHECKING, Any

import torch

from calibrate import costs, loading, machine, memory
from calibrate.calibration import Partial, Progress, Say, budget_of, fingerprint, forward_rows, runners_that_fit, short
from calibrate.dummy import dummy_model
from calibrate.forward import Plan
from calibrate.grid import Extent, Point
from calibrate.host import host_cost
from calibrate.runner import ModelRunner
from sim.replay.profile import Model, Profile
from traces.errors import InputError

if TYPE_CHECKING:
    from calibrate.__main__ import CalibrateConfig

Rows = list[dict[str, Any]]
MORE_SHARE = 0.7
"""Of the budget, for the larger number of layers and the draft."""


def calibrate_shapes(config: CalibrateConfig, say: Say, progress: Progress) -> None:
    """Measure and write a profile without windows to `config.output`. Raises InputError in one line."""
    if config.draft is None or config.draft.partition(":")[0] in ("skip", "ngram"):
        raise InputError("--dummy-weights: --draft must be a model whose shape is to be measured, an id or a directory")
    if config.num_layers is not None and config.num_layers < 2:
        raise InputError("--num-layers: expected at least 2: half of them are measured too")
    machine.pin_threads(config.threads)
    place = loading.device(config.device)
    kind = loading.dtype(config.dtype, place)
    free = memory.free_bytes(place)
    work = Partial(config.output.with_name(config.output.name + ".partial"), fingerprint(config))
    if work.resumed:
        say(f"going on with what {work.directory} holds")
    before = machine.load(place)

    target = dummy_model(config.target, num_layers=config.num_layers, dtype=kind, device=place)
    draft = dummy_model(config.draft, dtype=kind, device=place)
    layers, all_layers = int(target.config.num_hidden_layers), int(target.config.full_layers)
    length = min(config.max_model_len, int(getattr(target.config, "max_position_embeddings", config.max_model_len)))
    pair = {"target": target, "draft": draft}
    kv_bytes = sum(ModelRunner(model, max_num_seqs=1, max_model_len=1).kv_bytes_per_token for model in pair.values())
    seqs = memory.fitting_num_seqs(place, kv_bytes, length, config.max_num_seqs)
    if seqs < config.max_num_seqs:
        say(f"memory does for batches of {seqs} sequences of {length} tokens")
    runners, seqs = runners_that_fit(pair, seqs, length, say)
    extent = Extent(seqs, length, min(config.max_num_batched_tokens, length))
    whole = config.num_layers is None or layers == all_layers
    budget_s = budget_of(config) * (1.0 if whole else MORE_SHARE)
    rows = forward_rows(config, runners, extent, work, say, progress, budget_s=budget_s)
    remarks = costs.remarks(rows)
    shapes = {
        "target": runners["target"].describe(short(config.target), config.target),
        "draft": runners["draft"].describe(short(config.draft), config.draft),
    }
    how = "measured with random weights: eager, median of repeats"
    if place.type == "cpu":
        how += f"; CPU threads: {config.threads}"
    vocab_size = runners["target"].vocab_size
    del runners, pair, target, draft
    if not whole:
        few = dummy_model(config.target, num_layers=layers // 2, dtype=kind, device=place)
        runner = ModelRunner(few, max_num_seqs=seqs, max_model_len=length)
        again = forward_rows(
            config, {"target": runner}, extent, Partial(work.directory / "few", fingerprint(config)), say, progress,
            plan=_same_points(rows, work),
        )  # fmt: skip
        small = runner.describe(short(config.target), config.target)
        shapes["target"] = scaled_model(small, shapes["target"], (layers // 2, layers), all_layers)
        own = [row for row in rows if row["model"] == "target"]
        rest = [row for row in rows if row["model"] != "target"]
        rows = [*costs.scaled(again, own, (layers // 2, layers), all_layers), *rest]
        how += f"; target scaled from {layers // 2} and {layers} to {all_layers} layers, which were not measured"
        del few, runner
    for remark in remarks:
        say(f"note: {remark}")
    profile = _profile(config, place, free, shapes, rows, seqs, vocab_size, how)
    profile.save(config.output, costs.combine(rows))
    machine.save(config.output, place, before)
    work.remove()


def _same_points(rows: Rows, work: Partial) -> Plan:
    """All points of the target that were measured with more layers, whatever they take."""
    found = Plan.from_dict(work.get("plan.json"))
    measured = {tuple(row[field.name] for field in dataclasses.fields(Point)) for row in rows}
    kept = [
        (point, cost)
        for point, cost in zip(found.points, found.estimated_s, strict=True)
        if point.model == "target" and dataclasses.astuple(point) in measured
    ]
    points, estimated = zip(*kept, strict=True)
    # JSON has no infinity; a year is as good
    return dataclasses.replace(found, points=points, estimated_s=estimated, budget_s=3.15e7, notes=())


def scaled_model(few: Model, more: Model, layers: tuple[int, int], wanted: int) -> Model:
    """The model with `wanted` layers, its sizes from those of two numbers of layers: layers are alike."""
    first, second = layers
    sizes = {
        name: getattr(few, name) + (wanted - first) * (getattr(more, name) - getattr(few, name)) // (second - first)
        for name in ("parameters", "weight_bytes", "kv_bytes_per_token")
    }
    return dataclasses.replace(more, **sizes)


def _profile(
    config: CalibrateConfig,
    place: torch.device,
    free: int,
    shapes: dict[str, Model],
    rows: Rows,
    seqs: int,
    vocab_size: int,
    how: str,
) -> Profile:
    weights = sum(model.weight_bytes for model in shapes.values())
    kv_bytes = sum(model.kv_bytes_per_token for model in shapes.values())
    if weights < free:
        pool = memory.kv_capacity(place, kv_bytes, free=free - weights, num_gpu_blocks=config.num_gpu_blocks)
    elif config.num_gpu_blocks is not None:
        said = f"given; the weights of all layers ({weights / 2**30:.1f} GiB) do not fit this device"
        pool = memory.Capacity(config.num_gpu_blocks, memory.BLOCK_SIZE, said)
    else:
        raise InputError(
            f"the weights of all layers take {weights / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free: "
            "say with --num-gpu-blocks how large the KV pool is to be"
        )
    fitted = costs.fit_costs(rows)
    assert fitted.draft is not None  # both shapes were measured
    host = host_cost(vocab_size, place, max_num_seqs=seqs, temperature=config.temperature)
    return Profile(
        name=f"{shapes['target'].name}+{shapes['draft'].name}",
        device=machine.device_name(place),
        device_memory_bytes=memory.total_bytes(place),
        engine=f"draftlab on transformers {machine.versions().get('transformers', '')}".strip(),
        target_model=shapes["target"],
        draft_model=shapes["draft"],
        draft_kind="autoregressive",
        num_kv_blocks=pool.num_kv_blocks,
        block_size=pool.block_size,
        target=fitted.target,
        draft=fitted.draft,
        host=host,
        versions=machine.versions(),
        git_revision=machine.git_revision(),
        date=date.today().isoformat(),
        provenance={"forward": how, "host": host.provenance, "kv pool": pool.provenance},
        residuals=fitted.residuals,
    )
