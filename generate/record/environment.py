"""Section `environment`: which GPU, which software, which conditions."""

import dataclasses
import hashlib
import platform

import torch
import triton

from generate.record.calls import ERROR_ROWS, INPUT_DISTRIBUTION
from generate.record.context import Context
from generate.record.nvml import MEMORY, SM, watts
from generate.record.timing import FLUSH_FACTOR, WARMUP_MS
from generate.schema import Environment, Gpu, Software


def steps(context: Context) -> int:
    return 1


def record(context: Context) -> Environment:
    properties = torch.cuda.get_device_properties(context.device)
    found, reason = context.nvml.answers(
        unit=("DeviceGetUUID",),
        clock_max_sm_mhz=("DeviceGetMaxClockInfo", SM),
        clock_max_memory_mhz=("DeviceGetMaxClockInfo", MEMORY),
        power_limit_w=("DeviceGetEnforcedPowerLimit",),
        mig_enabled=("DeviceGetMigMode",),
        driver=("SystemGetDriverVersion",),
    )
    driver, identity, mig = (
        found.pop(name) for name in ("driver", "unit", "mig_enabled")
    )
    found["power_limit_w"] = watts(found["power_limit_w"])
    gpu = Gpu(
        name=properties.name,
        unit=identity and hashlib.sha256(identity.encode()).hexdigest()[:12],
        **dataclasses.asdict(context.facts),
        memory_bytes=properties.total_memory,
        l2_cache_bytes=properties.L2_cache_size,
        **found,
        mig_enabled=None if mig is None else bool(mig[0]),
        nvml_reason=reason,
    )
    context.advance()
    return Environment(
        section="environment",
        **context.header,
        gpu=gpu,
        software=_software(driver),
        extent=context.extent,
        input_distribution=INPUT_DISTRIBUTION,
        cache_state=(
            f"cold L2: a buffer of {FLUSH_FACTOR} times its size is read before "
            "every timed call"
        ),
        warmup_ms=WARMUP_MS,
        error_rows=ERROR_ROWS,
    )


def _software(driver: str | None) -> Software:
    matmul = torch.backends.cuda.matmul
    setting = matmul.allow_bf16_reduced_precision_reduction
    return Software(
        driver=driver,
        cuda=torch.version.cuda,
        torch=torch.__version__,
        triton=triton.__version__,
        python=platform.python_version(),
        cublas=_cublas_version(),
        bf16_reduced_precision_reduction=bool(
            setting[0] if isinstance(setting, tuple) else setting
        ),
    )


def _cublas_version() -> str | None:
    from importlib import metadata

    for name in ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
