"""Distil an EAGLE-style draft for any target: `python -m calibrate.distill --target smollm2 --output DIR`.

The target writes after the prompts and its states are kept; a layer learns to foresee its laws; held-out prompts decide
when to stop; the prompts that calibrate measures with are never trained on and give the figures. What is done is kept
in DIR/work, so that the same command goes on after an interrupt.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from calibrate import loading, smollm2
from calibrate.distillation import evaluation, prompts, text, training
from calibrate.distillation.start import new_draft
from calibrate.distillation.unroll import can_be_drafted
from calibrate.eagle import CONFIG, WEIGHTS, EagleDraft
from calibrate.pairs import SMOLLM2, TINY
from calibrate.prompts import Prompt, interleave, load_prompts, render
from calibrate.runner import ModelRunner
from calibrate.tiny import MODELS
from traces.command import parse
from traces.errors import InputError, run_command

LOG, SUMS, EVALUATION, WORK = "TRAINING.log", "SHA256SUMS", "evaluation.json", "work"
HELD_OUT_SHARE = 16
"""One prompt in so many decides when to stop."""
FEWEST = 16
GREEDY, SAMPLED = 0.0, 1.0


@dataclass(frozen=True)
class Command:
    """What to distil from what, and for how long."""

    output: Path
    """directory for config.json, model.safetensors, SHA256SUMS, TRAINING.log and evaluation.json"""
    target: str = SMOLLM2
    """smollm2, tiny, a directory in the layout of Hugging Face or a hub id"""
    prompts: Path | None = None
    """file of prompts in any layout that calibrate reads; without it 1,536 made ones in 8 tasks"""
    start: Path | None = None
    """an earlier result for the same target to go on from, with other prompts: give another --seed or --prompts"""
    tokens: int = 150_000
    """tokens the target is to write altogether; fewer if the prompts run out"""
    answer_tokens: int = 128
    """longest answer"""
    steps: int = 1000
    """training steps of 8 answers"""
    learning_rate: float = 1e-3
    """highest learning rate of AdamW"""
    draft_vocab_size: int = 8000
    """how many of the target's most frequent tokens the draft can propose"""
    seed: int = 0
    """of answers, first weights and order"""
    threads: int = 1
    """threads on a CPU; one repeats bit for bit"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps"""
    dtype: str = "auto"
    """auto (float32 on a CPU, otherwise bfloat16), float32, bfloat16, float16; the draft is trained in float32"""


def run(command: Command) -> int:
    _check(command)
    torch.set_num_threads(command.threads)
    place = loading.device(command.device)
    source = _directory(command.target)
    tokenizer = loading.tokenizer(source)
    target = loading.causal_lm(source, place, loading.dtype(command.dtype, place), _say)
    ends = loading.end_tokens(target, tokenizer)
    work = command.output / WORK
    asked = _training_prompts(command)
    rows = [render(prompt, tokenizer) for prompt in asked]
    check_head(target, rows[0])
    written = text.write(
        target,
        rows,
        work / f"text-{_digest([rows, command.answer_tokens, command.seed])}",
        end_tokens=ends,
        new_tokens=command.answer_tokens,
        enough=command.tokens,
        seed=command.seed,
        progress=_say,
    )
    learnt, held_out = split(written.texts)
    if command.start is None:
        draft = new_draft(target, learnt, written.mass, command.draft_vocab_size, command.seed)
    else:
        draft = EagleDraft.load(command.start, target).float()
    schedule = training.Schedule(command.steps, command.learning_rate, command.seed)
    log = training.train(draft, learnt, held_out, schedule, work, _say)
    about = {
        "target": smollm2.HUB_ID if command.target == SMOLLM2 else command.target,
        "target_weights": smollm2.source(Path(source)) if command.target == SMOLLM2 else source,
        "trained_on_tokens": text.answer_tokens(learnt),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    draft.save(command.output, about=about)
    saved = EagleDraft.load(command.output, target)  # the figures are those of the rounded weights
    (command.output / LOG).write_text("\n".join([*_settings(command, learnt, held_out), *log]) + "\n", encoding="utf-8")
    write_sums(command.output)
    found = _evaluate(command, saved, target, tokenizer, ends, work)
    (command.output / EVALUATION).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for way in ("greedy", "sampled"):
        print(f"{way}: match by depth {found[way]['all']['match']}, acceptance {found[way]['all']['acceptance']}")
    return 0


def _check(command: Command) -> None:
    for name in ("tokens", "answer_tokens", "steps", "draft_vocab_size", "threads"):
        value = getattr(command, name)
        if value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value}: expected at least 1")
    if not command.learning_rate > 0:
        raise InputError(f"--learning-rate {command.learning_rate}: expected more than 0")
    if command.answer_tokens < 3:
        raise InputError(f"--answer-tokens {command.answer_tokens}: expected at least 3, or there is nothing to draft")


def _training_prompts(command: Command) -> list[Prompt]:
    """Those of the file, or made ones, without any that calibrate measures with."""
    if command.prompts is None:
        return interleave(prompts.make(prompts.Command.count, command.seed))  # as a file of them would be read
    measured = {prompt.text for prompt in load_prompts()}
    asked = load_prompts(command.prompts)
    kept = [prompt for prompt in asked if prompt.text not in measured]
    if len(kept) < FEWEST:
        raise InputError(
            f"--prompts {command.prompts}: {len(kept)} prompts to train on; expected at least {FEWEST} "
            "besides those that calibrate measures with"
        )
    if len(kept) < len(asked):
        _say(f"{len(asked) - len(kept)} prompts left out: calibrate measures with them")
    return kept


def split(texts: Sequence[text.Text]) -> tuple[list[text.Text], list[text.Text]]:
    """Texts to train on and to stop by, of those with anything to draft. Raises InputError if there are too few."""
    count = max(2, len(texts) // HELD_OUT_SHARE)
    learnt, held_out = ([found for found in part if can_be_drafted(found)] for part in (texts[:-count], texts[-count:]))
    if not learnt or not held_out:
        raise InputError("the target's answers are too short to distil from: it ends them at once")
    return learnt, held_out


def check_head(target: Any, prompt: Sequence[int]) -> None:
    """Raises InputError unless the target's logits are its head applied to its last states, and no more."""
    runner = ModelRunner(target, max_num_seqs=1, max_model_len=len(prompt))
    zero = torch.zeros(1, dtype=torch.long)
    output = runner.forward(torch.tensor([list(prompt)]), zero, zero)
    with torch.no_grad():
        plain = target.get_output_embeddings()(output.hidden).float()
    if not torch.allclose(plain.log_softmax(-1), output.logits.log_softmax(-1), atol=0.05):
        raise InputError(f"{runner.name}: scales or caps the logits of its head, which the draft would not know of")


def _settings(command: Command, learnt: Sequence[text.Text], held_out: Sequence[text.Text]) -> list[str]:
    """The first lines of the log: all that decides the weights, but where things lie."""
    values = {name: value for name, value in asdict(command).items() if name not in ("output", "prompts", "start")}
    return [
        ", ".join(f"{name} {value}" for name, value in values.items()),
        f"prompts: {command.prompts.name if command.prompts else 'made ones'}",
        *_log_of(command.start),
        f"{len(learnt)} answers of {text.answer_tokens(learnt)} tokens to train on, {len(held_out)} held out",
    ]


def _log_of(start: Path | None) -> list[str]:
    """What is known of the draft that this one started from, indented."""
    if start is None:
        return []
    log = start / LOG
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else ["not known"]
    return ["started from a draft with this log:", *(f"  {line}" for line in lines)]


def _evaluate(
    command: Command, draft: EagleDraft, target: Any, tokenizer: Any, ends: frozenset[int], work: Path
) -> dict[str, Any]:
    """Figures on the prompts that calibrate measures with, on greedy and on sampled answers."""
    asked = load_prompts(TINY if command.target == TINY else None)
    rows = [render(prompt, tokenizer) for prompt in asked]
    found: dict[str, Any] = {
        "about": "prompts that were not trained on, answers of the target; one figure for each depth of a chain",
        "prompts": len(rows),
        "answer_tokens": command.answer_tokens,
    }
    for way, temperature in (("greedy", GREEDY), ("sampled", SAMPLED)):
        written = text.write(
            target,
            rows,
            work / f"{way}-{_digest([rows, command.answer_tokens])}",
            end_tokens=ends,
            new_tokens=command.answer_tokens,
            temperatures=[temperature],
            progress=_say,
        )
        found[way] = evaluation.by_task(draft, target, [prompt.task for prompt in asked], written.texts)
    return found


def write_sums(directory: Path) -> None:
    """SHA256SUMS of the weights, their config and the log, as `sha256sum -c` reads it."""
    lines = (
        f"{hashlib.sha256((directory / name).read_bytes()).hexdigest()}  {name}\n" for name in (LOG, CONFIG, WEIGHTS)
    )
    (directory / SUMS).write_text("".join(lines), encoding="utf-8")


def _directory(target: str) -> str:
    if target == SMOLLM2:
        return str(smollm2.directory(progress=_say))
    return str(MODELS / "target") if target == TINY else target


def _digest(of: Any) -> str:
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:12]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(args: list[str] | None = None) -> int:
    """Entry point of `python -m calibrate.distill`. Returns the exit status."""
    description = "Distil an EAGLE-style draft: the target writes, a layer learns to foresee its states."

    def started() -> int:
        try:
            return run(parse(Command, "calibrate.distill", description, args))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise InputError("--output: no space left on the disk") from None
            raise InputError(f"{error.filename or '--output'}: {error.strerror or error}") from None

    return run_command(started)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
