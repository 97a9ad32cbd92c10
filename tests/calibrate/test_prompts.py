"""Prompts: the embedded set, layouts of files, order, errors, and what a tokenizer makes of them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from calibrate.prompts import Prompt, interleave, load_prompts, render
from traces.errors import InputError

TASKS = {"chat", "code", "maths", "summarise", "rewrite", "translate", "question-answering", "extraction"}

# one row of each layout, written for this test, with what it has to become
LAYOUTS: dict[str, tuple[str, Prompt]] = {
    "ours": ('{"task": "chat", "prompt": "Hello"}', Prompt("chat", "Hello")),
    "vllm custom": ('{"prompt": "Hello", "output_tokens": 12}', Prompt("", "Hello")),
    "humaneval": (
        '{"task_id": "HumanEval/0", "prompt": "def f():\\n", "entry_point": "f"}',
        Prompt("humaneval", "def f():\n"),
    ),
    "gsm8k": ('{"question": "1 + 1?", "answer": "#### 2"}', Prompt("gsm8k", "1 + 1?")),
    "mt-bench": (
        '{"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}',
        Prompt("writing", "Write.", ("Again.",)),
    ),
    "spec-bench": (
        '{"question_id": 321, "category": "qa", "turns": ["Who?"], "reference": ["He"]}',
        Prompt("qa", "Who?"),
    ),
    "sharegpt": (
        '[{"id": "a", "conversations": [{"from": "system", "value": "Be kind."}, {"from": "human", "value": "Hi"},'
        ' {"from": "gpt", "value": "Hello"}, {"from": "human", "value": "Bye"}]}, {"conversations": []}]',
        Prompt("", "Hi", ("Bye",)),
    ),
    "messages": ('{"messages": [{"role": "user", "content": "Hi"}]}', Prompt("", "Hi")),
    "text": ("[INST] Say {hello}\n", Prompt("", "[INST] Say {hello}")),
}

BROKEN: dict[str, tuple[bytes, str]] = {
    "bad JSON": (b'{"prompt": "a"}\n{"prompt": \n', ":2: not valid JSON at character 12"),
    "no prompt": (b'{"prompt": "a"}\n\n{"text": "b"}\n', ":3: no prompt; expected one of the keys prompt, turns,"),
    "blank prompt": (b'{"prompt": " "}\n', ':1: column prompt: value " ", expected text that is not empty'),
    "number": (b'{"turns": ["a", 2]}', ":1: column turns: value .*expected text that is not empty"),
    "no turn": (b'{"turns": []}', ":1: column turns: value .*, expected at least one turn"),
    "no object": (b'{"prompt": "a"}\n7\n', ":2: expected a JSON object, found int"),
    "item": (b'[{"prompt": "a"}, 7]', ": item 2: expected a JSON object, found int"),
    "bad array": (b'[{"prompt": "a"},\n{"prompt"}]', ":2: not valid JSON"),
    "empty": (b" \n\n", ": holds no prompt"),
    "no user": (b'{"conversations": []}', ": holds no prompt"),
    "not UTF-8": (b"caf\xe9\n", ":1: byte 0xe9 is not UTF-8"),
}


def test_embedded_set_has_twelve_prompts_in_each_of_eight_tasks() -> None:
    assert Counter(prompt.task for prompt in load_prompts()) == dict.fromkeys(TASKS, 12)


def test_embedded_prompts_differ() -> None:
    assert len({prompt.text for prompt in load_prompts()}) == 96


def test_passages_to_summarise_have_80_to_150_words() -> None:
    own = [prompt.text for prompt in load_prompts() if prompt.task == "summarise"]
    words = [len(text.split("\n\n", 1)[1].split()) for text in own]
    assert 80 <= min(words) <= max(words) <= 150


def test_tiny_set_is_the_held_out_text_of_the_tiny_pair() -> None:
    found = load_prompts("tiny", limit=14)  # 7 tasks
    assert Counter(prompt.task for prompt in found) == Counter({prompt.task: 2 for prompt in found})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout(layout: str, tmp_path: Path) -> None:
    content, expected = LAYOUTS[layout]
    file = tmp_path / "prompts"
    file.write_text(content, encoding="utf-8")
    assert load_prompts(file) == [expected]


def test_gzip_is_recognised_from_content(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl.gz"
    file.write_bytes(
        gzip.compress(b"\xef\xbb\xbfone\r\ntwo\r\n")
    )  # with a byte order mark and another system's line ends
    assert {prompt.text for prompt in load_prompts(file)} == {"one", "two"}


@pytest.mark.parametrize("mistake", BROKEN)
def test_mistakes_name_file_and_line(mistake: str, tmp_path: Path) -> None:
    content, expected = BROKEN[mistake]
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError, match=rf"prompts\.jsonl{expected}"):
        load_prompts(file)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.jsonl: no such file"):
        load_prompts(tmp_path / "absent.jsonl")


def test_limit_must_be_positive() -> None:
    with pytest.raises(InputError, match="at least 1, got 0"):
        load_prompts(limit=0)


def test_tasks_take_turns() -> None:
    prompts = [Prompt("a", str(i)) for i in range(3)] + [Prompt("b", "x")]
    assert [prompt.task for prompt in interleave(prompts)] == ["a", "b", "a", "a"]


def test_limit_is_even_over_tasks() -> None:
    # 20 = 8 * 2 + 4: four tasks give one more
    assert sorted(Counter(prompt.task for prompt in load_prompts(limit=20)).values()) == [2] * 4 + [3] * 4


def test_order_depends_on_the_seed_alone() -> None:
    assert load_prompts(seed=1) == load_prompts(seed=1) != load_prompts(seed=2)


class Letters:
    """A tokenizer whose tokens are characters."""

    def __init__(self, begin: int | None = None, end: int | None = 2, adds: bool = False, chat: bool = False) -> None:
        self.bos_token_id, self.eos_token_id, self.adds = begin, end, adds
        self.chat_template = "yes" if chat else None

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        start = [self.bos_token_id] if self.adds and add_special_tokens else []
        return {"input_ids": [*start, *map(ord, text)]}  # type: ignore[list-item]

    def apply_chat_template(self, messages: list[Any], *, tokenize: bool, add_generation_prompt: bool) -> str:
        assert not tokenize
        return f"<{json.dumps(messages)}>" + ("A:" if add_generation_prompt else "")


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (Letters(), [72, 105]),
        (Letters(begin=1, adds=True), [1, 72, 105]),
        (Letters(begin=1), [1, 72, 105]),  # the tiny pair's: it has a BOS token and was trained with it
        (Letters(begin=2), [72, 105]),  # GPT-2's: one token begins and ends, and is not put before a prompt
    ],
)
def test_plain_text_starts_with_bos(tokenizer: Letters, expected: list[int]) -> None:
    assert render(Prompt("", "Hi"), tokenizer) == expected


def test_chat_template_is_applied_once_up_to_the_answer() -> None:
    ids = render(Prompt("", "Hi", ("Bye",)), Letters(begin=1, adds=True, chat=True))
    assert "".join(map(chr, ids)) == '<[{"role": "user", "content": "Hi"}]>A:'


def test_prompt_without_a_token() -> None:
    with pytest.raises(InputError, match="makes no token of it"):
        render(Prompt("", ""), Letters())


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "count", "tasks"),
    [
        ("humaneval.jsonl.gz", 164, {"humaneval"}),  # sizes as published
        ("gsm8k_test.jsonl.gz", 1319, {"gsm8k"}),
        ("vicuna_bench_question.jsonl", 80, {"generic", "coding", "math"}),
        ("mt_bench_question.jsonl", 80, {"writing", "stem"}),
        ("spec_bench/qa.jsonl", 80, {"qa"}),
        ("spec_bench/rag.jsonl", 80, {"rag"}),
        ("spec_bench/math_reasoning.jsonl", 80, {"math_reasoning"}),
    ],
)
def test_published_files(name: str, count: int, tasks: set[str], shared_data: Path) -> None:
    file = shared_data / "prompts" / name
    if not file.is_file():
        pytest.skip(f"no {name}")
    found = load_prompts(file)
    assert (len(found), tasks - {prompt.task for prompt in found}) == (count, set())
