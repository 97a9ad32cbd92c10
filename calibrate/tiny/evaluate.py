"""Held-out figures of the small pair: `python -m calibrate.tiny.evaluate` prints and stores them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer

from calibrate.tiny import DRAFTS, MODELS, learn, measure, model, prompts
from calibrate.tiny.corpus import END_ID, TASKS
from calibrate.tiny.generated import Document
from traces.command import parse
from traces.errors import InputError, run_command

DETERMINED = ("maths", "table", "copy")  # tasks with one right answer
BATCHES = (1, 16, 64)


@dataclass(frozen=True)
class Command:
    """What to evaluate and where to put it."""

    models: Path = MODELS
    """directory with target, draft-s, draft-m and prompts.jsonl"""
    output: Path | None = None
    """file for the figures; without it evaluation.json beside the models"""


def run(command: Command) -> int:
    learn.use_one_thread()
    if not (command.models / prompts.FILE).is_file():
        raise InputError(
            f"--models {command.models}: no {prompts.FILE} there; python -m calibrate.tiny.train writes it"
        )
    models = {name: model.load(command.models / name) for name in ("target", *DRAFTS)}
    tokenizer = AutoTokenizer.from_pretrained(command.models / "target")
    documents = prompts.load(command.models)
    figures = {
        "about": "held-out prompts only; the target's own continuations of up to 64 tokens",
        "tasks": tasks(models, tokenizer, documents),
        "cost": {str(batch): cost(models, batch) for batch in BATCHES},
        "parameters": {name: sum(p.numel() for p in found.parameters()) for name, found in models.items()},
        "threads": 1,
        "load_average": round(os.getloadavg()[0], 2),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    output = command.output or command.models / model.EVALUATION
    output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    show(figures)
    return 0


def tasks(models: dict[str, Any], tokenizer: Any, documents: Sequence[Document]) -> dict[str, dict[str, float]]:
    """Figures per task, and their plain mean over tasks as "all"."""
    found = {task: of_task(models, tokenizer, [d for d in documents if d.task == task]) for task in TASKS}
    names = found["prose"]
    found["all"] = {name: statistics.fmean(found[task][name] for task in TASKS) for name in names if name != "exact"}
    return {task: {name: round(value, 4) for name, value in values.items()} for task, values in found.items()}


def of_task(models: dict[str, Any], tokenizer: Any, documents: Sequence[Document]) -> dict[str, float]:
    """Loss, loops and right answers of the target; acceptance and match of every draft on sampled and greedy text."""
    target = models["target"]
    figures = {"prompts": float(len(documents)), "loss": measure.loss(target, tokenizer, documents)}
    for way, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        found = measure.continuations(target, tokenizer, [d.prompt for d in documents], temperature)
        wanted = measure.log_probabilities(target, found)
        for draft in DRAFTS:
            acceptance, match = measure.agreement(wanted, measure.log_probabilities(models[draft], found))
            figures |= {f"{draft} acceptance {way}": acceptance, f"{draft} match {way}": match}
        texts = found.texts()
        figures[f"loops {way}"] = statistics.fmean(map(measure.loops, texts))
    if documents[0].task in DETERMINED:
        answers = ([*tokenizer(d.completion)["input_ids"], END_ID][: measure.NEW_TOKENS] for d in documents)
        figures["exact"] = statistics.fmean(a == b for a, b in zip(texts, answers, strict=True))
    return figures


def cost(models: dict[str, Any], batch: int) -> dict[str, float]:
    """Times in ms and draft/target ratios of one decoding pass at a batch size."""
    times = measure.forward_ms(models, batch)
    ratios = {f"{draft} ratio": times[draft] / times["target"] for draft in DRAFTS}
    return {name: round(value, 4) for name, value in ({f"{n} ms": t for n, t in times.items()} | ratios).items()}


def show(figures: dict[str, Any]) -> None:
    """Two tables on standard output."""
    columns = [f"{d} {what} {way}" for d in DRAFTS for what, way in (("acceptance", "sampled"), ("match", "greedy"))]
    print(f"{'task':9} {'loss':>6} {'loops':>6} {'exact':>6} " + " ".join(f"{name:>26}" for name in columns))
    for task, values in figures["tasks"].items():
        exact = f"{values['exact']:6.3f}" if "exact" in values else f"{'-':>6}"
        head = f"{task:9} {values['loss']:6.3f} {values['loops greedy']:6.3f} {exact} "
        print(head + " ".join(f"{values[name]:26.3f}" for name in columns))
    for batch, values in figures["cost"].items():
        print(f"batch {batch:>2}: " + ", ".join(f"{name} {value:.3f}" for name, value in values.items()))


def main(args: list[str] | None = None) -> int:
    """Entry point of `python -m calibrate.tiny.evaluate`. Returns the exit status."""
    description = "Held-out acceptance, cost ratio and text quality of the committed small pair; about a minute."
    return run_command(lambda: run(parse(Command, "calibrate.tiny.evaluate", description, args)))


if __name__ == "__main__":
    sys.exit(main())
