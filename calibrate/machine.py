"""The machine and the software a profile was measured with."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch

FILE = "machine.json"
PACKAGES = ("draftlab", "torch", "transformers", "numpy")


def pin_threads(threads: int | None = None) -> int:
    """Fix the threads torch computes with, None: the cores this process may use; returns how many."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(threads or available)
    return int(torch.get_num_threads())


def versions() -> dict[str, str]:
    """Of Python and the packages that take part; those that are not installed are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = str(torch.version.cuda)
    return found


def git_revision() -> str | None:
    """Of the checkout this file lies in, "-dirty" if it has changes; None where it lies in none."""
    here = Path(__file__).resolve().parent
    revision = _output("git", "-C", str(here), "rev-parse", "HEAD")
    # a package installed below somebody else's repository is not that repository's revision
    if not revision or not _output("git", "-C", str(here), "ls-files", Path(__file__).name):
        return None
    changed = _output("git", "-C", str(here), "status", "--porcelain", "--untracked-files=no")
    return f"{revision}-dirty" if changed else revision


def device_name(device: torch.device) -> str:
    """Model of the GPU, or of the CPU."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return cpu_name()


def cpu_name() -> str:
    """As the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def facts(device: torch.device) -> dict[str, Any]:
    """What does not change while measuring: CPU, threads torch is pinned to, memory, GPU, system."""
    found: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_name(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "byte_order": sys.byteorder,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": str(properties.name),
            "gpu_memory_bytes": int(properties.total_memory),
            "gpu_multiprocessors": int(properties.multi_processor_count),
            "gpu_compute_capability": f"{properties.major}.{properties.minor}",
        }
    return found


def load(device: torch.device) -> dict[str, Any]:
    """What may change while measuring, taken before and after: load average, CPU clock in MHz, GPU clocks."""
    found: dict[str, Any] = {"load_average": [round(value, 2) for value in os.getloadavg()]}
    try:
        clock = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        clock = None
    if clock is not None and clock.current:
        found["cpu_mhz"] = round(float(clock.current))
    if device.type == "cuda":
        found |= _gpu_state(device)
    return found


def save(directory: Path, device: torch.device, before: Mapping[str, Any]) -> None:
    """Write machine.json: the facts, and the load before and after measuring."""
    document = {"machine": facts(device), "before": before, "after": load(device)}
    (directory / FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _gpu_state(device: torch.device) -> dict[str, str]:
    """Clocks, temperature, driver as nvidia-smi names them; nothing where it is not installed."""
    if shutil.which("nvidia-smi") is None:
        return {}
    wanted = ("driver_version", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "utilization.gpu")
    # by its own id: nvidia-smi does not know what CUDA_VISIBLE_DEVICES hides
    identity = str(torch.cuda.get_device_properties(device).uuid)
    identity = identity if identity.startswith("GPU-") else f"GPU-{identity}"
    said = _output("nvidia-smi", f"--query-gpu={','.join(wanted)}", "--format=csv,noheader", f"--id={identity}")
    if not said:
        return {}
    return dict(zip(wanted, (value.strip() for value in said.splitlines()[0].split(",")), strict=True))


def _output(*command: str) -> str | None:
    """What a command prints, stripped; None if it fails, is missing or says nothing for ten seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
