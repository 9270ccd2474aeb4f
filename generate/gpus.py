"""GPUs that nobody recorded yet, as their makers' documents describe them.

Nothing here was measured. What planning needs of NVIDIA's stands, by compute
capability, in the table "Technical specifications" of the CUDA C++ Programming
Guide. Rates are dense, without sparsity, with fp32 accumulation.
"""

from dataclasses import dataclass, replace

from kernels.plan import Device

Source = tuple[str, str]

CUDA_GUIDE: Source = (
    "CUDA C++ Programming Guide, technical specifications per compute capability",
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities",
)


@dataclass(frozen=True)
class Datasheet:
    """device is None where the model of kernels.plan does not apply.

    peak_tflops: by the bytes of an input element. fp32 is that of ordinary cores,
    whose products are exact as those of the kernels are.
    """

    id: str
    name: str
    units: str
    sm_count: int
    peak_tflops: dict[int, float]
    bandwidth_tbps: float
    sources: tuple[Source, ...]
    device: Device | None = None


HOPPER = Device(
    capability="9.0",
    sm_count=132,
    warp_size=32,
    max_warps_per_sm=64,
    max_programs_per_sm=32,
    registers_per_sm=65536,
    registers_per_program=65536,
    shared_memory_per_sm_bytes=228 * 1024,
    shared_memory_per_program_bytes=227 * 1024,
    reserved_shared_memory_per_program_bytes=1024,
)
AMPERE = replace(
    HOPPER,
    capability="8.0",
    sm_count=108,
    shared_memory_per_sm_bytes=164 * 1024,
    shared_memory_per_program_bytes=163 * 1024,
)
ADA = replace(
    HOPPER,
    capability="8.9",
    sm_count=128,
    max_warps_per_sm=48,
    max_programs_per_sm=24,
    shared_memory_per_sm_bytes=100 * 1024,
    shared_memory_per_program_bytes=99 * 1024,
)

DATASHEETS = (
    # NVIDIA H100 Tensor Core GPU Architecture, tables of H100 SXM5; its datasheet.
    Datasheet(
        id="h100-sxm",
        name="NVIDIA H100 SXM",
        units="SMs",
        sm_count=132,
        peak_tflops={2: 989.4, 4: 66.9},
        bandwidth_tbps=3.35,
        sources=(
            ("NVIDIA H100 datasheet", "https://www.nvidia.com/en-us/data-center/h100/"),
            CUDA_GUIDE,
        ),
        device=HOPPER,
    ),
    # NVIDIA A100 Tensor Core GPU datasheet, column "A100 80GB SXM".
    Datasheet(
        id="a100-sxm-80gb",
        name="NVIDIA A100 SXM 80GB",
        units="SMs",
        sm_count=108,
        peak_tflops={2: 312, 4: 19.5},
        bandwidth_tbps=2.039,
        sources=(
            ("NVIDIA A100 datasheet", "https://www.nvidia.com/en-us/data-center/a100/"),
            CUDA_GUIDE,
        ),
        device=AMPERE,
    ),
    # NVIDIA Ada GPU Architecture, appendix A, GeForce RTX 4090.
    Datasheet(
        id="rtx-4090",
        name="NVIDIA GeForce RTX 4090",
        units="SMs",
        sm_count=128,
        peak_tflops={2: 165.2, 4: 82.6},
        bandwidth_tbps=1.008,
        sources=(
            (
                "NVIDIA Ada GPU Architecture, appendix A",
                "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf",
            ),
            CUDA_GUIDE,
        ),
        device=ADA,
    ),
    # AMD Instinct MI300X Accelerator data sheet: 304 compute units, bf16 and fp32
    # matrix rates without sparsity, 5.3 TB/s.
    Datasheet(
        id="mi300x",
        name="AMD Instinct MI300X",
        units="compute units",
        sm_count=304,
        peak_tflops={2: 1307.4, 4: 163.4},
        bandwidth_tbps=5.3,
        sources=(
            (
                "AMD Instinct MI300X data sheet",
                "https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html",
            ),
        ),
    ),
)
