"""What the compiler makes of the kernels, for GPUs that are not here.

Every launch of the host API at a planned shape is compiled and looked at: on fake
tensors, under a fake driver for each target. Registers and shared memory are what
this environment's Triton takes; a recording holds what its own took.
"""

import contextlib
import functools
import re
import subprocess
from dataclasses import dataclass, replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import MockTensor

from kernels import device, host, matmul, matmul_dw, matmul_dx
from kernels.plan import (
    Device,
    choose_tile,
    expected_resident,
    resident_programs,
    shared_memory_bytes,
)
from tests.kernels.contract import LAUNCHING, fp32_precision
from tests.kernels.test_plan import H200

# What a program of each target may take of shared memory.
SHARED_MEMORY_KIB = {"sm_80": 163, "sm_90": 227, "sm_100": 227, "gfx942": 64}
CUDA_TARGETS = ("sm_80", "sm_90", "sm_100")
T, K, N = 8192, 1024, 1024

every_target = pytest.mark.parametrize("target", SHARED_MEMORY_KIB)
every_cuda_target = pytest.mark.parametrize("target", CUDA_TARGETS)


@dataclass(frozen=True)
class FakeDriver:
    """As much of a driver as compiling asks for."""

    target: GPUTarget

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return hash(self.target)  # Triton's cache in memory is by device

    def get_current_stream(self, device):
        return 0


class CompiledKernel:
    """In a kernel's place in the host API: compiles what it would launch."""

    def __init__(self, name, kernel, log):
        self.name, self.kernel, self.log = name, kernel, log

    def __getitem__(self, grid):
        def compile_it(*args, **constants):
            args = [
                MockTensor(arg.dtype) if isinstance(arg, torch.Tensor) else arg
                for arg in args
            ]
            compiled = self.kernel.warmup(*args, grid=grid, **constants)
            self.log.append((self.name, compiled))

        return compile_it


@functools.cache
def compiled(target, dtype=torch.bfloat16, limit_kib=None, precision="ieee"):
    """{what it does: kernel} of all launches of the host API, for `target`."""
    if target.startswith("sm_"):
        gpu = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    else:
        gpu = GPUTarget("hip", target, 64)
    facts = planned_device(target, limit_kib or SHARED_MEMORY_KIB[target])
    log = []

    def launched(what, call, *args, **choices):
        before = len(log)
        call(*args, **choices)
        for name, kernel in log[before:]:
            found[f"{what}, reduced" if name == "reduce" else what] = kernel

    found = {}
    with (
        pytest.MonkeyPatch.context() as patch,
        FakeTensorMode(),
        fp32_precision(precision),
    ):
        for name, module in LAUNCHING.items():
            kernel = CompiledKernel(name, getattr(module, f"{name}_kernel"), log)
            patch.setattr(module, f"{name}_kernel", kernel)
        patch.setattr(host, "on_device", lambda tensor: contextlib.nullcontext())
        patch.setattr(host, "_share_memory", lambda out, operand: False)
        patch.setattr(host, "check_memory", lambda **_: None)
        patch.setattr(device, "facts", lambda index: facts)
        patch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
        driver.set_active(FakeDriver(gpu))
        try:
            x, w, dy, dw = (
                torch.empty(shape, dtype=dtype, device="cuda")
                for shape in ((T, K), (K, N), (T, N), (K, N))
            )
            dw = dw.float()
            launched("forward", matmul, x, w, implementation="lesson")
            launched("dx", matmul_dx, dy, w, implementation="lesson")
            split = {"out": dw, "split_t": 4}
            launched("dw", matmul_dw, x, dy, split_t=1)
            launched("dw, atomic", matmul_dw, x, dy, reduction="atomic", **split)
            launched("dw, workspace", matmul_dw, x, dy, reduction="workspace", **split)
            launched(
                "dw, accumulated",
                matmul_dw,
                x,
                dy,
                mode="accumulate",
                reduction="workspace",
                **split,
            )
        finally:
            driver.set_active(None)  # whatever there really is, when asked for
    return found


def planned_device(target, limit_kib) -> Device:
    number = re.fullmatch(r"sm_(\d+)(\d)", target)
    return replace(
        H200,
        capability=".".join(number.groups()) if number else "none",
        shared_memory_per_program_bytes=limit_kib * 1024,
    )


def products(kernels):
    """(op, kernel) of the kernels that multiply."""
    for what, kernel in kernels.items():
        if not what.endswith("reduced"):
            yield what.split(",")[0], kernel


def cuobjdump(kernel, folder) -> dict[str, int]:
    """What the cubin says that a thread takes: REG, STACK, LOCAL."""
    path = folder / "kernel.cubin"
    path.write_bytes(kernel.asm["cubin"])
    command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(n) for name, n in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text)}


def loop(ttgir: str) -> str:
    """The body of the only loop, the one over the contracted dimension."""
    (body,) = re.findall(r"scf\.for .*?\n    } ", ttgir, re.DOTALL)
    return body


@pytest.mark.parametrize(
    "target, dtype",
    [(target, torch.bfloat16) for target in CUDA_TARGETS] + [("sm_90", torch.float32)],
    ids=str,
)
def test_nothing_spills(target, dtype, tmp_path):
    """What a thread keeps, it keeps in registers: no stack, no local memory."""
    for what, kernel in compiled(target, dtype).items():
        usage = cuobjdump(kernel, tmp_path)
        assert (usage["STACK"], usage["LOCAL"]) == (0, 0), what


def test_nothing_spills_on_amd():
    """As much for a GPU of another maker, which has no run-time support here."""
    for what, kernel in compiled("gfx942").items():
        text = kernel.asm["amdgcn"]
        spills = re.findall(r"\.(?:vgpr_spill_count|sgpr_spill_count): +(\d+)", text)
        scratch = re.findall(r"\.private_segment_fixed_size: +(\d+)", text)
        assert {*spills, *scratch} == {"0"}, what


@every_target
def test_products_run_on_tensor_cores(target):
    """16-bit products use each target's own matrix instructions."""
    instruction = {
        "sm_80": ("ptx", "mma.sync"),
        "sm_90": ("ptx", "wgmma.mma_async"),
        "sm_100": ("ptx", "tcgen05.mma"),
        "gfx942": ("amdgcn", "v_mfma"),
    }
    language, name = instruction[target]
    for op, kernel in products(compiled(target)):
        assert name in kernel.asm[language], op


def test_fp32_products_are_not_rounded_unasked():
    """fp32 keeps off the tensor cores, but where the framework allows TF32.

    triton-lang/triton#1800
    """
    for op, kernel in products(compiled("sm_90", torch.float32)):
        assert "mma" not in kernel.asm["ptx"], op
    for op, kernel in products(compiled("sm_90", torch.float32, precision="tf32")):
        assert re.search(r"wgmma\.mma_async.*\.tf32\.tf32", kernel.asm["ptx"]), op


@every_target
def test_shared_memory_is_as_planned(target):
    """A program takes what the plan reckons with, and no more than there is.

    On sm_90 to the byte; sm_80 keeps one stage less, sm_100 adds its barriers.
    """
    facts = planned_device(target, SHARED_MEMORY_KIB[target])
    for op, kernel in products(compiled(target)):
        taken, limit = kernel.metadata.shared, facts.shared_memory_per_program_bytes
        planned = shared_memory_bytes(op, choose_tile(op, 2, facts), 2)
        assert taken <= limit, op
        assert taken == planned if target == "sm_90" else taken <= planned + 64, op


@pytest.mark.parametrize("limit_kib", (48, 64, 99, 163))
def test_shared_memory_of_smaller_devices(limit_kib):
    """The planned tile compiles to what a device with less shared memory has.

    triton-lang/triton#8182
    """
    for op, kernel in products(compiled("sm_90", limit_kib=limit_kib)):
        assert kernel.metadata.shared <= limit_kib * 1024, op


def test_resident_programs_of_a_split_are_as_planned(tmp_path):
    """The split is planned for as many programs an SM as then are resident."""
    expected = expected_resident("dw", choose_tile("dw", 2, H200), 2, H200)
    kernels = compiled("sm_90")
    for what in ("dw", "dw, atomic", "dw, workspace"):
        registers = cuobjdump(kernels[what], tmp_path)["REG"]
        taken = kernels[what].metadata
        resident = resident_programs(registers, taken.shared, taken.num_warps, H200)
        assert resident == expected, what


def test_transposed_tiles_are_not_converted():
    """wgmma reads both operands where the copies put them, the swapped ones too."""
    for op, kernel in products(compiled("sm_90")):
        body = loop(kernel.asm["ttgir"])
        assert "ttg.convert_layout" not in body, op
        both = r"ttng\.warp_group_dot .*: !ttg\.memdesc<.*> \* !ttg\.memdesc<"
        assert re.search(both, body), op


@pytest.mark.parametrize("target", ("sm_80", "sm_90"))
def test_operands_come_in_copies_of_16_bytes(target):
    """Contiguous operands are copied to shared memory in the widest pieces."""
    for op, kernel in products(compiled(target)):
        copies = re.findall(
            r"cp\.async\.c[ag]\.shared\.global .*?, (0x\w+),", kernel.asm["ptx"]
        )
        assert set(copies) == {"0x10"}, op


@every_target
def test_addresses_are_64_bit(target):
    """No offset is multiplied or added up in 32 bits.

    triton-lang/triton#5022, deepspeedai/DeepSpeed#8590
    """
    for what, kernel in compiled(target).items():
        ttir = kernel.asm["ttir"]
        products = re.findall(r"arith\.muli .* : (\S+)", ttir)
        offsets = re.findall(r"tt\.addptr .*, (\S+) loc", ttir)
        assert offsets and products, what
        assert all(re.search(r"i64\b", kind) for kind in products + offsets), what


@every_cuda_target
def test_additions_into_a_gradient(target):
    """Relaxed fp32 additions of four at a time where there are such, read by none.

    triton-lang/triton#1387
    """
    kernels = compiled(target)
    for what in ("forward", "dx", "dw", "dw, workspace", "dw, workspace, reduced"):
        assert not re.search(r"\b(atom|red)\.global", kernels[what].asm["ptx"]), what
    added = re.findall(r"\b(?:atom|red)\.global\S+", kernels["dw, atomic"].asm["ptx"])
    scope = "global.gpu.relaxed.add"
    wide = "f32" if target == "sm_80" else "v4.f32"
    assert {name.split(".", 1)[1] for name in added} == {f"{scope}.{wide}"}


def test_additions_return_nothing():
    """The machine code of sm_90 adds without waiting for what was there."""
    sass = compiled("sm_90")["dw, atomic"].asm["sass"]
    assert re.search(r"\bREDG?\.E\.ADD", sass)
    assert not re.search(r"\bATOMG?\.", sass)
