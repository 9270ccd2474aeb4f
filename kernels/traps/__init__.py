"""Mistakes made on purpose, each beside its fix: one a file.

A trap has `broken(x, dy, grad=None)` and `fixed(x, dy, grad=None)`, which add
Xᵀ·dY into the fp32 gradient [K, N], a new one by default, and return it. Of a
"blind check", which is a mistake in how kernels are judged, they return a reading
instead: value, unit, meaning. `case(device)` gives operands at which the mistake
shows. A kernel here is the lesson's with one thing wrong; its docstring says what
it ought to do. For the recorder and the tests alone, never to be built upon.
"""

TRAPS = (
    "no_fill",
    "uneven_split",
    "overlapping_split",
    "idle_split",
    "overwrite",
    "bf16_gradient",
    "partial_sums",
    "autotune",
    "autotune_reset",
    "borrowed_strides",
    "offsets",
    "not_zeroed",
    "reduce_in_a_hook",
    "fused_activation",
    "transpose_first",
    "small_grid",
    "too_many_splits",
    "zeroed_workspace",
    "atomic_bits",
    "tolerance",
    "no_sync",
    "launch_cost",
    "constant_inputs",
    "shared_output",
)
