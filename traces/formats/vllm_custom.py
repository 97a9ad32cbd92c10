"""vLLM's custom dataset: JSON Lines of prompts, with the number of output tokens where the file gives it."""

from __future__ import annotations

import numpy as np

from traces.files import TextFile
from traces.formats.base import Head, Rows, TraceFormat
from traces.formats.jsonl import records
from traces.formats.registry import FORMATS
from traces.options import TraceOptions
from traces.tokens import count_tokens

PROMPT, OUTPUT, TASK = "prompt", "output_tokens", "task"
DEFAULT_OUTPUT_TOKENS = 256  # vLLM's --custom-output-len


@FORMATS.register("vllm-custom")
class VllmCustom(TraceFormat):
    """A row without `output_tokens` generates 256, vLLM's default; --output-len sets another for every row."""

    summary = "vLLM custom JSONL: prompt (text), output_tokens (optional), task (optional)"
    content = "JSON Lines"
    options = frozenset({"tokenizer"})

    def recognises(self, head: Head) -> bool:
        return PROMPT in head.names

    def read(self, file: TextFile, options: TraceOptions) -> Rows:
        rows = list(records(file))
        prompt_tokens, note = count_tokens([row.text(PROMPT) for row in rows], options.tokenizer)
        without_output = sum(row.fields.get(OUTPUT) is None for row in rows)
        output_tokens = [
            DEFAULT_OUTPUT_TOKENS if row.fields.get(OUTPUT) is None else row.tokens(OUTPUT) for row in rows
        ]
        notes = [f"Prompt lengths {note}"]
        if without_output and options.output_len is None:
            notes.append(
                f"{without_output} rows give no output_tokens: {DEFAULT_OUTPUT_TOKENS} assumed, as vLLM does; "
                "--output-len sets another."
            )
        return Rows(
            prompt_tokens,
            np.array(output_tokens, np.int64),
            task=[row.text(TASK) if TASK in row.fields else "" for row in rows],
            notes=notes,
        )
