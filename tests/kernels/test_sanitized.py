"""The program that compute-sanitizer watches, as far as it runs without a GPU."""

import pytest
import torch

from generate.record import sanitized
from kernels.fast import ops as fast
from tests.kernels.test_fast import (  # noqa: F401 - fixtures
    aligned_layouts_and_added_tiles,
    nothing_prepared,
)

EVERY = 6  # of its products, where each takes a second


@pytest.mark.interpreter
def test_its_products_are_right():
    """It counts launches, compares every output, and finds them exact."""
    chosen = sanitized.products()[::EVERY]
    tally = sanitized.Tally()
    sanitized.run(chosen, tally)
    sanitized.run_linear(tally)
    assert tally.wrong == []
    assert tally.results == len(chosen) + 6
    assert {"forward_kernel", "grouped_kernel", "reduce_kernel"} <= set(tally.launches)
    assert set(tally.launches) <= set(sanitized.kernel_names())


@pytest.mark.interpreter
def test_it_sees_a_wrong_product(monkeypatch):
    """A kernel that leaves its output as it was is told, by every product of it."""

    class Idle:
        def __getitem__(self, grid):
            return lambda *arguments, **constants: None

    monkeypatch.setattr(fast, "grouped_kernel", Idle())
    product = next(p for p in sanitized.products() if p.form == sanitized.WHOLE[0])
    tally = sanitized.Tally()
    sanitized.run([product], tally)
    assert tally.wrong == [f"{product}: not the exact result"]


@pytest.mark.interpreter
@pytest.mark.parametrize("kernel, cleared", (("split", 1), ("grouped", 0)))
def test_workspaces_of_descriptors_are_cleared(monkeypatch, kernel, cleared):
    """Those that the copy engine writes, and no other: the rest is to be seen."""
    made = []
    for name in ("empty", "empty_strided"):

        def spy(*size, make=getattr(torch, name), **options):
            tensor = make(*size, **options)
            made.append(tensor)
            return tensor

        monkeypatch.setattr(torch, name, spy)
    sanitized.clear_workspaces()
    made.clear()
    product = next(
        product
        for product in sanitized.products()
        if product.form and product.form[:2] == (kernel, "workspace")
    )
    tally = sanitized.Tally()
    sanitized.run([product], tally)
    workspaces = [tensor for tensor in made if tensor.dtype == torch.float32]
    assert (tally.wrong, len(workspaces)) == ([], cleared)
