"""Hypothesis profiles and common fixtures.

`HYPOTHESIS_PROFILE=nightly pytest` searches long and at random; the default `dev` profile is quick
and draws the same examples in every run.
"""

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent

slow_draws_are_fine = [
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.data_too_large,
]

settings.register_profile(
    "dev",
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=slow_draws_are_fine,
)
settings.register_profile(
    "nightly",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    suppress_health_check=slow_draws_are_fine,
)
profile = os.environ.get("HYPOTHESIS_PROFILE", "dev")
settings.load_profile(profile)


def pytest_configure(config: pytest.Config) -> None:
    # Background jobs of a shell ignore SIGINT, and programs that tests start would inherit this.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.pluginmanager.hasplugin("xdist"):
        config.addinivalue_line(
            "markers", "xdist_group: the worker of pytest-xdist that runs a test"
        )
    if profile == "nightly":
        import pywrapfst  # noqa: F401  (the nightly run must not skip the comparison)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests with common fixtures into groups that one worker of pytest-xdist runs."""
    for item in items:
        if item.get_closest_marker("serial"):
            item.add_marker(pytest.mark.xdist_group("serial"))
        elif "recipes" in item.path.relative_to(TESTS).parts:
            # Their fixtures train models, once per module.
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_collection_finish(session: pytest.Session) -> None:
    # pytest-xdist changes private attributes of pytest, and would not group any more in silence.
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if session.config.getoption("loadgroup", False) and grouped and "@" not in grouped[0].nodeid:
        raise pytest.UsageError("pytest-xdist must group tests, but it does not; use pytest<9.2")
    # The workers of pytest-xdist have about one processor each. The threads of arcgrad
    # stay: they sleep without work, and most tests of batches check them.
    if "PYTEST_XDIST_WORKER" in os.environ and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def threads(threshold):
    """`set_num_threads`, with the earlier number restored after the test.

    Batches of any size use the threads.
    """
    import arcgrad as ag

    threshold("small_batch", 0)
    before = ag.get_num_threads()
    yield ag.set_num_threads
    ag.set_num_threads(before)


@pytest.fixture
def threshold():
    """`threshold(name, value)` sets, for one test, a size above which another code path runs."""
    from arcgrad import _core

    before = {}

    def change(name, value):
        before.setdefault(name, old := _core.set_threshold(name, value))
        return old

    yield change
    for name, value in before.items():
        _core.set_threshold(name, value)


@pytest.fixture
def one_torch_thread():
    """One thread of torch: on a busy machine several wait for one another."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
