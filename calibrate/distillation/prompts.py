"""Prompts to distil on, made of templates and topics: `python -m calibrate.distillation.prompts --output FILE`.

Deterministic, in the eight tasks of calibrate's own prompts, none of which is among them: those are for measuring.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from random import Random

from calibrate.prompts import Prompt, interleave, load_prompts
from traces.command import parse
from traces.errors import InputError, run_command

# templates: of each task; parts: pieces that may hold slots themselves; slots: words. {NAMES} are replaced by them
MATERIAL = json.loads((Path(__file__).parents[1] / "data" / "training_prompts.json").read_text(encoding="utf-8"))
TASKS = tuple(MATERIAL["templates"])
LARGEST = 8000
"""Templates of few words run out of new prompts some way beyond."""
TRIES = 20


@dataclass(frozen=True)
class Command:
    """How many prompts and where to."""

    output: Path
    """file for the prompts, JSON Lines with task and prompt"""
    count: int = 1536
    """number of prompts, the same for each task"""
    seed: int = 0
    """of all draws"""


def make(count: int, seed: int = 0) -> list[Prompt]:
    """`count` different prompts, tasks in turn, templates of a task in turn too; none of them an embedded one."""
    taken = {_plain(prompt.text) for prompt in load_prompts()}
    prompts: list[Prompt] = []
    for number, task in enumerate(TASKS):
        wanted = (count - number + len(TASKS) - 1) // len(TASKS)
        texts = islice(_new(task, Random(f"{seed}/{task}"), taken), wanted)
        prompts += [Prompt(task, text) for text in texts]
    return interleave(prompts, seed)


def _new(task: str, random: Random, taken: set[str]) -> Iterator[str]:
    """Prompts that are not `taken`, which grows; a template that yields nothing new in some tries is passed over."""
    for template in cycle(MATERIAL["templates"][task]):
        for text in (_written(template, random) for _ in range(TRIES)):
            if _plain(text) not in taken:
                taken.add(_plain(text))
                yield text
                break


def _written(template: str, random: Random) -> str:
    text = template
    if "{MISSPELT}" in text:
        text = text.replace("{MISSPELT}", _misspelt(random.choice(MATERIAL["parts"]["PASSAGE"]), random))
    for part, choices in MATERIAL["parts"].items():
        while f"{{{part}}}" in text:
            text = text.replace(f"{{{part}}}", random.choice(choices), 1)
    return re.sub(r"\{(\w+)\}", lambda slot: random.choice(MATERIAL["slots"][slot[1]]), text)


def _misspelt(text: str, random: Random) -> str:
    """Some long words with two neighbouring letters swapped."""

    def swap(word: re.Match[str]) -> str:
        letters = list(word[0])
        if random.random() < 0.3:
            at = random.randrange(1, len(letters) - 2)
            letters[at : at + 2] = letters[at + 1], letters[at]
        return "".join(letters)

    return re.sub(r"(?<!\{)\b[a-z]{5,}\b(?!\})", swap, text)


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text).lower().strip()


def run(command: Command) -> int:
    if not 1 <= command.count <= LARGEST:
        raise InputError(f"--count {command.count}: expected 1 to {LARGEST}")
    lines = (json.dumps({"task": p.task, "prompt": p.text}) + "\n" for p in make(command.count, command.seed))
    command.output.write_text("".join(lines), encoding="utf-8")
    return 0


def main(args: list[str] | None = None) -> int:
    """Entry point of `python -m calibrate.distillation.prompts`. Returns the exit status."""
    description = "Write training prompts in eight tasks, none of those that calibrate measures with."
    return run_command(lambda: run(parse(Command, "calibrate.distillation.prompts", description, args)))


if __name__ == "__main__":
    sys.exit(main())
