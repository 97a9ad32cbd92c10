"""Build traces/data: the embedded distributions of the named traces.

    python -m traces.build_named DATA_DIR

DATA_DIR holds `traces/` (the public trace files that SOURCES names) and `trace_quantiles.json` (percentiles of what is
published as figures only). What is written are figures: quantiles, a joint histogram of ranks, a rate; never a row.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError, run_command
from traces.files import read_text, write_text
from traces.loader import load
from traces.named import DATA, NAMES
from traces.options import TraceOptions

BINS = 20
LEVELS = np.concatenate([np.linspace(0, 0.985, 198), [0.99, 0.9925, 0.995, 0.9975, 0.999, 0.9995, 1.0]])
PERCENTILES = np.linspace(0, 1, 101)

INDEPENDENT = "Prompt and output lengths are taken as independent: only their marginals are published."
REFERENCE = (
    "Output lengths are those of the data set's reference answers; chat models usually write more (--output-len sets a "
    "length)."
)
NO_BLOCKS = "Prompts are sampled without the trace's shared prefixes."


@dataclass(frozen=True)
class Sampled:
    """A named trace built from the rows of a file: marginals and joint are measured."""

    file: str
    summary: str
    source: str
    licence: str
    tokenizer: str
    default_rate_rps: float
    vllm_filter: bool = False
    arrivals: tuple[float, float, str] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tabulated:
    """A named trace built from published percentiles. prompt, output: (section, key, field) of trace_quantiles.json.

    output_scale multiplies the output percentiles; joint_of names a file whose rank dependence is borrowed.
    """

    prompt: tuple[str, str, str]
    output: tuple[str, str, str]
    summary: str
    source: str
    licence: str
    tokenizer: str
    default_rate_rps: float
    output_scale: float = 1.0
    joint_of: str | None = None
    arrivals: tuple[float, float, str] | None = None
    task: str = ""
    notes: tuple[str, ...] = (INDEPENDENT, REFERENCE)


def task(key: str, column: str = "prompt_q") -> tuple[str, str, str]:
    return ("tasks", key, column)


AZURE = "CC-BY 4.0"
LLAMA_3 = "Llama-3"
SPEC_BENCH = "Spec-Bench (hemingkx/Spec-Bench)"

SOURCES: dict[str, Sampled | Tabulated] = {
    "sharegpt": Sampled(
        "sharegpt8k_llama2.csv.gz",
        "ShareGPT chat under vLLM's benchmark filter (prompt <= 1024, total <= 2048)",
        "ShareGPT lengths in project-etalon/etalon",
        "Apache-2.0",
        "Llama-2",
        8.0,
        vllm_filter=True,
        notes=("Prompts of this source seem to hold the earlier turns of the conversation.",),
    ),
    "sharegpt-long": Sampled(
        "sharegpt8k_llama2.csv.gz",
        "ShareGPT chat with history, up to 8192 tokens in all",
        "ShareGPT lengths in project-etalon/etalon",
        "Apache-2.0",
        "Llama-2",
        4.0,
        notes=("Prompts of this source seem to hold the earlier turns of the conversation.",),
    ),
    "azure-conv": Sampled(
        "azure2023_conv.csv.gz",
        "Azure conversation service, November 2023",
        "Azure LLM inference trace 2023, conversation (Azure/AzurePublicDataset)",
        AZURE,
        "the service's (not named)",
        5.53,
        arrivals=(5.53, 0.835, "the real rate also swings slowly between 4.3 and 7.5 requests/s"),
    ),
    "azure-code": Sampled(
        "azure2023_code.csv.gz",
        "Azure code completion service, November 2023",
        "Azure LLM inference trace 2023, code (Azure/AzurePublicDataset)",
        AZURE,
        "the service's (not named)",
        2.57,
        arrivals=(
            2.57,
            0.231,
            "the real stream is on and off, with pauses of up to 217 s: replay the file for its bursts",
        ),
    ),
    "mooncake": Sampled(
        "mooncake_conversation.jsonl.gz",
        "Kimi conversations with long contexts (Mooncake)",
        "Mooncake conversation trace (kvcache-ai/Mooncake)",
        "Apache-2.0",
        "Kimi's",
        3.40,
        arrivals=(3.40, 0.976, "fitted after spreading the recorded 3 s clock"),
        notes=(NO_BLOCKS,),
    ),
    "burstgpt": Tabulated(
        ("traces", "burstgpt_head60k", "prompt_q"),
        ("traces", "burstgpt_head60k", "output_q"),
        "GPT-3.5 and GPT-4 API and chat of a campus (BurstGPT), first 60,000 rows",
        "BurstGPT (HPMLL/BurstGPT), summary of its first 59,999 rows",
        "CC-BY 4.0, figures only",
        "GPT-3.5 / GPT-4",
        0.271,
        arrivals=(
            0.271,
            0.25,
            "the shape of BurstGPT's own generator; real pauses reach 15,240 s, and nights are quiet",
        ),
        notes=(
            INDEPENDENT,
            "Only mean, p50, p90, p95, p99 and maximum are published: lengths are log-linear between them, and below "
            "the median a guess.",
        ),
    ),
    "arxiv": Sampled(
        "arxiv_summarization_llama2.csv.gz",
        "arXiv papers and their summaries, up to 4096 tokens",
        "arXiv summarization lengths in microsoft/vidur",
        "MIT",
        "Llama-2",
        3.0,
    ),
    "cnn_dailymail": Tabulated(
        task("Spec-Bench summarization"),
        task("XSum 0-shot (1000, H2O set)", "reference_output_q"),
        "news summarization (CNN/DailyMail)",
        f"CNN/DailyMail prompts of {SPEC_BENCH}",
        "facts: lengths only",
        LLAMA_3,
        8.0,
        output_scale=70 / 26.2,
        task="cnn_dailymail",
        notes=(
            INDEPENDENT,
            "Output lengths are assumed: XSum's measured reference summaries stretched to a mean of 70 tokens, for the "
            "56 words that CNN/DailyMail highlights average (arXiv 1704.04368) at 1.26 tokens a word.",
        ),
    ),
    "xsum": Tabulated(
        task("XSum 0-shot (1000, H2O set)"),
        task("XSum 0-shot (1000, H2O set)", "reference_output_q"),
        "one-sentence news summarization (XSum), 0-shot",
        "XSum prompts of FMInference/H2O",
        "facts: lengths only",
        LLAMA_3,
        8.0,
        task="xsum",
    ),
    "gsm8k": Tabulated(
        task("GSM8K test"),
        task("GSM8K test", "reference_output_q"),
        "grade-school mathematics (GSM8K test)",
        "GSM8K test (openai/grade-school-math)",
        "MIT",
        LLAMA_3,
        16.0,
        task="gsm8k",
    ),
    "hotpotqa": Tabulated(
        task("HotpotQA dev question only"),
        task("HotpotQA dev question only", "reference_output_q"),
        "multi-hop questions (HotpotQA), question only",
        "HotpotQA development set in ysymyth/ReAct",
        "facts: lengths only",
        LLAMA_3,
        16.0,
        task="hotpotqa",
        notes=(INDEPENDENT, REFERENCE, "The prompt is the question alone, without its ten paragraphs."),
    ),
    "nq": Tabulated(
        task("Spec-Bench qa"),
        task("HotpotQA dev question only", "reference_output_q"),
        "open questions (Natural Questions), question only",
        f"Natural Questions of {SPEC_BENCH}",
        "facts: lengths only",
        LLAMA_3,
        16.0,
        task="nq",
        notes=(
            INDEPENDENT,
            "Output lengths are assumed: HotpotQA's short reference answers stand in for Natural Questions'; chat "
            "models usually write more (--output-len sets a length).",
        ),
    ),
    "humaneval": Tabulated(
        task("HumanEval"),
        task("HumanEval", "reference_output_q"),
        "Python functions from docstrings (HumanEval)",
        "HumanEval (openai/human-eval)",
        "MIT",
        LLAMA_3,
        16.0,
        task="humaneval",
    ),
    "wmt14": Tabulated(
        task("Spec-Bench translation"),
        task("Spec-Bench translation"),
        "German to English translation (WMT14)",
        f"WMT14 de-en sentences of {SPEC_BENCH}",
        "facts: lengths only",
        LLAMA_3,
        16.0,
        output_scale=0.7,
        joint_of="bwb_llama2.csv.gz",
        task="wmt14",
        notes=(
            "Output lengths are assumed: 0.7 times the prompt's distribution, for English takes fewer Llama-3 tokens "
            "than German.",
            "The dependence of output on prompt is borrowed from a measured document translation set (BWB, rho 0.8).",
        ),
    ),
}


def build(data_dir: Path, output: Path = DATA) -> None:
    """Write one JSON file per named trace into `output`. Raises `InputError` if a source is missing."""
    tables = json.loads(read_text(data_dir / "trace_quantiles.json").text)
    output.mkdir(exist_ok=True)
    for name in NAMES:
        source = SOURCES[name]
        entry = _sampled(source, data_dir) if isinstance(source, Sampled) else _tabulated(source, tables, data_dir)
        write_text(output / f"{name}.json", json.dumps(entry, separators=(",", ":")) + "\n")


def _sampled(source: Sampled, data_dir: Path) -> dict[str, Any]:
    path = str(data_dir / "traces" / source.file)
    workload = load(TraceOptions(trace=path, vllm_filter=source.vllm_filter))
    return _entry(
        source,
        rows=len(workload),
        task="",
        prompt={"levels": LEVELS.round(4).tolist(), "tokens": quantiles(workload.prompt_tokens)},
        output={"levels": LEVELS.round(4).tolist(), "tokens": quantiles(workload.output_tokens)},
        joint=joint_histogram(workload.prompt_tokens, workload.output_tokens).tolist(),
    )


def _tabulated(source: Tabulated, tables: dict[str, Any], data_dir: Path) -> dict[str, Any]:
    def column(place: tuple[str, str, str]) -> list[float]:
        section, key, field = place
        return [float(value) for value in tables[section][key][field]]

    joint = None
    if source.joint_of:
        borrowed = load(TraceOptions(trace=str(data_dir / "traces" / source.joint_of)))
        joint = joint_histogram(borrowed.prompt_tokens, borrowed.output_tokens).tolist()
    scaled = [round(value * source.output_scale, 2) for value in column(source.output)]
    return _entry(
        source,
        rows=tables[source.prompt[0]][source.prompt[1]]["n"],
        task=source.task,
        prompt={"levels": PERCENTILES.round(2).tolist(), "tokens": column(source.prompt)},
        output={"levels": PERCENTILES.round(2).tolist(), "tokens": scaled},
        joint=joint,
    )


def _entry(source: Sampled | Tabulated, **measured: Any) -> dict[str, Any]:
    arrivals = None
    if source.arrivals:
        rate_rps, gamma_shape, note = source.arrivals
        arrivals = {"rate_rps": rate_rps, "gamma_shape": gamma_shape, "note": note}
    return {
        "summary": source.summary,
        "source": source.source,
        "licence": source.licence,
        "tokenizer": source.tokenizer,
        **measured,
        "arrivals": arrivals,
        "default_rate_rps": source.default_rate_rps,
        "notes": list(source.notes),
    }


def quantiles(tokens: NDArray[np.int64]) -> list[int]:
    """Token counts at LEVELS: order statistics, so that every figure is a length that occurs."""
    ordered = np.sort(tokens)
    return ordered[np.rint(LEVELS * (len(ordered) - 1)).astype(np.int64)].tolist()  # type: ignore[no-any-return]


def joint_histogram(prompt: NDArray[np.int64], output: NDArray[np.int64]) -> NDArray[np.int64]:
    """Requests by rank of prompt and of output in BINS equal parts each. Equal lengths share their ranks at random.

    Rows and columns sum to the same number within one, so the histogram carries dependence only. shape: [BINS, BINS].
    """
    random = np.random.Generator(np.random.PCG64(0))
    counts = np.zeros((BINS, BINS), np.int64)
    np.add.at(counts, (_rank_bin(prompt, random), _rank_bin(output, random)), 1)
    return counts


def _rank_bin(values: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    order = np.lexsort((random.random(len(values)), values))
    bins = np.empty(len(values), np.int64)
    bins[order] = np.arange(len(values)) * BINS // len(values)
    return bins


def main() -> None:
    if len(sys.argv) != 2:
        raise InputError("usage: python -m traces.build_named DATA_DIR")
    build(Path(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(run_command(main))
