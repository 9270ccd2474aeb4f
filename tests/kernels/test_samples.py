"""The samples that pages show are run as they stand there."""

import re
from pathlib import Path

import pytest
import torch

from kernels import Linear
from tests.kernels.contract import DEVICE, INTERPRETED

PAGE = Path(__file__).parents[2] / "generate/templates/training/train.md.j2"


def sample(title: str) -> str:
    """A sample by its title, on the device and in the dtype of these tests."""
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(rf'^```python title="{title}"\n(.*?)^```$', text, re.M | re.S)
    code = code.replace('"cuda"', f'"{DEVICE}"')
    return code.replace("bfloat16", "float16") if INTERPRETED else code


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(24, 16), torch.nn.GELU(), torch.nn.Linear(16, 8, False)
    return torch.nn.Sequential(torch.nn.Sequential(*layers)).to(DEVICE)


@pytest.mark.interpreter
@pytest.mark.gpu
@pytest.mark.kernels("fast")
def test_samples_train():
    """Layers are swapped and keep their parameters; micro-batches add up in main_grad
    to the gradient of the whole batch by torch.nn.Linear."""
    space = {}
    exec(sample("swap"), space)
    model, reference = network(), network()
    before = dict(model.named_parameters())
    model = space["swap"](model, deterministic=True)
    after = dict(model.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
    swapped = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    assert all(type(m) is Linear and m.deterministic for m in swapped)
    assert len(swapped) == 2

    x = torch.randn(12, 24, device=DEVICE)
    y = torch.randint(8, (12,), device=DEVICE)
    micro_batches = list(zip(x.split(4), y.split(4), strict=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    given = {"model": model, "optimizer": optimizer, "batches": [micro_batches] * 2}
    exec(sample("main_grad"), space | given)
    torch.nn.functional.cross_entropy(reference(x), y).backward()
    expected = dict(reference.named_parameters())
    for name, parameter in after.items():
        exact = expected[name].grad
        torch.testing.assert_close(
            parameter.grad, exact, rtol=0, atol=2e-2 * exact.abs().max().item()
        )
    assert all(m.weight.main_grad is m.weight.grad for m in swapped)


def test_samples_have_titles():
    """Each Python sample of the page is one of those that are run."""
    titles = re.findall(r"^```python(.*)$", PAGE.read_text(encoding="utf-8"), re.M)
    assert titles == [' title="swap"', ' title="main_grad"']
