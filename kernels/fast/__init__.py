"""Kernels as fast as the vendor library, each one idea beyond the one before it.

Every kernel here serves forward, dX and dW alike, as one product
    out[ROWS, COLUMNS] = left[ROWS, DEPTH] · right[DEPTH, COLUMNS]
in which an operand may be stored swapped. Three axes have other names in each:

    op       left  right  ROWS  COLUMNS  DEPTH (contracted)
    forward  X     W      T     N        K
    dX       dY    Wᵀ     T     K        N
    dW       Xᵀ    dY     K     N        T

`kernels.fast.ops.multiply` launches them, `kernels.plan.fast_plan` chooses.
"""
