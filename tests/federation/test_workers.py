"""The pool of worker processes: order, failures, deaths."""

from __future__ import annotations

import os

import pytest

from rpdp.federation.workers import Forked, WorkerError, default_workers, make_pool


def test_jobs_go_to_free_workers_and_results_keep_their_order() -> None:
    pool = make_pool({"square": lambda value: (value**2, os.getpid())}, 3)
    assert isinstance(pool, Forked)
    try:
        results = pool.map("square", [(value,) for value in range(50)])
        assert pool.map("square", []) == []
    finally:
        pool.close()
    assert [value for value, _ in results] == [value**2 for value in range(50)]
    assert os.getpid() not in {process for _, process in results}


def test_a_pool_goes_on_after_a_job_that_failed() -> None:
    pool = make_pool({"divide": lambda value: 1 / value}, 2)
    try:
        with pytest.raises(WorkerError, match="ZeroDivisionError"):
            pool.map("divide", [(1,), (0,), (2,), (4,)])
        assert pool.map("divide", [(1,), (2,), (4,)]) == [1.0, 0.5, 0.25]
    finally:
        pool.close()


def test_a_worker_that_died_between_two_rounds_is_told_too() -> None:
    pool = make_pool({"die": lambda: os._exit(1), "one": lambda: 1}, 2)
    try:
        with pytest.raises(WorkerError, match="a worker process died"):
            pool.map("die", [()])
        with pytest.raises(WorkerError, match="a worker process died"):
            pool.map("one", [()] * 4)
    finally:
        pool.close()


def test_tiny_models_stay_in_this_process() -> None:
    assert default_workers(parameters=100, silos=10) == 1
    assert default_workers(parameters=10**6, silos=1) == 1
    assert 1 <= default_workers(parameters=10**6, silos=64) <= 64
