"""Where the runs of a sweep are computed: processes of this machine, or the workers of a dask or ray cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import joblib

from traces.errors import InputError


@contextmanager
def workers(backend: str, address: str | None = None, jobs: int | None = None) -> Iterator[None]:
    """Inside, joblib.Parallel runs on that backend. Raises InputError where it cannot be had."""
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs}: expected a whole number of at least 1")
    if address is not None and backend == "loky":
        raise InputError("--address names a cluster: give --backend dask or ray too")
    try:
        with {"loky": _loky, "dask": _dask, "ray": _ray}[backend](address, jobs):
            yield
    except ModuleNotFoundError as error:
        if error.name not in ("dask", "distributed", "ray"):
            raise
        raise InputError(f"{error.name} is not installed; pip install 'draftlab[sweep]'") from None


@contextmanager
def _loky(address: str | None, jobs: int | None) -> Iterator[None]:
    with joblib.parallel_config(backend="loky", n_jobs=jobs or -1, initializer=_leave_interrupts_to_the_parent):
        yield


@contextmanager
def _dask(address: str | None, jobs: int | None) -> Iterator[None]:
    from distributed import Client, LocalCluster

    if address is None:
        local = {"n_workers": jobs or joblib.cpu_count(), "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(**local) as cluster, Client(cluster), joblib.parallel_config(backend="dask", n_jobs=-1):
            yield
        return
    try:
        client = Client(address)
    except (OSError, ValueError) as error:
        raise InputError(f"--address {address}: no dask scheduler answers ({' '.join(str(error).split())})") from None
    with client, joblib.parallel_config(backend="dask", n_jobs=jobs or -1):
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
    started = not ray.is_initialized()
    try:
        if started:
            place = {"address": address} if address is not None else local
            ray.init(**place, log_to_driver=False, logging_level="error")
    except (OSError, ValueError) as error:
        raise InputError(f"--address {address}: no ray cluster answers ({' '.join(str(error).split())})") from None
    try:
        with joblib.parallel_config(backend="ray", n_jobs=jobs or -1):
            yield
    finally:
        if started:
            ray.shutdown()


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches every process of a terminal; the parent alone ends the sweep."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
