"""Facts of the device: asked for, never assumed."""

import ctypes

import pytest

from kernels import device
from kernels.plan import resident_programs


def test_no_driver(monkeypatch):
    """Without a CUDA driver, one sentence says so."""

    def fail(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    with pytest.raises(RuntimeError, match=r"^the CUDA driver cannot be loaded: .*$"):
        device.facts.__wrapped__(0)


@pytest.mark.gpu
@pytest.mark.kernels("forward", "dx", "dw", "reduce")
def test_facts_are_the_frameworks():
    """What the driver says of the device is what torch says of it."""
    import torch

    facts = device.facts(0)
    properties = torch.cuda.get_device_properties(0)
    assert facts.sm_count == properties.multi_processor_count
    assert facts.warp_size == properties.warp_size
    threads = facts.max_warps_per_sm * facts.warp_size
    assert threads == properties.max_threads_per_multi_processor
    assert facts.registers_per_sm == properties.regs_per_multiprocessor
    shared = facts.shared_memory_per_sm_bytes
    assert shared == properties.shared_memory_per_multiprocessor
    shared = facts.shared_memory_per_program_bytes
    assert shared == properties.shared_memory_per_block_optin


@pytest.mark.gpu
@pytest.mark.kernels("forward", "dw", "reduce")
def test_resident_programs_are_the_drivers(launches):
    """Our count of resident programs is that of the driver's occupancy call.

    xmartlabs/cuda-calculator#1
    """
    import torch

    from tests.kernels.contract import TILES, compute, operand, small_tile, tile_of

    x, w = operand((33, 35), torch.float16), operand((35, 37), torch.float16)
    for blocks in TILES:
        compute("forward", x, w, tile=tile_of("forward", *blocks))
    tile = small_tile("dw", (33, 35, 35))
    compute("dw", x, x, split_t=3, reduction="workspace", tile=tile)
    driver = ctypes.CDLL("libcuda.so.1")
    facts = device.facts(0)
    for launch in launches:
        compiled = launch["compiled"]
        warps, shared = compiled.metadata.num_warps, compiled.metadata.shared
        counted = ctypes.c_int()
        status = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(counted),
            ctypes.c_void_p(compiled.function),
            warps * facts.warp_size,
            ctypes.c_size_t(shared),
        )
        assert status == 0
        ours = resident_programs(compiled.n_regs, shared, warps, facts)
        assert ours == counted.value, launch["kernel"]
