"""What the host API refuses: in one sentence, before anything is allocated.

`kernels.promises` says what; what it says of each refusal is tested at the end.
"""

import contextlib
import warnings
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernels import device, host, layers, ops, promises
from kernels.fast import ops as fast
from kernels.layers import linear
from kernels.plan import Tile
from kernels.promises import REFUSALS, ROWS, Refusal, promise
from tests.kernels.contract import DEVICE, OPS, compute, shapes
from tests.kernels.test_plan import H200

SHAPE = T, K, N = promises.REFUSED_AT
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

    class Kernel:
        __getitem__ = happened

    for module in (ops, fast, host):
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            monkeypatch.setattr(module, name, Kernel())
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
        Tile(64, 64, 64, num_warps=64, num_stages=2),
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
def test_tensors_on_two_devices(op, monkeypatch):
    """Operands and output on two GPUs are refused, whichever is current.

    triton-lang/triton#2441
    """
    monkeypatch.setattr(device, "facts", lambda index: H200)
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


# The table


@on_a_device
@pytest.mark.kernels("fast")
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{row.call}-{row.first}-{row.second}-{row.autocast}")
        for row in ROWS
        if isinstance(promise(row), Refusal)
    ],
)
def test_refused_row(row):
    """Dtypes that do not go together, or not at all; autocast casts three of them."""
    shapes = {"x": (T, K), "w": (K, N), "dy": (T, N), "weight": (N, K)}
    a, b = (
        torch.ones(shapes[name], device=DEVICE, dtype=getattr(torch, dtype))
        for name, dtype in zip(
            promises.OPERANDS[row.call], (row.first, row.second), strict=True
        )
    )
    autocast = contextlib.nullcontext()
    if row.autocast != "off":
        autocast = torch.autocast(DEVICE, dtype=getattr(torch, row.autocast))
    product = linear if row.call == "linear" else getattr(ops, row.call)
    with autocast:
        assert_as_said(promise(row), lambda: product(a, b))


def assert_as_said(refusal: Refusal, call):
    """One sentence, of the type and with the first words that the table says."""
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value).__name__ == refusal.error, message
    assert message.startswith(refusal.begins), message
    assert "\n" not in message and len(message) < 160, message


def freed(tensor):
    """As sharded training leaves a tensor that it has no need of for a while."""
    tensor.untyped_storage().resize_(0)
    return tensor


class Asked:
    """Ones to call matmul_dw, or linear, with; and what may not change."""

    def __init__(self, where):
        def ones(*shape):
            return torch.ones(shape, device=where)

        self.x, self.dy, self.grad = ones(T, K), ones(T, N), ones(K, N)
        self.weight = ones(N, K).requires_grad_()
        self.weight.grad = ones(N, K)
        self.weight.main_grad = ones(N, K)

    def dw(self, **changed):
        given = {"x": self.x, "dy": self.dy, "out": self.grad, "mode": "accumulate"}
        return ops.matmul_dw(**(given | changed))

    def linear(self, **changed):
        given = {"x": self.x, "weight": self.weight}
        return linear(**(given | changed))

    def linear_adding_to(self, main_grad=None):
        weight = self.weight.detach().clone().requires_grad_()
        if main_grad is None:
            main_grad = weight.detach()
        weight.main_grad = main_grad
        return linear(self.x, weight)

    def differentiate_twice(self):
        x = self.x.clone().requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(layers, "matmul", lambda x, w: x @ w)
            y = linear(x, self.weight)
        torch.autograd.grad(y.sum(), x, create_graph=True)


HERE = {
    "a tile that the shared memory does not hold": lambda a: a.dw(
        tile=Tile(512, 512, 512, num_warps=4, num_stages=99)
    ),
    "a tile of more warps than a program can have": lambda a: a.dw(
        tile=Tile(32, 32, 32, num_warps=64, num_stages=2)
    ),
    "a size just below 2³¹ in kernels of the lesson": lambda a: a.dw(
        x=a.x[:1].expand(2**31 - 1, K),
        dy=a.dy[:1].expand(2**31 - 1, N),
        implementation="lesson",
    ),
    "an operand that is no tensor": lambda a: a.dw(x=a.x.tolist()),
    "an operand that is sparse": lambda a: a.dw(x=a.x.to_sparse()),
    "an operand that is lazily negated": lambda a: a.dw(
        x=torch.complex(a.x, a.x).conj().imag
    ),
    "an operand whose memory was freed": lambda a: a.dw(x=freed(a.x)),
    "an operand of three dimensions": lambda a: a.dw(x=a.x[None]),
    "operands of different T": lambda a: a.dw(dy=a.dy[1:]),
    "an x of another K than the weight": lambda a: a.linear(x=a.x[:, 1:]),
    "a bias of another size": lambda a: a.linear(bias=a.x[0]),
    "a gradient of 16 bits": lambda a: a.dw(out=a.grad.half()),
    "a main_grad of 16 bits": lambda a: a.linear_adding_to(a.weight.detach().half()),
    "a gradient of another shape": lambda a: a.dw(out=a.grad[1:]),
    "a main_grad of another shape": lambda a: a.linear_adding_to(a.grad),
    "a gradient that overlaps itself": lambda a: a.dw(out=a.grad[:1].expand(K, N)),
    "a main_grad that overlaps itself": lambda a: a.linear_adding_to(
        a.weight.detach()[:1].expand(N, K)
    ),
    "a main_grad inside the weight": lambda a: a.linear_adding_to(),
    "a gradient inside an operand": lambda a: a.dw(
        x=a.grad.view(-1)[: 3 * K].view(3, K), dy=a.dy[:3]
    ),
    "a gradient that requires grad": lambda a: a.dw(out=a.grad.requires_grad_()),
    "accumulating into nothing": lambda a: a.dw(out=None),
    "a mode that there is none of": lambda a: a.dw(mode="add"),
    "a reduction that there is none of": lambda a: a.dw(reduction="sum"),
    "a second derivative": lambda a: a.differentiate_twice(),
}
# With what a machine has that is not here.
ELSEWHERE = {
    "operands on two GPUs",
    "a gradient on another GPU",
    "tensors on the CPU, without the interpreter",
    "operands of bf16 on a GPU that has none",
    "a GPU whose shared memory holds no tile",
}


def test_every_refusal_has_a_case():
    """No line of the table is without a call that is refused so."""
    assert REFUSALS.keys() == HERE.keys() | ELSEWHERE


@on_a_device
@pytest.mark.kernels("fast")
@pytest.mark.parametrize("wrong", HERE)
def test_refused(wrong):
    """The sentence of the table; and every gradient is as it was."""
    asked = Asked(DEVICE)
    assert_as_said(REFUSALS[wrong], lambda: HERE[wrong](asked))
    for kept in (asked.grad, asked.weight.grad, asked.weight.main_grad):
        assert (kept == 1).all()


def test_refused_on_two_gpus():
    """In the words of the table, of operands and of a gradient elsewhere."""
    with FakeTensorMode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that fakes have no memory: no key is made
        asked = Asked("cuda:0")
        dy, grad = torch.ones(T, N, device="cuda:1"), torch.ones(K, N, device="cuda:1")
        assert_as_said(REFUSALS["operands on two GPUs"], lambda: asked.dw(dy=dy))
        refusal = REFUSALS["a gradient on another GPU"]
        assert_as_said(refusal, lambda: asked.dw(out=grad))


@pytest.mark.parametrize("call", ("dw", "linear"))
def test_refused_on_the_cpu(call):
    """In the words of the table, where no interpreter runs."""
    refusal = REFUSALS["tensors on the CPU, without the interpreter"]
    assert_as_said(refusal, getattr(Asked("cpu"), call))


@pytest.mark.parametrize("autocast", (False, True))
def test_refused_bf16(autocast, monkeypatch):
    """In the words of the table; by linear too, and where autocast asks for bf16."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: autocast)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
    refusal = REFUSALS["operands of bf16 on a GPU that has none"]
    dtype = torch.float32 if autocast else torch.bfloat16
    with FakeTensorMode():
        x, dy, weight = (
            torch.ones(shape, device="cuda", dtype=dtype)
            for shape in ((T, K), (T, N), (N, K))
        )
        assert_as_said(refusal, lambda: linear(x, weight))
        if not autocast:
            assert_as_said(refusal, lambda: ops.matmul_dw(x, dy))


@on_a_device
@pytest.mark.kernels("fast", "dw")
@pytest.mark.parametrize("implementation", ("fast", "lesson"))
@pytest.mark.parametrize("mode", ("overwrite", "accumulate"))
def test_refused_for_want_of_shared_memory(mode, implementation, monkeypatch):
    """Before a gradient is cleared or a kernel compiled; by linear, too."""
    facts = device.INTERPRETER if DEVICE == "cpu" else device.facts(0)
    facts = replace(facts, shared_memory_per_program_bytes=4096)
    monkeypatch.setattr(device, "INTERPRETER", facts)
    monkeypatch.setattr(device, "facts", lambda index: facts)
    monkeypatch.setattr(fast, "_prepared", {})
    refusal = REFUSALS["a GPU whose shared memory holds no tile"]
    asked = Asked(DEVICE)
    choices = {"mode": mode, "implementation": implementation}
    assert_as_said(refusal, lambda: asked.dw(**choices))
    assert_as_said(
        Refusal(refusal.error, refusal.begins.replace("dw", "forward")), asked.linear
    )
    for kept in (asked.grad, asked.weight.grad, asked.weight.main_grad):
        assert (kept == 1).all()
