"""ShareGPT JSON (the V3 layout): a list of conversations; a request is the first human turn and its answer."""

from __future__ import annotations

from collections import Counter

from traces.errors import InputError
from traces.files import TextFile
from traces.formats.base import Head, Rows, TraceFormat
from traces.formats.jsonl import Record, parse
from traces.formats.registry import FORMATS
from traces.options import TraceOptions
from traces.tokens import count_tokens

HUMAN = ("human", "user")
MODEL = ("gpt", "assistant", "chatgpt", "bing", "bard")


@FORMATS.register("sharegpt")
class ShareGpt(TraceFormat):
    """In file order; vLLM shuffles the conversations and takes only those that pass its filter (--vllm-filter)."""

    summary = "ShareGPT V3 JSON: conversations of human and gpt turns; lengths by --tokenizer, or estimated"
    content = "a JSON array"
    options = frozenset({"tokenizer"})

    def recognises(self, head: Head) -> bool:
        return "conversations" in head.names

    def read(self, file: TextFile, options: TraceOptions) -> Rows:
        conversations = parse(file, file.text)
        if not isinstance(conversations, list):
            raise file.error(1, "expected a list of conversations")
        prompts, answers, skipped = [], [], Counter[str]()
        for number, conversation in enumerate(conversations):
            where = f"{file.path}: conversation {number}"
            if not isinstance(conversation, dict):
                raise InputError(f"{where}: expected an object with the column conversations")
            pair = first_exchange(where, Record(where, conversation))
            if isinstance(pair, str):
                skipped[pair] += 1
            else:
                prompts.append(pair[0])
                answers.append(pair[1])
        tokens, note = count_tokens(prompts + answers, options.tokenizer)
        return Rows(tokens[: len(prompts)], tokens[len(prompts) :], dropped=dict(skipped), notes=[f"Lengths {note}"])


def first_exchange(where: str, conversation: Record) -> tuple[str, str] | str:
    """Prompt and answer, or the reason why the conversation holds no request."""
    turns = []
    for turn in conversation.list("conversations"):
        if not isinstance(turn, dict):
            raise conversation.wrong("conversations", "a list of turns with the columns from and value")
        record = Record(where, turn)
        turns.append((record.text("from").lower(), record.text("value")))
    if not turns:
        return "empty conversation"
    start = next((index for index, (speaker, _) in enumerate(turns) if speaker in HUMAN), None)
    if start is None:
        return "no human turn"
    if start + 1 == len(turns) or turns[start + 1][0] not in MODEL:
        return "no gpt turn after the first human turn"
    return turns[start][1], turns[start + 1][1]
