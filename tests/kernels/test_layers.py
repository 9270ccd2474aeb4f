"""Linear layers: torch.nn.Linear's numbers and conventions, and what differs.

Integers make every sum exact, so that both can be held to the same bits.
"""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from kernels import layers
from kernels.layers import Linear, linear
from tests.kernels.contract import (
    DEVICE,
    DTYPES,
    INTERPRETED,
    fp32_precision,
    name_of,
)

K, N = 24, 16
LEADING = ((), (1,), (5,), (2, 3), (2, 1, 3), (0,), (2, 0))

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=name_of)


def on_a_device(test):
    """For a test that launches: in the interpreter, and on a GPU."""
    for mark in ("interpreter", "gpu"):
        test = getattr(pytest.mark, mark)(test)
    return pytest.mark.kernels("fast")(test)


def integers(*shape, dtype=torch.float32, seed=0, grad=True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    made = torch.randint(-2, 3, shape, generator=generator).to(DEVICE, dtype)
    return made.requires_grad_(grad)


def layer(dtype=torch.float32, bias=True, **choices) -> Linear:
    made = Linear(K, N, bias=bias, device=DEVICE, dtype=dtype, **choices)
    with torch.no_grad():
        for seed, parameter in enumerate(made.parameters(), 1):
            parameter.copy_(integers(*parameter.shape, seed=seed))
    return made


def theirs(ours: Linear) -> torch.nn.Linear:
    """torch.nn.Linear with the same parameters."""
    bias, weight = ours.bias is not None, ours.weight
    made = torch.nn.Linear(K, N, bias, device=DEVICE, dtype=weight.dtype)
    made.load_state_dict(ours.state_dict())
    return made


def grads(module, *inputs) -> list[torch.Tensor | None]:
    return [t.grad for t in (*inputs, *module.parameters())]


def calls(monkeypatch) -> list[str]:
    """Names of the products from now on."""
    found = []
    for name in ("matmul", "matmul_dx", "matmul_dw"):

        def spy(*args, name=name, product=getattr(layers, name), **choices):
            found.append(name + (choices.get("reduction") or ""))
            return product(*args, **choices)

        monkeypatch.setattr(layers, name, spy)
    return found


# What it computes


@on_a_device
@every_dtype
@pytest.mark.parametrize("leading", LEADING, ids=str)
@pytest.mark.parametrize("bias", (True, False))
def test_as_torch_has_it(leading, bias, dtype):
    """Any leading dimensions, or none: output and gradients have the same bits."""
    ours = layer(dtype, bias)
    reference = theirs(ours)
    results = []
    for module in (ours, reference):
        x = integers(*leading, K, dtype=dtype, seed=3)
        y = module(x)
        y.backward(integers(*y.shape, dtype=dtype, seed=4, grad=False))
        results.append([y, *grads(module, x)])
    for mine, other in zip(*results, strict=True):
        assert mine.shape == other.shape and mine.dtype == other.dtype
        assert torch.equal(mine, other)


@on_a_device
@pytest.mark.parametrize(
    "view",
    (
        pytest.param(lambda x: x.transpose(0, 1), id="transposed"),
        pytest.param(lambda x: x[:, ::2], id="sliced"),
        pytest.param(lambda x: x[:1].expand(4, -1, -1), id="expanded"),
    ),
)
def test_inputs_and_gradients_of_any_strides(view):
    """A gradient that was expanded or transposed is read where it lies.

    pytorch/pytorch#132102
    """
    ours = layer()
    reference = theirs(ours)
    results = []
    for module in (ours, reference):
        x = integers(4, 6, K, seed=3)
        y = module(view(x))
        y.sum().backward()
        results.append([y, *grads(module, x)])
    for mine, other in zip(*results, strict=True):
        assert torch.equal(mine, other)


@on_a_device
@pytest.mark.filterwarnings("ignore:Input .* not a double precision:UserWarning")
def test_gradients_are_the_derivatives():
    """It is linear in each argument, so that differences of 1 are exact."""
    inputs = (integers(3, K), integers(N, K, seed=1), integers(N, seed=2))
    assert torch.autograd.gradcheck(linear, inputs, eps=1, atol=1e-4, rtol=0)


@on_a_device
@pytest.mark.parametrize("which", ("x", "weight", "bias"))
def test_directional_derivatives(which):
    """In place of gradcheck in fp64, which no kernel takes: fp32 against fp64.

    The derivative of Σ V·Y along a direction D of one input, from our gradient G, is
    Σ G·D; the exact one is a difference in fp64, in which Y is linear in each input.
    An element of G is a sum of n products, and fp32 sums them, in whatever order,
    within n·ε of the sum of their sizes. A gradient that is 0.1% off is noticed.
    """
    rows = 65
    shapes = {"x": (rows, K), "weight": (N, K), "bias": (N,)}
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator).to(DEVICE)

    inputs = {name: normal(*shape) for name, shape in shapes.items()}
    leaves = {name: t.clone().requires_grad_() for name, t in inputs.items()}
    upstream, direction = normal(rows, N), normal(*shapes[which])
    with fp32_precision("ieee"):
        linear(*leaves.values()).backward(upstream)

    def total(step, size=lambda t: t):
        exactly = {name: size(t.double()) for name, t in inputs.items()}
        exactly[which] = exactly[which] + step * size(direction.double())
        y = torch.nn.functional.linear(*exactly.values())
        return (y * size(upstream.double())).sum()

    exact = (total(1) - total(-1)) / 2
    sizes = (total(1, torch.abs) - total(-1, torch.abs)) / 2
    terms = N if which == "x" else rows
    tolerance = terms * torch.finfo(torch.float32).eps * sizes
    ours = (leaves[which].grad.double() * direction.double()).sum()
    assert abs(ours - exact) <= tolerance
    assert abs(1.001 * ours - exact) > tolerance


@on_a_device
def test_second_derivatives_are_refused():
    """Not silently without the terms that go through the saved tensors."""
    x = integers(3, K)
    y = layer()(x).square().sum()
    with pytest.raises(RuntimeError, match="^linear has no second derivative"):
        torch.autograd.grad(y, x, create_graph=True)


@on_a_device
@pytest.mark.parametrize("transform", (torch.func.grad, torch.func.vmap))
def test_transforms_are_refused(transform):
    """torch.func says in its own words that there is no rule."""
    weight = integers(N, K, grad=False)
    with pytest.raises(RuntimeError, match="functorch|vmap"):
        transform(lambda x: linear(x, weight).sum())(integers(3, K, grad=False))


# What is computed and kept


@on_a_device
@pytest.mark.parametrize("needs_x", (True, False))
@pytest.mark.parametrize("needs_weight", (True, False))
def test_only_what_is_asked_for(needs_x, needs_weight, monkeypatch):
    """A frozen weight costs no dW and keeps no x; a first layer no dX and no W."""
    ours = layer()
    ours.weight.requires_grad_(needs_weight)
    products, saved = calls(monkeypatch), []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tuple(tensor.shape)) or tensor, lambda t: t
    )
    with hooks:
        y = ours(integers(3, K, grad=needs_x))
    y.sum().backward()
    assert products == ["matmul"] + ["matmul_dx"] * needs_x + ["matmul_dw"] * (
        needs_weight
    )
    assert saved == [(3, K)] * needs_weight + [(N, K)] * needs_x


@on_a_device
def test_nothing_is_kept_without_grad():
    with torch.no_grad():
        assert layer()(integers(3, K)).grad_fn is None


@on_a_device
def test_contributions_add():
    """Micro-batches, and a weight that two layers share, add up."""
    ours = layer(bias=False)
    tied = layer(bias=False)
    tied.weight = ours.weight
    reference = theirs(ours)
    for seed in (3, 4):
        x = integers(3, K, seed=seed, grad=False)
        (ours(x) + tied(x)).sum().backward()
        (2 * reference(x)).sum().backward()
    assert torch.equal(ours.weight.grad, reference.weight.grad)


@on_a_device
def test_recomputed_in_the_backward_pass():
    """Under activation checkpointing the numbers are the same."""
    results = []
    for run in (lambda m, x: m(x), lambda m, x: checkpoint(m, x, use_reentrant=False)):
        module, x = layer(), integers(5, K, seed=3)
        run(module, x).square().sum().backward()
        results.append(grads(module, x))
    for plain, again in zip(*results, strict=True):
        assert torch.equal(plain, again)


# main_grad


@on_a_device
def test_main_grad_takes_the_gradient():
    """dW adds to it in fp32; .grad stays as it is, whatever it is."""
    ours = layer(torch.float16)
    kept = ours.weight.main_grad = torch.full((N, K), 2049.0, device=DEVICE)
    x = torch.ones(3, K, device=DEVICE, dtype=torch.float16)
    for times in (1, 2):
        ours(x).sum().backward()
        assert (kept == 2049 + 3 * times).all()  # which fp16 cannot hold
        assert ours.weight.grad is None
    assert ours.bias.grad is not None


@on_a_device
def test_gradients_are_no_views_of_main_grad():
    """What is returned and what is added to are different memory."""
    ours = layer()
    ours(integers(3, K)).sum().backward()
    grad = ours.weight.grad.clone()
    ours.weight.main_grad = torch.zeros(N, K, device=DEVICE)
    ours(integers(3, K)).sum().backward()
    ours.weight.main_grad.zero_()
    assert torch.equal(ours.weight.grad, grad)


# Autocast and determinism


@on_a_device
@pytest.mark.parametrize("parameters", (torch.float32, torch.float16), ids=name_of)
def test_autocast(parameters):
    """Forward and backward compute in its dtype; gradients have their input's.

    pytorch/pytorch#87979, fla-org/flash-linear-attention#1264
    """
    ours = layer(parameters)
    reference = theirs(ours)
    results = []
    for module in (ours, reference):
        x = integers(5, K, seed=3)
        with torch.autocast(DEVICE, dtype=torch.float16):
            y = module(x)
        y.sum().backward()  # outside of autocast, as is advised
        results.append([y, *grads(module, x)])
    for mine, other in zip(*results, strict=True):
        assert mine.dtype == other.dtype and torch.equal(mine, other)
    assert results[0][0].dtype == torch.float16


@on_a_device
def test_autocast_rounds_no_gradient_of_fp32():
    """dW goes from its fp32 sum to an fp32 parameter without autocast's 16 bits."""
    ours = layer(bias=False)
    x = torch.ones(2049, K, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.float16):
        y = ours(x)
    y.backward(torch.ones_like(y))
    assert (ours.weight.grad == 2049).all()


@on_a_device
@pytest.mark.parametrize("asked", ("argument", "framework"))
def test_determinism(asked, monkeypatch):
    """The argument, or torch's switch, keeps dW from adding in order of arrival."""
    products = calls(monkeypatch)
    ours = layer(deterministic=asked == "argument")
    switched = asked == "framework"
    torch.use_deterministic_algorithms(switched)
    try:
        ours(integers(3, K)).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert products[-1] == "matmul_dw" + ("" if switched else "workspace")


# Compiled


@on_a_device
@pytest.mark.parametrize("kept", (False, True), ids=("grad", "main_grad"))
def test_compiled_whole(kept):
    """torch.compile takes forward and backward as one graph each, and adds alike.

    pytorch/pytorch#136550
    """
    backend = "aot_eager" if INTERPRETED else "inductor"
    results = []
    for run in (
        lambda m: m,
        lambda m: torch.compile(m, fullgraph=True, backend=backend),
    ):
        torch.compiler.reset()
        module, x = layer(), integers(2, 5, K, seed=3)
        if kept:
            module.weight.main_grad = torch.ones(N, K, device=DEVICE)
        called = run(module)
        for _ in range(2):
            called(x).square().sum().backward()
        results.append([*grads(module, x), module.weight.main_grad if kept else None])
    for eager, compiled in zip(*results, strict=True):
        assert (eager is None) == (compiled is None)
        assert eager is None or torch.equal(eager, compiled)


# Several processes


def one_of_two(rank: int, store: str, results: str) -> None:
    """A process of data-parallel training, with half of the batch."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    torch.set_num_threads(1)
    module = torch.nn.parallel.DistributedDataParallel(layer())
    x = integers(4, K, seed=3, grad=False)[2 * rank : 2 * rank + 2]
    for _ in range(2):
        module(x).sum().backward()
    torch.save(grads(module.module), f"{results}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.interpreter
def test_two_processes_agree(tmp_path):
    """Under DistributedDataParallel each has the mean of both gradients, added up.

    Through gloo on the CPU, in the interpreter: no GPU takes part.
    """
    arguments = (str(tmp_path / "store"), str(tmp_path))
    torch.multiprocessing.spawn(one_of_two, arguments, nprocs=2)
    module = layer()
    for _ in range(2):
        (module(integers(4, K, seed=3, grad=False)).sum() / 2).backward()
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for mine, whole in zip(found, grads(module), strict=True):
            assert torch.equal(mine, whole)


# The module, and refusals


@on_a_device
def test_the_module_is_torchs():
    """The same parameters, names, initial values and state."""
    torch.manual_seed(0)
    ours = Linear(K, N, device=DEVICE)
    torch.manual_seed(0)
    reference = torch.nn.Linear(K, N, device=DEVICE)
    assert isinstance(ours, torch.nn.Linear)
    mine, other = ours.state_dict(), reference.state_dict()
    assert list(mine) == list(other)
    assert all(torch.equal(mine[name], other[name]) for name in mine)


REFUSED = {
    "x of another size": ("x", lambda x, w, b: ((x[:, 1:], w, b), {})),
    "x of no dimension": ("x", lambda x, w, b: ((x.sum(), w, b), {})),
    "x a list": ("x", lambda x, w, b: ((x.tolist(), w, b), {})),
    "x in float64": ("x", lambda x, w, b: ((x.double(), w, b), {})),
    "weight of one dimension": ("weight", lambda x, w, b: ((x, w[0], b), {})),
    "weight of another dtype": ("weight", lambda x, w, b: ((x, w.half(), b), {})),
    "weight elsewhere": ("weight", lambda x, w, b: ((x, w.to("meta"), b), {})),
    "bias of another size": ("bias", lambda x, w, b: ((x, w, b[1:]), {})),
    "bias of another dtype": ("bias", lambda x, w, b: ((x, w, b.half()), {})),
}


@on_a_device
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, monkeypatch):
    """One sentence that names the argument, before anything is computed."""
    products = calls(monkeypatch)
    name, spoil = REFUSED[case]
    operands = integers(3, K), integers(N, K, seed=1), integers(N, seed=2)
    arguments, choices = spoil(*(t.detach() for t in operands))
    with pytest.raises((TypeError, ValueError), match=f"^{name} ") as caught:
        linear(*arguments, **choices)
    assert "\n" not in str(caught.value) and not products


@on_a_device
@pytest.mark.parametrize(
    "main_grad",
    (
        pytest.param(lambda w: torch.zeros_like(w, dtype=torch.float16), id="dtype"),
        pytest.param(lambda w: torch.zeros(1, device=w.device), id="shape"),
        pytest.param(lambda w: torch.zeros_like(w, device="meta"), id="device"),
    ),
)
def test_refused_main_grad(main_grad):
    """A buffer that dW cannot be added to is refused before the forward pass."""
    ours = layer()
    ours.weight.main_grad = main_grad(ours.weight.detach())
    with pytest.raises((TypeError, ValueError), match=r"^weight\.main_grad must"):
        ours(integers(3, K))


def test_cpu_without_the_interpreter():
    """A tensor on the CPU is refused where no interpreter runs."""
    with pytest.raises(ValueError, match="^x must be on a CUDA device"):
        linear(torch.ones(3, K), torch.ones(N, K))
