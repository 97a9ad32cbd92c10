"""Where the runs of a sweep are computed: processes of this machine, or the workers of a dask or ray cluster."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import joblib

from traces.errors import InputError

ORPHANS_END_S = 30
"""A worker of loky ends when it has had nothing to do for so long; that is how it notices a parent that was killed."""


@contextmanager
def workers(backend: str, address: str | None = None, jobs: int | None = None) -> Iterator[None]:
    """Inside, joblib.Parallel runs on that backend. Raises InputError where it cannot be had."""
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs}: expected a whole number of at least 1")
    if address is not None and backend == "loky":
        raise InputError("--address names a cluster: give --backend dask or ray too")
    try:
        with {"loky": _loky, "dask": _dask, "ray": _ray}[backend](address, jobs), warnings.catch_warnings():
            # an interrupt: joblib tells of the runs in flight, as if they were a waste
            warnings.filterwarnings("ignore", r"\d+ tasks (have been successfully executed|which were still)")
            yield
    except ModuleNotFoundError as error:
        if error.name not in ("dask", "distributed", "ray"):
            raise
        raise InputError(f"{error.name} is not installed; pip install 'draftlab[sweep]'") from None


@contextmanager
def _loky(address: str | None, jobs: int | None) -> Iterator[None]:
    options = {"initializer": _leave_interrupts_to_the_parent, "idle_worker_timeout": ORPHANS_END_S}
    with joblib.parallel_config(backend="loky", n_jobs=jobs or -1, **options):
        yield


@contextmanager
def _dask(address: str | None, jobs: int | None) -> Iterator[None]:
    from distributed import Client, LocalCluster

    local: dict[str, Any] = {"n_workers": jobs or joblib.cpu_count(), "threads_per_worker": 1}
    local |= {"dashboard_address": None, "silence_logs": logging.ERROR}
    with ExitStack() as opened:
        try:
            if address is None:
                with _children_ignore_interrupts():
                    cluster = opened.enter_context(LocalCluster(**local))
            client = Client(cluster if address is None else address)
        except (OSError, ValueError) as error:
            raise InputError(_no_cluster("dask scheduler", address, error)) from None
        opened.enter_context(client)
        opened.enter_context(joblib.parallel_config(backend="dask", n_jobs=jobs or -1))
        yield


@contextmanager
def _ray(address: str | None, jobs: int | None) -> Iterator[None]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere unless the user wants it
    import ray
    from ray.util.joblib.ray_backend import RayBackend

    class Backend(RayBackend):  # type: ignore[misc]
        supports_return_generator = True  # joblib says no for all pools of multiprocessing; ray's can

    joblib.register_parallel_backend("ray", Backend)
    local: dict[str, Any] = {"num_cpus": jobs or joblib.cpu_count(), "include_dashboard": False}
    with ExitStack() as opened:
        if not ray.is_initialized():
            place = local if address is None else {"address": address}
            try:
                ray.init(**place, log_to_driver=False, logging_level="error")
            except Exception as error:  # it raises OSError, ValueError, RuntimeError or Exception itself
                raise InputError(_no_cluster("ray cluster", address, error)) from None
            opened.callback(ray.shutdown)
        opened.enter_context(joblib.parallel_config(backend="ray", n_jobs=jobs or -1))
        yield


def _no_cluster(what: str, address: str | None, error: Exception) -> str:
    words = " ".join(str(error).split()).partition(". ")[0]
    return f"no {what} answers at --address {address}: {words}" if address else f"no local {what} starts: {words}"


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches every process of a terminal; the parent alone ends the sweep."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _children_ignore_interrupts() -> Iterator[None]:
    """The same for processes that are started inside: they inherit it."""
    if threading.current_thread() is not threading.main_thread():  # where no handler can be set
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
