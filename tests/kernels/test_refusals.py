"""What the host API refuses: in one sentence, before anything is allocated."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernels import host, ops
from kernels.fast import ops as fast
from kernels.plan import Tile
from tests.kernels.contract import DEVICE, OPS, compute, shapes

SHAPE = 6, 4, 5
OPERANDS = {"forward": ("x", "w"), "dx": ("dy", "w"), "dw": ("x", "dy")}

every_op = pytest.mark.parametrize("op", OPS)


def on_a_device(test):
    """For a test that needs a legal device, but launches nothing."""
    return pytest.mark.interpreter(pytest.mark.gpu(test))


def ones(op, device=None):
    """Both operands and an output."""
    device = device or DEVICE
    return [torch.ones(shape, device=device) for shape in shapes(op, SHAPE)]


def assert_refused(error, name, op, a, b, **choices):
    """Refused with the right type, in one sentence that begins with the argument."""
    lessons = {"tile", "split_t"} & choices.keys()
    for implementation in ("lesson",) if lessons else ("fast", "lesson"):
        with pytest.raises(error) as caught:
            compute(op, a, b, **{"implementation": implementation, **choices})
        assert type(caught.value) is error
        message = str(caught.value)
        assert message.startswith(f"{name} "), message
        assert "\n" not in message and len(message) < 160, message


@pytest.fixture(autouse=True)
def nothing_happens(monkeypatch, poisoned_allocations):
    """Nothing is allocated, zeroed, copied or launched before a refusal."""

    def happened(*args, **choices):
        raise AssertionError("not refused in time")

    for module, name in ((ops, "_launch"), (fast, "_prepare"), (host, "sum_slices")):
        monkeypatch.setattr(module, name, happened)
    for name in ("new_empty", "new_zeros", "zero_", "contiguous"):
        monkeypatch.setattr(torch.Tensor, name, happened)


# Operands


@on_a_device
@every_op
@pytest.mark.parametrize("position", (0, 1))
@pytest.mark.parametrize(
    "error, spoil",
    (
        pytest.param(TypeError, lambda t: t.tolist(), id="list"),
        pytest.param(TypeError, lambda t: t.int(), id="int32"),
        pytest.param(TypeError, lambda t: t.double(), id="float64"),
        pytest.param(TypeError, lambda t: t.to_sparse(), id="sparse"),
        pytest.param(ValueError, lambda t: t[0], id="1-D"),
        pytest.param(ValueError, lambda t: t[None], id="3-D"),
        pytest.param(ValueError, lambda t: t.to("meta"), id="meta"),
        pytest.param(
            ValueError, lambda t: torch.complex(t, t).conj().imag, id="negated"
        ),
    ),
)
def test_operand(op, position, error, spoil):
    """An operand of another type, dtype, layout, rank or device is named."""
    operands = ones(op)[:2]
    operands[position] = spoil(operands[position])
    assert_refused(error, OPERANDS[op][position], op, *operands)


@on_a_device
@every_op
def test_operands_of_two_dtypes(op):
    """The second operand must have the dtype of the first; nothing is cast.

    fla-org/flash-linear-attention#1264
    """
    a, b, _ = ones(op)
    assert_refused(TypeError, OPERANDS[op][1], op, a, b.half())


@on_a_device
@every_op
def test_operands_that_do_not_fit(op):
    """The second operand must agree with the first on the contracted dimension."""
    a, b, _ = ones(op)
    b = b[:, :-1] if op == "dx" else b[:-1]
    assert_refused(ValueError, OPERANDS[op][1], op, a, b)


# Output


@on_a_device
@every_op
@pytest.mark.parametrize(
    "error, spoil",
    (
        pytest.param(TypeError, lambda t: t.tolist(), id="list"),
        pytest.param(TypeError, lambda t: t.int(), id="int32"),
        pytest.param(TypeError, lambda t: t.double(), id="float64"),
        pytest.param(ValueError, lambda t: t[:-1], id="shape"),
        pytest.param(ValueError, lambda t: t.T, id="transposed"),
        pytest.param(ValueError, lambda t: t.to("meta"), id="meta"),
        pytest.param(ValueError, lambda t: t.requires_grad_(), id="requires grad"),
        pytest.param(ValueError, lambda t: t[:1].expand_as(t), id="expanded"),
        pytest.param(
            ValueError, lambda t: t.as_strided(t.shape, (2, 1)), id="overlapping"
        ),
    ),
)
def test_output(op, error, spoil):
    """An output of another type, dtype, shape or device, or that overlaps itself."""
    a, b, out = ones(op)
    assert_refused(error, "out", op, a, b, out=spoil(out))
    assert (out == 1).all()


@on_a_device
@every_op
@pytest.mark.parametrize("position", (0, 1))
def test_output_in_an_operand(op, position):
    """An output that shares memory with an operand would change it while it is read."""
    operands = ones(op)[:2]
    _, _, (rows, columns) = shapes(op, SHAPE)
    a_shape = operands[position].shape
    memory = torch.ones(200, device=DEVICE)
    operands[position] = memory[:60].as_strided(a_shape, (a_shape[1], 1))
    out = memory[15:].as_strided((rows, columns), (columns, 1))
    assert_refused(ValueError, "out", op, *operands, out=out)
    assert (memory == 1).all()


@on_a_device
@pytest.mark.kernels("dw")
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
def test_gradient_in_16_bits(dtype):
    """dW is summed and kept in fp32: no gradient of 16 bits.

    triton-lang/triton#1387
    """
    x, dy, out = ones("dw")
    assert_refused(TypeError, "out", "dw", x.to(dtype), dy.to(dtype), out=out.to(dtype))


# Choices


@on_a_device
@pytest.mark.kernels("dw")
@pytest.mark.parametrize(
    "name, choices",
    (
        ("mode", {"mode": "add"}),
        ("mode", {"mode": None}),
        ("reduction", {"reduction": "sum"}),
        ("split_t", {"split_t": 0}),
        ("split_t", {"split_t": -1}),
        ("split_t", {"split_t": 65536}),
        ("split_t", {"split_t": 2.0}),
        ("split_t", {"split_t": 3, "reduction": "none"}),
    ),
)
def test_choice(name, choices):
    """A mode, reduction or split that there is none of is named, the gradient kept."""
    x, dy, out = ones("dw")
    assert_refused(ValueError, name, "dw", x, dy, out=out, **choices)
    assert (out == 1).all()


@on_a_device
@every_op
def test_implementation(op):
    """One of two; and what the lesson's kernels alone take asks for them."""
    a, b, _ = ones(op)
    tile = Tile(64, 64, 64, num_warps=4, num_stages=2)
    assert_refused(ValueError, "implementation", op, a, b, implementation="vendor")
    assert_refused(ValueError, "tile", op, a, b, implementation="fast", tile=tile)


@on_a_device
@pytest.mark.kernels("dw")
def test_accumulate_into_nothing():
    """There must be a gradient to accumulate into."""
    x, dy, _ = ones("dw")
    assert_refused(ValueError, "out", "dw", x, dy, mode="accumulate")


@on_a_device
@every_op
@pytest.mark.parametrize(
    "tile",
    (
        Tile(64, 48, 64, num_warps=4, num_stages=2),
        Tile(64, 64, 8, num_warps=4, num_stages=2),
        Tile(0, 64, 64, num_warps=4, num_stages=2),
        Tile(64, 64, 64, num_warps=3, num_stages=2),
        Tile(64, 64, 64, num_warps=4, num_stages=0),
    ),
)
def test_tile(op, tile):
    """Blocks are powers of two from 16, warps powers of two, stages at least one."""
    a, b, _ = ones(op)
    assert_refused(ValueError, "tile", op, a, b, tile=tile)


# Devices, without one


@every_op
def test_cpu_without_the_interpreter(op):
    """A tensor on the CPU is refused where no interpreter runs.

    deepseek-ai/DeepSeek-R1#493
    """
    a, b, _ = ones(op, device="cpu")
    assert_refused(ValueError, OPERANDS[op][0], op, a, b)


@every_op
def test_tensors_on_two_devices(op):
    """Operands and output on two GPUs are refused, whichever is current.

    triton-lang/triton#2441
    """
    with FakeTensorMode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that fakes have no memory: no key is made
        a, b, out = ones(op, device="cuda:0")
        elsewhere = ones(op, device="cuda:1")
        assert_refused(ValueError, OPERANDS[op][1], op, a, elsewhere[1])
        assert_refused(ValueError, "out", op, a, b, out=elsewhere[2])


@every_op
def test_no_bf16_before_capability_8(op, monkeypatch):
    """bf16 is refused, not compiled, where the hardware has none.

    ModelTC/LightLLM#1029
    """
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with FakeTensorMode():
        a, b, _ = (t.bfloat16() for t in ones(op, device="cuda"))
        assert_refused(TypeError, OPERANDS[op][0], op, a, b)
