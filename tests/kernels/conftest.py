"""Where each test runs, and which kernels it vouches for.

Two marks say where a test's kernels run, and a test may carry both:
`interpreter`, on the CPU in a process with TRITON_INTERPRET=1, and `gpu`, on a
CUDA device. The same body then runs in fp16 and fp32 there, and in bf16, fp16
and fp32 here. A test with neither mark runs no kernel.

`kernels("dw", "reduce")` says which kernels a test exercises; it stands in the
test's user properties (in a JUnit report, the property `kernels`), so that a
recording charts no point of a kernel that failed.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent
# "fast" stands for all of kernels/fast, whose points name no single one.
KERNELS = ("forward", "dx", "dw", "reduce", "fast")
# As Triton reads it, which is not imported here: not every test needs it.
ON = ("1", "true", "yes", "on", "y")
INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ON

# The same examples in every run, however long one takes.
settings.register_profile("kernels", deadline=None, derandomize=True)
settings.load_profile("kernels")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "kernels(*names): the kernels that this test exercises"
    )


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(items):
    ours = [item for item in items if item.path.parent == HERE]
    for item in ours:
        named = {name for mark in item.iter_markers("kernels") for name in mark.args}
        if unknown := named.difference(KERNELS):
            raise pytest.UsageError(f"{item.nodeid}: no such kernels: {unknown}")
        if item.get_closest_marker("gpu") and not named:
            raise pytest.UsageError(f"{item.nodeid}: say which kernels it exercises")
        if named:
            ordered = ",".join(name for name in KERNELS if name in named)
            item.user_properties.append(("kernels", ordered))
    if ours == items != [] and all(_needs(i) == "a CUDA device" for i in ours):
        raise pytest.UsageError("these tests need a CUDA device, torch sees none")


def pytest_runtest_setup(item):
    if need := _needs(item):
        pytest.skip(f"needs {need}")


def _needs(item) -> str | None:
    """What is missing for a test to run in this process."""
    interpreter, gpu = map(item.get_closest_marker, ("interpreter", "gpu"))
    if INTERPRETED:
        return None if interpreter else "a process without TRITON_INTERPRET"
    if gpu:
        return None if _cuda_is_available() else "a CUDA device"
    return "TRITON_INTERPRET=1" if interpreter else None


def _cuda_is_available() -> bool:
    import torch  # it takes seconds, and planning does without

    return torch.cuda.is_available()


@pytest.fixture(scope="session", autouse=True)
def memory_of_a_consumer_card():
    """At most 14 GiB of GPU memory, so that smaller cards run the same tests."""
    if not INTERPRETED and _cuda_is_available():
        import torch

        _, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction(min(1, 14 * 2**30 / total))


@pytest.fixture(scope="session", autouse=True)
def nothing_tuned(tmp_path_factory):
    """No user's tuned plans are taken, and none are added to them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def poisoned_allocations(request, monkeypatch):
    """Memory that nobody wrote to holds NaN, wherever kernels run."""
    if not any(map(request.node.get_closest_marker, ("interpreter", "gpu"))):
        return
    import torch

    def poisoned(allocate):
        def allocate_and_poison(*args, **kwargs):
            tensor = allocate(*args, **kwargs)
            with torch.no_grad():
                return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

        return allocate_and_poison

    for owner, name in (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch, "empty_strided"),
        (torch.Tensor, "new_empty"),
        (torch.Tensor, "new_empty_strided"),
    ):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))


@pytest.fixture
def launches(monkeypatch):
    """Every launch of the host API: kernel, grid, constants, what was compiled."""
    from tests.kernels.contract import record_launches

    return record_launches(monkeypatch)
