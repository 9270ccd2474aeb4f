"""Ask the driver for the facts that planning needs; nothing is assumed."""

import ctypes
import functools

from kernels.plan import Device

# Attribute numbers of cuDeviceGetAttribute (CUdevice_attribute in cuda.h).
ATTRIBUTES = {
    "major": 75,
    "minor": 76,
    "sm_count": 16,
    "warp_size": 10,
    "max_threads_per_sm": 39,
    "max_programs_per_sm": 106,
    "registers_per_sm": 82,
    "registers_per_program": 12,
    "shared_memory_per_sm_bytes": 81,
    "shared_memory_per_program_bytes": 97,
    "reserved_shared_memory_per_program_bytes": 111,
}

# Triton's interpreter runs programs one after another: one SM with one place.
INTERPRETER = Device(
    capability="none",
    sm_count=1,
    warp_size=32,
    max_warps_per_sm=8,
    max_programs_per_sm=1,
    registers_per_sm=65536,
    registers_per_program=65536,
    shared_memory_per_sm_bytes=1 << 24,
    shared_memory_per_program_bytes=1 << 24,
    reserved_shared_memory_per_program_bytes=0,
)


@functools.cache
def facts(index: int) -> Device:
    """Facts of CUDA device `index`. RuntimeError if the driver does not answer."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RuntimeError(f"the CUDA driver cannot be loaded: {error}") from error
    found = {}
    for name, number in ATTRIBUTES.items():
        value = ctypes.c_int()
        status = driver.cuDeviceGetAttribute(ctypes.byref(value), number, index)
        if status:
            raise RuntimeError(f"the CUDA driver gave error {status} for {name}")
        found[name] = value.value
    threads = found.pop("max_threads_per_sm")
    return Device(
        capability=f"{found.pop('major')}.{found.pop('minor')}",
        max_warps_per_sm=threads // found["warp_size"],
        **found,
    )
