"""A sweep on two worker processes of each backend: one code path, one table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.sweep import sweep
from sim.sweep.backends import workers
from tests.sim.sweeps import small, table_bytes
from traces.errors import InputError


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The table that one process makes."""
    directory = tmp_path_factory.mktemp("alone")
    sweep(small(), directory, jobs=1)
    return table_bytes(directory)


def process(_: int) -> int:
    import time

    time.sleep(0.3)  # long enough that one worker cannot take them all
    return os.getpid()


def processes() -> set[int]:
    from joblib import Parallel, delayed

    return set(Parallel(batch_size=1)(delayed(process)(i) for i in range(6)))


def check(tmp_path: Path, alone: bytes, **options: object) -> None:
    with workers(**options):
        assert len(processes() - {os.getpid()}) == 2
    sweep(small(), tmp_path, **options)
    assert table_bytes(tmp_path) == alone


def test_loky(tmp_path, alone):
    check(tmp_path, alone, backend="loky", jobs=2)


@pytest.fixture
def dask_scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    local = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**local) as cluster:
        yield cluster.scheduler_address


@pytest.mark.dask
@pytest.mark.filterwarnings("default")  # of dask's own making
def test_a_dask_cluster_by_its_address(tmp_path, alone, dask_scheduler):
    check(tmp_path, alone, backend="dask", address=dask_scheduler)


@pytest.mark.dask
@pytest.mark.filterwarnings("default")
def test_dask_starts_a_cluster_of_its_own(tmp_path, alone):
    pytest.importorskip("distributed")
    sweep(small(), tmp_path, backend="dask", jobs=2)
    assert table_bytes(tmp_path) == alone


@pytest.mark.dask
@pytest.mark.filterwarnings("default")
def test_no_dask_scheduler_is_one_line(tmp_path):
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    with dask.config.set({"distributed.comm.timeouts.connect": "0.3s"}), pytest.raises(InputError, match="--address"):
        sweep(small(), tmp_path, backend="dask", address="tcp://127.0.0.1:9")


@pytest.fixture
def ray_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = pytest.importorskip("ray")
    context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield context.address_info["address"]
    ray.shutdown()


@pytest.mark.ray
@pytest.mark.filterwarnings("default")  # of ray's own making
def test_a_ray_cluster_by_its_address(tmp_path, alone, ray_cluster):
    check(tmp_path, alone, backend="ray", address=ray_cluster)


def test_a_backend_that_is_not_installed_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"ray is not installed; pip install 'draftlab\[sweep\]'"):
        sweep(small(), tmp_path, backend="ray")
