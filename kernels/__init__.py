"""Forward, dX and dW of a matrix multiplication in Triton.

What stands in `__all__` loads on first use, so that `kernels.plan` can be read where
neither torch nor Triton is installed.
"""

from importlib import import_module, metadata

# Where each name comes from. No module may have the name of a function: importing it
# would put the module in the function's place.
SOURCES = {
    "Linear": "layers",
    "linear": "layers",
    "matmul": "ops",
    "matmul_dw": "ops",
    "matmul_dx": "ops",
    "tune": "fast.tune",
}
__all__ = [*SOURCES]

# Each torch release and the Triton it is built with; both ends are tested.
SUPPORTED_PAIRS = {"2.11": "3.6", "2.12": "3.7", "2.13": "3.7"}


def check_versions(torch_version: str, triton_version: str) -> None:
    """ImportError, in a sentence that names the pair, if it is not supported."""
    torch_minor = ".".join(torch_version.split(".")[:2])
    triton_minor = ".".join(triton_version.split(".")[:2])
    if SUPPORTED_PAIRS.get(torch_minor) != triton_minor:
        pairs = ", ".join(f"{a} with {b}" for a, b in SUPPORTED_PAIRS.items())
        raise ImportError(
            f"torch {torch_version} with triton {triton_version} is not a supported "
            f"pair; torch with triton must be one of: {pairs}"
        )


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module 'kernels' has no attribute {name!r}")
    check_versions(metadata.version("torch"), metadata.version("triton"))
    module = import_module(f"kernels.{SOURCES[name]}")
    globals()[name] = getattr(module, name)
    return globals()[name]
