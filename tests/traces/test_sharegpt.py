from __future__ import annotations

import json

import pytest

from tests.traces.samples import write
from traces import InputError, load


def conversation(*turns: tuple[str, str]) -> dict[str, object]:
    return {"conversations": [{"from": speaker, "value": value} for speaker, value in turns]}


def test_first_human_turn_and_its_answer(tmp_path):  # F29
    text = json.dumps(
        [
            conversation(),
            conversation(("gpt", "x" * 90), ("human", "hi"), ("gpt", "yo" * 9)),
            conversation(("human", "only")),
        ]
    )
    workload = load(write(tmp_path, text))
    # "hi" is 2 bytes, 1 token; "yo" * 9 is 18 bytes, 4 tokens; the gpt turn before has 20
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([1], [4])
    assert workload.dropped == {"empty conversation": 1, "no gpt turn after the first human turn": 1}


def test_system_turn_and_openai_names(tmp_path):
    text = json.dumps([conversation(("system", "be kind"), ("user", "p" * 9), ("assistant", "a" * 9))])
    assert load(write(tmp_path, text)).prompt_tokens.tolist() == [2]


def test_empty_answer_is_dropped(tmp_path):
    text = json.dumps([conversation(("human", "hi"), ("gpt", "")), conversation(("human", "hi"), ("gpt", "yo"))])
    assert load(write(tmp_path, text)).dropped == {"0 output tokens": 1}


def test_nothing_left_says_why(tmp_path):
    with pytest.raises(InputError, match="the trace holds no request; 1 dropped: empty conversation"):
        load(write(tmp_path, json.dumps([conversation()])))


def test_vllm_filter(tmp_path):
    # estimated tokens (prompt, output) and vLLM's rule: at least 4 each, prompt <= 1024, together <= 2048
    lengths = [(4, 4), (3, 50), (50, 3), (1024, 1024), (1025, 5), (1024, 1025)]
    text = json.dumps([conversation(("human", "p" * int(4.5 * p)), ("gpt", "a" * int(4.5 * o))) for p, o in lengths])
    workload = load(write(tmp_path, text), vllm_filter=True)
    assert list(zip(workload.prompt_tokens.tolist(), workload.output_tokens.tolist(), strict=True)) == [
        (4, 4),
        (1024, 1024),
    ]


def test_unknown_tiktoken_encoding_lists_the_known(tmp_path):
    pytest.importorskip("tiktoken")
    path = write(tmp_path, json.dumps([conversation(("human", "hi"), ("gpt", "yo"))]))
    with pytest.raises(InputError, match=r"--tokenizer tiktoken:nope: no such encoding; known: .*cl100k_base"):
        load(path, tokenizer="tiktoken:nope")


def test_array_of_something_else_is_not_sharegpt(tmp_path):
    with pytest.raises(InputError, match="format not recognised: a JSON array with the columns question"):
        load(write(tmp_path, '[{"question": "hi"}]'))
