"""Models and tokenizers of transformers from a directory or the hub; what goes wrong becomes one line."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import huggingface_hub  # type: ignore[import-not-found,unused-ignore]
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as library

from calibrate.memory import is_out_of_memory
from traces.errors import InputError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
EAGLE_TYPE = "eagle"
"""`model_type` in the config.json of an EAGLE-style draft of calibrate.distill."""


def device(name: str) -> torch.device:
    """The device of that name, or for auto the best one there is. Raises InputError if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
    except RuntimeError:
        raise InputError(f"--device {name}: expected auto, cpu, cuda, cuda:1 or mps") from None
    if found.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not count:
            raise InputError(f"--device {name}: torch {torch.__version__} finds no GPU here; use --device cpu")
        if found.index is not None and found.index >= count:
            raise InputError(f"--device {name}: there are {count} GPUs, numbered from 0")
    elif found.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"--device {name}: not available here; use --device cpu")
    elif found.type not in ("cpu", "mps"):
        raise InputError(f"--device {name}: expected auto, cpu, cuda, cuda:1 or mps")
    return found


def dtype(name: str, place: torch.device) -> torch.dtype:
    """float32 on a CPU and bfloat16 elsewhere for auto. Raises InputError for a name that is not in `DTYPES`."""
    if name == "auto":
        return torch.float32 if place.type == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise InputError(f"--dtype {name}: expected auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def tokenizer(source: str) -> Any:
    """Raises InputError if there is none."""
    with _explained(source, "tokenizer"):
        return AutoTokenizer.from_pretrained(_checked(source), local_files_only=_local_only(source))


def causal_lm(
    source: str, place: torch.device, kind: torch.dtype, progress: Callable[[str], None] = lambda _: None
) -> Any:
    """A model for evaluation. Raises InputError if it cannot be had whole or does not fit the device."""
    progress(f"loading {source}")
    with _explained(source, "model"):
        model, found = AutoModelForCausalLM.from_pretrained(
            _checked(source),
            local_files_only=_local_only(source),
            output_loading_info=True,
            **_dtype_argument(kind),
        )
        missing = sorted(found["missing_keys"])
        if missing:  # transformers makes up what is missing
            raise InputError(f"{source}: the weights lack {len(missing)} tensors of the model, as {missing[0]}")
        return model.to(place).eval()


def holds_eagle(source: str) -> bool:
    """Whether a directory holds an EAGLE-style draft."""
    path = Path(source) / "config.json"
    try:
        return bool(json.loads(path.read_text(encoding="utf-8")).get("model_type") == EAGLE_TYPE)
    except (OSError, ValueError, AttributeError):
        return False


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Ids that end a text, as the model's generation settings, its config or the tokenizer name them."""
    for holder in (getattr(model, "generation_config", None), model.config, tokenizer):
        found = getattr(holder, "eos_token_id", None)
        if found is not None:
            return frozenset([found] if isinstance(found, int) else found)
    return frozenset()


def _checked(source: str) -> str:
    """Refuse a path that is not there before it is asked of the hub."""
    path = Path(source).expanduser()
    if source and path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(f"{source}: no config.json there; expected a directory in the layout of Hugging Face")
        return str(path)
    if path.is_file():
        raise InputError(f"{source}: is a file; expected a directory with config.json and weights, or a hub id")
    if source.startswith((".", "/", "~")) or source.count("/") > 1 or not source:
        raise InputError(f"{source or 'empty name'}: no such directory")
    return source


def _local_only(source: str) -> bool:
    """Whether not to ask the hub: for a directory, and where its name has no address (asking takes a minute then)."""
    if os.path.isdir(source) or getproxies():
        return os.path.isdir(source)
    try:
        socket.getaddrinfo(urlsplit(huggingface_hub.constants.ENDPOINT).hostname, 443)
    except OSError:
        return True
    return False


def _dtype_argument(kind: torch.dtype) -> dict[str, torch.dtype]:
    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    return {"dtype" if (major, minor) >= (4, 56) else "torch_dtype": kind}


@contextmanager
def _explained(source: str, what: str) -> Iterator[None]:
    bars, level = library.is_progress_bar_enabled(), library.get_verbosity()
    if os.path.isdir(source):  # the bar of a second's work; those of downloads stay
        library.disable_progress_bar()
    library.set_verbosity_error()
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{source}: {_reason(error, source, what)}") from None
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise InputError(f"{source}: no memory for the weights on this device; use a smaller model") from None
        raise InputError(f"{source}: the {what} cannot be loaded: {_line(error)}") from None
    except Exception as error:  # parsers of weights and tokenizers have errors of their own
        raise InputError(f"{source}: the {what} cannot be loaded: {_line(error)}") from None
    finally:
        library.set_verbosity(level)
        if bars:
            library.enable_progress_bar()


def _reason(error: OSError, source: str, what: str) -> str:
    """transformers explains over many lines and names its cause only in words."""
    text = str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk for the download"
    if "gated" in text or "401" in text or "403" in text:
        return "the hub refuses access: ask for it on its page and log in with hf auth login"
    if os.path.isdir(source):
        return f"the {what} cannot be loaded: {_line(error)}"
    if "not a valid model identifier" in text or "404" in text:
        return "neither a directory here nor a model on the hub"
    if "connect" in text or "offline" in text.lower() or "couldn't find" in text:
        return "not a directory here, not in the cache, and the hub cannot be reached"
    return f"the {what} cannot be loaded: {_line(error)}"


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{text[:160]}..." if len(text) > 163 else text or type(error).__name__
