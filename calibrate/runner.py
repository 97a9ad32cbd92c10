"""One model with an own KV cache: batched forward passes over ragged rows, for measuring and for live decoding."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from calibrate import bucket
from calibrate.attention import use_grouped_attention
from calibrate.memory import NoRoomError, is_out_of_memory
from calibrate.slab import KVSlab
from sim.replay.profile import Model
from traces.errors import InputError


@dataclass(frozen=True)
class PassOutput:
    """What a pass gives: logits float32[B, q, V] and hidden [B, q, H] in the model's dtype.

    With `logits_at` the logits are [B, 1, V]. `hidden` is what the head reads (after the last norm); for a model that
    takes hidden states it is what the model feeds back.
    """

    logits: torch.Tensor
    hidden: torch.Tensor


class ModelRunner:
    """A causal LM of transformers (any architecture whose attention is full and causal) with `max_num_seqs` slots.

    Rows are right-padded and masked by position, so that each row is what it would be alone. The caller keeps the
    lengths: a rollback is a lower `context` in the next pass. `needs_hidden` says whether the model takes hidden states
    (the EAGLE-style draft).

    `pads` says whether passes of 7 to 15 tokens are filled up to 16, which some CPU kernels are faster with: that is
    timed when the runner is made.

    Raises InputError if the slots do not fit the memory, or if the model has another cache than keys and values of all
    positions (a running state, a sliding window shorter than `max_model_len`).
    """

    def __init__(self, model: Any, *, max_num_seqs: int, max_model_len: int) -> None:
        self.model = model.eval()
        _check(model, self.name, max_model_len)
        use_grouped_attention(model)
        weight = next(iter(model.parameters()))
        self.device: torch.device = weight.device
        self.dtype: torch.dtype = weight.dtype
        self.max_num_seqs = max_num_seqs
        self.max_model_len = max_model_len
        arguments = inspect.signature(model.forward).parameters
        # transformers renames the argument in 5.x and will drop the old name
        self._cache_argument = "cache" if "cache" in arguments else "past_key_values"
        self.needs_hidden = "hidden_states" in arguments
        self._optional = {"use_cache": True} if "use_cache" in arguments else {}
        self._head = None if self.needs_hidden else model.get_output_embeddings()
        self._smallest = torch.finfo(self.dtype).min
        self.pads = bucket.pays(model)
        self.slab = KVSlab(max_num_seqs, max_model_len)
        try:
            self._probe()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise NoRoomError(
                f"{self.name}: no memory on {self.device} for the KV cache of {max_num_seqs} sequences of "
                f"{max_model_len} tokens; use fewer or shorter ones"
            ) from None

    def _probe(self) -> None:
        """One pass over one token allocates the slab and shows its shapes."""
        zero = torch.zeros(1, dtype=torch.long)
        hidden = None
        if self.needs_hidden:
            hidden = torch.zeros(1, 1, self.model.config.hidden_size, dtype=self.dtype, device=self.device)
        output = self.forward(zero[None], zero, zero, hidden=hidden)
        self._vocab_size = int(output.logits.shape[-1])

    def forward(
        self,
        tokens: torch.Tensor,
        slots: torch.Tensor,
        context: torch.Tensor,
        *,
        hidden: torch.Tensor | None = None,
        logits_at: torch.Tensor | None = None,
    ) -> PassOutput:
        """One pass: row b writes q positions from context[b] of slot slots[b] and attends to those up to itself.

        tokens      int64[B, q]; rows with fewer real tokens are padded on the right with any token
        slots       int64[B], all different; 0 .. B-1 in order is fastest. On the CPU, as `context`: no synchronisation
        context     int64[B], tokens of the row that are in the cache; context + q may not exceed `max_model_len`
        hidden      [B, q, H], given on as `hidden_states` to a model that wants it
        logits_at   int64[B]: the one column of each row whose logits are wanted (the others are not computed)

        Raises InputError if a row does not fit its slot.
        """
        rows, query = tokens.shape
        slots, context = slots.cpu(), context.cpu()
        longest = int(context.max())
        end = longest + query
        if end > self.max_model_len:
            raise InputError(f"{self.name}: a sequence of {end} tokens does not fit max_model_len={self.max_model_len}")
        more = bucket.padded(rows, query) - query if self.pads else 0
        if more and end + more <= self.max_model_len:
            tokens = functional.pad(tokens, (0, more))
            hidden = None if hidden is None else functional.pad(hidden, (0, 0, 0, more))
            end += more
        positions = self.slab.prepare(slots, context, end - longest, self.device)
        hidden_argument = {} if hidden is None else {"hidden_states": hidden.to(self.device, self.dtype)}
        arguments = {
            "input_ids": tokens.to(self.device),
            "attention_mask": self._mask(positions, end),
            "position_ids": positions,
            self._cache_argument: self.slab,
            **hidden_argument,
            **self._optional,
        }
        with torch.no_grad():
            found = self._run(arguments, None if logits_at is None else logits_at.to(self.device)[:, None, None])
        return PassOutput(found.logits[:, :query], found.hidden[:, :query])

    def run_packed(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        slab: KVSlab,
        wanted: torch.Tensor | None,
    ) -> PassOutput:
        """A pass over one line of tokens [1, N] whose attention and cache are the caller's (calibrate.live.packed).

        Logits of the columns `wanted` alone, int64[W]; of all without.
        """
        arguments = {
            "input_ids": tokens,
            "attention_mask": mask,
            "position_ids": positions,
            self._cache_argument: slab,
            **self._optional,
        }
        return self._run(arguments, None if wanted is None else wanted[None, :, None])

    def _run(self, arguments: dict[str, Any], chosen: torch.Tensor | None) -> PassOutput:
        if self._head is None:
            output = self.model(**arguments)
            states = output.hidden_states
            last = states if isinstance(states, torch.Tensor) else states[-1]
            return PassOutput(_columns(output.logits, chosen).float(), last)
        seen: list[torch.Tensor] = []

        def before_head(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            seen.append(inputs[0])
            return (_columns(inputs[0], chosen), *inputs[1:])

        # not for good: a draft made of the target's layers may share its head
        hook = self._head.register_forward_pre_hook(before_head)
        try:
            logits = self.model(**arguments).logits
        finally:
            hook.remove()
        return PassOutput(logits.float(), seen[0])

    def _mask(self, positions: torch.Tensor, end: int) -> torch.Tensor:
        """Additive, (B, 1, q, end): 0 up to each query's own position. All attention kinds of all versions take it."""
        hidden = torch.arange(end, device=self.device) > positions[:, :, None]
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device)
        return mask.masked_fill_(hidden, self._smallest)[:, None]

    def copy(self, source: int, to: torch.Tensor, *, length: int | None = None) -> None:
        """Fork: the KV of one slot into the slots int64[n]; of its first `length` positions, if given."""
        with torch.no_grad():
            self.slab.copy(source, to, self.max_model_len if length is None else length)

    @property
    def name(self) -> str:
        """Where the model was loaded from, or its class."""
        return str(getattr(self.model.config, "_name_or_path", "") or type(self.model).__name__)

    def describe(self, name: str, huggingface_id: str) -> Model:
        """The model as a profile names it."""
        return Model(
            name=name,
            huggingface_id=huggingface_id,
            parameters=self.parameters,
            weight_bytes=self.weight_bytes,
            kv_bytes_per_token=self.kv_bytes_per_token,
            dtype=str(self.dtype).removeprefix("torch."),
            tensor_parallel_size=1,
        )

    @property
    def vocab_size(self) -> int:
        """Width of the logits, padding of the vocabulary included."""
        return self._vocab_size

    @property
    def parameters(self) -> int:
        """Number of weights, tied ones once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def weight_bytes(self) -> int:
        """Memory of the weights, tied ones once."""
        return sum(parameter.numel() * parameter.element_size() for parameter in self.model.parameters())

    @property
    def kv_bytes_per_token(self) -> int:
        """Memory of one token's keys and values over all layers."""
        return self.slab.bytes_per_token


def _check(model: Any, name: str, max_model_len: int) -> None:
    """Raise InputError for a model whose cache is not keys and values of all positions."""
    if not getattr(model, "_supports_cache_class", True):
        raise InputError(f"{name}: this version of transformers has no cache object for its architecture; update it")
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ())
    if getattr(model, "_is_stateful", False) or "linear_attention" in kinds:
        raise InputError(f"{name}: keeps a running state that cannot be rolled back; only attention models can be used")
    window = getattr(config, "sliding_window", None)
    sliding = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    if window and sliding and window < max_model_len:
        raise InputError(
            f"{name}: attends to {window} tokens only; max_model_len may be at most that, not {max_model_len}"
        )


def _columns(values: torch.Tensor, chosen: torch.Tensor | None) -> torch.Tensor:
    """Some columns of (B, q, N), int64[B, n, 1]; all without `chosen`."""
    if chosen is None:
        return values
    return values.gather(1, chosen.expand(-1, -1, values.shape[-1]))
