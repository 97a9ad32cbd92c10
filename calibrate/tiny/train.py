"""Train the small pair: `python -m calibrate.tiny.train --output DIR`.

Target, then the text that it writes, then both drafts; fixed steps, seeds and text, one thread. Two runs with the same
versions on the same kind of processor give the same bits: compare the digests of weights in TRAINING.log.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

from calibrate.tiny import corpus, learn, model, prompts
from calibrate.tiny.recipe import DRAFT_RECIPES, LONG, SAMPLED_ROWS, TARGET, TARGET_SCHEDULE
from calibrate.tiny.sample import continue_texts
from traces.command import parse
from traces.errors import InputError, run_command

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOKENS_SHA256 = "5e9f8da3edd01b5f4ee3b6c65adfe763772ea89cc2fb8eaff2751c95a67d4015"
SAMPLED_TOGETHER = 128


@dataclass(frozen=True)
class Command:
    """What to train and where to put it."""

    output: Path
    """directory for the three models, TRAINING.log and SHA256SUMS"""
    target: Path | None = None
    """a target that is trained already; only the drafts are trained"""
    stop_after: int | None = None
    """end after so many steps of the target, save nothing: to compare digests with TRAINING.log"""
    other_text: bool = False
    """train although this Python carries another text than the committed models were trained on"""


def run(command: Command) -> int:
    learn.use_one_thread()
    log = learn.Log()
    log.write(f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}")
    documents = corpus.corpus().training
    tokenizer = corpus.train_tokenizer(documents)
    tokens = corpus.encode(tokenizer, documents)
    digest = corpus.digest(tokens)
    log.write(f"{len(tokens)} tokens, sha256 {digest}")
    if digest != TOKENS_SHA256 and not command.other_text:
        raise InputError(
            f"the text of Python {platform.python_version()} is not the one of the committed models "
            f"(token file {digest[:12]}, expected {TOKENS_SHA256[:12]}); --other-text trains on it all the same"
        )
    if command.target is None:
        target = model.make(TARGET, TARGET_SCHEDULE.seed)
        loss = learn.text_loss(tokens, TARGET_SCHEDULE)
        learn.fit("target", target, loss, TARGET_SCHEDULE, log, command.stop_after)
        if command.stop_after is not None:
            return 0
        model.round_to_half(target)
    else:
        target = model.load(command.target)
    log.write(f"target rounded to float16: weights {model.weights_digest(target)[:16]}")
    model.save(target, tokenizer, command.output / "target")
    _train_drafts(target, tokens, tokenizer, command.output, log)
    prompts.save(prompts.choose(corpus.corpus().held_out), command.output)
    (command.output / "TRAINING.log").write_text("\n".join(log.lines) + "\n", encoding="utf-8")
    model.write_sums(command.output)
    return 0


def _train_drafts(target: Any, tokens: NDArray[np.uint16], tokenizer: Any, output: Path, log: learn.Log) -> None:
    samples = written_by(target)
    log.write(f"{samples.size} tokens written by the target")
    for name, recipe in DRAFT_RECIPES.items():
        if recipe.from_target:
            draft = model.from_layers(target, recipe.shape, recipe.from_target)
        else:
            draft = model.make(recipe.shape, recipe.schedule.seed)
        learn.fit(name, draft, learn.distillation_loss(target, tokens, samples), recipe.schedule, log)
        model.round_to_half(draft)
        log.write(f"{name} rounded to float16: weights {model.weights_digest(draft)[:16]}")
        model.save(draft, tokenizer, output / name)


def written_by(target: Any) -> NDArray[np.uint16]:
    """Texts that the target writes at temperature 1 after BEGIN. Shape (SAMPLED_ROWS, LONG + 1)."""
    begin = torch.full((SAMPLED_TOGETHER, 1), corpus.BEGIN_ID)
    parts = [continue_texts(target, begin, LONG, 1.0, seed) for seed in range(SAMPLED_ROWS // SAMPLED_TOGETHER)]
    written: NDArray[np.uint16] = torch.cat(parts).numpy().astype(np.uint16)
    return written


def main(args: list[str] | None = None) -> int:
    """Entry point of `python -m calibrate.tiny.train`. Returns the exit status."""
    description = "Train the small pair: a target and two drafts, about 40 minutes of one CPU thread."
    return run_command(lambda: run(parse(Command, "calibrate.tiny.train", description, args)))


if __name__ == "__main__":
    sys.exit(main())
