"""Hypothesis profiles and fixtures shared by the suite.

`HYPOTHESIS_PROFILE=nightly pytest` searches long and at random; the default `dev` profile is quick
and draws the same examples in every run.
"""

import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

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
    # A shell has jobs in the background ignore it, and so would the programs that tests start.
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
    """Groups of tests that one worker of pytest-xdist runs, with `--dist loadgroup`."""
    for item in items:
        if item.get_closest_marker("serial"):
            item.add_marker(pytest.mark.xdist_group("serial"))
        elif item.path.parent.name == "recipes":
            # Their fixtures train models, once per module.
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_collection_finish() -> None:
    # The workers of pytest-xdist have about one processor each. The threads of arcgrad stay: they
    # sleep when they find no work, and most tests of batches are about them.
    if "PYTEST_XDIST_WORKER" in os.environ and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def threads():
    """`set_num_threads`, with the earlier number restored after the test."""
    import arcgrad as ag

    before = ag.get_num_threads()
    yield ag.set_num_threads
    ag.set_num_threads(before)


@pytest.fixture
def threshold():
    """`threshold(name, value)` sets a size at which the code takes another path, for one test."""
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
    """On a busy machine the threads of torch wait for one another."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
