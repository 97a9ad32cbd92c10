"""The model runner against uncached passes of the same model: every row as if it were alone."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    from calibrate import bucket
    from calibrate.runner import ModelRunner
    from traces.errors import InputError

VOCABULARY, SLOTS, LENGTH = 61, 5, 48


def llama() -> Any:
    """Grouped queries: 4 heads share 2 KV heads of size 8."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config)


def gpt2() -> Any:
    """Absolute positions (F47)."""
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64))


@pytest.fixture(params=[llama, gpt2], ids=["llama", "gpt2"])
def runner(request: pytest.FixtureRequest) -> ModelRunner:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = request.param()
    if not getattr(model, "_supports_cache_class", True):
        pytest.skip("this version of transformers has no cache object for the architecture")
    return ModelRunner(model, max_num_seqs=SLOTS, max_model_len=LENGTH)


def uncached(runner: ModelRunner, tokens: list[int]) -> Any:
    """Logits (tokens, vocabulary) of one sequence in one pass without cache or padding."""
    with torch.no_grad():
        return runner.model(input_ids=torch.tensor([tokens])).logits[0]


def feed(runner: ModelRunner, texts: dict[int, list[int]], new: dict[int, list[int]]) -> Any:
    """One pass that appends `new` to the texts of the slots named; returns the greatest difference from `uncached`."""
    slots = list(new)
    longest = max(map(len, new.values()))
    tokens = torch.tensor([new[s] + [0] * (longest - len(new[s])) for s in slots])
    context = torch.tensor([len(texts[s]) for s in slots])
    logits = runner.forward(tokens, torch.tensor(slots), context).logits
    worst = 0.0
    for row, slot in enumerate(slots):
        texts[slot] += new[slot]
        expected = uncached(runner, texts[slot])[-len(new[slot]) :]
        worst = max(worst, float((logits[row, : len(new[slot])] - expected).abs().max()))
    return worst


@pytest.mark.parametrize("slots", [[0, 1, 2, 3], [1, 2, 3], [4, 0, 2]], ids=["in order", "run", "scattered"])
def test_ragged_rounds_with_rollback_equal_uncached_passes(runner: ModelRunner, slots: list[int]) -> None:
    """Prompts of 3 to 9 tokens, then rounds of 1 to 4 tokens of which a random part is taken back (F46, F47)."""
    generator = torch.Generator().manual_seed(1)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=generator))

    def words(count: int) -> list[int]:
        return torch.randint(VOCABULARY, (count,), generator=generator).tolist()

    texts: dict[int, list[int]] = {slot: [] for slot in slots}
    worst = [feed(runner, texts, {slot: words(draw(3, 10)) for slot in slots})]
    for _ in range(6):
        worst.append(feed(runner, texts, {slot: words(draw(1, 5)) for slot in slots}))
        for slot in slots:
            texts[slot] = texts[slot][: len(texts[slot]) - draw(0, 3)]
    assert max(worst) < 1e-4


def test_even_rows_equal_uncached_passes(runner: ModelRunner) -> None:
    """All rows of one length take the path without indices."""
    texts: dict[int, list[int]] = {slot: [] for slot in range(3)}
    first = feed(runner, texts, {slot: [slot, 7, 9] for slot in range(3)})
    assert max(first, feed(runner, texts, {slot: [5, slot] for slot in range(3)})) < 1e-4


def test_filling_up_changes_nothing(runner: ModelRunner) -> None:
    """Three rows of three tokens become three of six; near the end of a slot they do not."""
    runner.pads = True
    texts: dict[int, list[int]] = {slot: [] for slot in range(3)}
    first = feed(runner, texts, {slot: [slot, 7, 9] for slot in range(3)})
    for slot in range(3):
        texts[slot] += [1] * (LENGTH - 3 - len(texts[slot]))
    feed(runner, {slot: [] for slot in range(3)}, {slot: texts[slot] for slot in range(3)})
    assert max(first, feed(runner, texts, {slot: [5, slot, 6] for slot in range(3)})) < 1e-4


@pytest.mark.parametrize(
    ("rows", "query", "expected"),
    [(1, 6, 6), (1, 7, 16), (3, 3, 6), (15, 1, 2), (16, 1, 1), (2, 8, 8)],
)
def test_filled_up_to_sixteen(rows: int, query: int, expected: int) -> None:
    assert bucket.padded(rows, query) == expected


def test_fork_goes_on_from_the_source(runner: ModelRunner) -> None:
    texts = {0: [], 3: [3, 1, 4, 1, 5], 4: [3, 1, 4, 1, 5]}
    feed(runner, texts, {0: [3, 1, 4, 1, 5]})
    runner.copy(0, torch.tensor([3, 4]), length=5)
    assert feed(runner, texts, {3: [9, 2], 4: [6]}) < 1e-4


def test_logits_of_one_column(runner: ModelRunner) -> None:
    tokens, rows = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.arange(2)
    every = runner.forward(tokens, rows, torch.zeros(2, dtype=torch.long))
    one = runner.forward(tokens, rows, torch.zeros(2, dtype=torch.long), logits_at=torch.tensor([2, 0]))
    assert one.logits.shape == (2, 1, VOCABULARY)
    torch.testing.assert_close(one.logits[:, 0], every.logits[rows, [2, 0]])


def test_hidden_is_what_the_head_reads(runner: ModelRunner) -> None:
    zero = torch.zeros(1, dtype=torch.long)
    output = runner.forward(torch.tensor([[1, 2, 3]]), zero, zero)
    head = runner.model.get_output_embeddings()
    torch.testing.assert_close(head(output.hidden).float(), output.logits)


def test_kv_bytes_per_token() -> None:
    """Keys and values * 3 layers * 2 KV heads * 8 numbers * 4 bytes = 384."""
    assert ModelRunner(llama(), max_num_seqs=1, max_model_len=4).kv_bytes_per_token == 384


def test_half_precision_runs() -> None:
    runner = ModelRunner(llama().to(torch.bfloat16), max_num_seqs=2, max_model_len=8)
    output = runner.forward(torch.tensor([[1, 2], [3, 4]]), torch.arange(2), torch.tensor([0, 0]))
    assert output.logits.dtype == torch.float32
    assert output.hidden.dtype == torch.bfloat16


def test_a_row_beyond_its_slot_is_refused(runner: ModelRunner) -> None:
    with pytest.raises(InputError, match="sequence of 49 tokens does not fit max_model_len=48"):
        runner.forward(torch.zeros(1, 2, dtype=torch.long), torch.tensor([0]), torch.tensor([LENGTH - 1]))


@pytest.mark.parametrize("padding", [0, 3], ids=["whole", "padded"])
def test_the_model_itself_is_left_as_it_was(padding: int) -> None:
    """Passes without the runner, a mask over left padding among them, give what they gave before."""
    torch.manual_seed(0)
    model = llama().eval()
    inputs = {
        "input_ids": torch.arange(8)[None],
        "attention_mask": (torch.arange(8) >= padding).long()[None],
        "position_ids": (torch.arange(8) - padding).clamp(min=0)[None],
    }
    with torch.no_grad():
        before = model(**inputs).logits
        ModelRunner(model, max_num_seqs=1, max_model_len=8)
        torch.testing.assert_close(model(**inputs).logits[:, padding:], before[:, padding:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("length", "refused"), [(16, False), (17, True)])
def test_a_window_shorter_than_a_slot_is_refused(length: int, refused: bool) -> None:
    """Within its window a sliding attention is a full one."""
    model = llama()
    model.config.sliding_window = 16
    if refused:
        with pytest.raises(InputError, match="attends to 16 tokens only"):
            ModelRunner(model, max_num_seqs=1, max_model_len=length)
    else:
        ModelRunner(model, max_num_seqs=1, max_model_len=length)


class Echo(torch.nn.Module):  # type: ignore[misc]
    """Takes hidden states as the EAGLE draft does, and gives back their double."""

    def __init__(self) -> None:
        super().__init__()
        self.config = LlamaConfig(hidden_size=4, num_attention_heads=1)
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_ids: Any, hidden_states: Any, past_key_values: Any = None, **_: Any) -> Any:
        from types import SimpleNamespace

        past_key_values.update(hidden_states[:, None], hidden_states[:, None], 0)
        return SimpleNamespace(logits=hidden_states[..., :3], hidden_states=2 * hidden_states)


def test_hidden_states_reach_a_model_that_wants_them() -> None:
    runner = ModelRunner(Echo(), max_num_seqs=1, max_model_len=4)
    zero = torch.zeros(1, dtype=torch.long)
    output = runner.forward(torch.tensor([[1, 2]]), zero, zero, hidden=torch.ones(1, 2, 4))
    torch.testing.assert_close(output.hidden, torch.full((1, 2, 4), 2.0))
