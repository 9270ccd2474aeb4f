"""What importing `kernels` does, and with what it works."""

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import kernels

ROOT = Path(kernels.__file__).parents[1]


def run(code: str) -> str:
    """What a fresh Python prints. A driver that it loads ends it."""
    guard = (
        "import sys\n"
        "def audit(event, args):\n"
        "    if event == 'ctypes.dlopen' and 'libcuda.so' in str(args[0]):\n"
        "        raise SystemExit('a driver was loaded')\n"
        "sys.addaudithook(audit)\n"
    )
    command = [sys.executable, "-c", guard + code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_planning_needs_neither_torch_nor_triton():
    """`kernels.plan` and `kernels.promises` serve the site, too, built with neither."""
    loaded = run(
        "import kernels, kernels.plan, kernels.promises, kernels.device\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    assert {"torch", "triton", "numpy"}.isdisjoint(loaded.split())


def test_importing_kernels_touches_no_driver():
    """The host API imports on a machine without a GPU; only a launch needs one.

    deepseek-ai/DeepSeek-R1#493
    """
    code = (
        "from kernels import *\n"
        "print(*sorted({f.__module__ for f in (matmul, matmul_dx, matmul_dw, tune)}))\n"
        "import kernels.layers\n"
        "print(linear.__module__, Linear.__module__, kernels.linear is linear)"
    )
    assert run(code) == (
        "kernels.fast.tune kernels.ops\nkernels.layers kernels.layers True\n"
    )


def test_nothing_is_tuned():
    """No kernel tunes itself: tuning runs would write into callers' buffers.

    Traps show what then happens. triton-lang/triton#4217,
    triton-lang/triton#2183
    """
    for path in sorted((ROOT / "kernels").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", None) or getattr(node, "id", None)
            assert name not in ("autotune", "heuristics", "Autotuner"), path


def test_installed_pair_is_supported():
    """The torch and Triton of this environment belong together."""
    kernels.check_versions(metadata.version("torch"), metadata.version("triton"))


@pytest.mark.parametrize("torch, triton", sorted(kernels.SUPPORTED_PAIRS.items()))
def test_both_ends_of_the_supported_pairs(torch, triton):
    """Patch releases and local labels of a supported pair pass."""
    kernels.check_versions(f"{torch}.1+cu130", f"{triton}.0")


@pytest.mark.parametrize(
    "torch, triton", (("2.13.0", "3.9.0"), ("2.10.0", "3.5.1"), ("2.15.0", "3.9.0"))
)
def test_unsupported_pair(torch, triton):
    """A pair that does not belong together is named, and so are those that do.

    unslothai/unsloth#2403
    """
    with pytest.raises(ImportError) as error:
        kernels.check_versions(torch, triton)
    message = str(error.value)
    assert f"torch {torch} with triton {triton}" in message
    assert "2.11 with 3.6" in message and "2.13 with 3.7" in message
    assert "\n" not in message


def test_pair_is_checked_before_anything_is_imported():
    """An unsupported pair ends in that sentence, not in an import error of theirs."""
    code = (
        "from importlib import metadata\n"
        "metadata.version = lambda name: '9.9.9'\n"
        "import kernels\n"
        "try:\n"
        "    kernels.matmul\n"
        "except ImportError as error:\n"
        "    print('9.9.9 with triton 9.9.9' in str(error), 'torch' in sys.modules)\n"
    )
    assert run(code) == "True False\n"


def test_what_an_older_torch_lacks():
    """linear needs none of the newer helpers; the products, no operators at all.

    jwohlwend/boltz#555
    """
    code = (
        "import torch\n"
        "lacking = ['triton_op', 'wrap_triton']\n"
        "for name in lacking:\n"
        "    delattr(torch.library, name)\n"
        "from kernels import matmul, matmul_dx, matmul_dw, tune\n"
        "print('kernels.layers' in sys.modules)\n"
        "from kernels import linear, Linear\n"
        "print(linear.__module__)"
    )
    assert run(code) == "False\nkernels.layers\n"


def test_unknown_name():
    """A name that the package lacks is an AttributeError, as anywhere."""
    with pytest.raises(AttributeError, match="'kernels' has no attribute 'matmull'"):
        _ = kernels.matmull
