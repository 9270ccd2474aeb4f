"""What the fast kernels share: the order of tiles, a tile in, a tile out."""

import triton
import triton.language as tl


# [order]
@triton.jit
def grouped_tile(tile, tiles_down, tiles_across, GROUP: tl.constexpr):
    """(tiles above, tiles to the left) of a tile, given its number.

    Tiles are numbered in groups of GROUP rows of tiles, within a group down
    its columns first: programs that run together then read few rows of left
    and few columns of right, which L2 holds. The last group takes the rows
    that are left.
    """
    group = tile // (GROUP * tiles_across)
    above = group * GROUP
    height = min(tiles_down - above, GROUP)
    within = tile % (GROUP * tiles_across)
    return above + within % height, within // height


# [load]
@triton.jit
def operand_tile(descriptor, first, second, SWAPPED: tl.constexpr):
    """The tile of an operand that begins at its element [first, second].

    It is copied as it is stored. The transposition of a swapped one is a
    view: wgmma reads 16-bit tiles from shared memory in either order.
    """
    if SWAPPED:
        return descriptor.load([second, first]).T
    else:
        return descriptor.load([first, second])


# [store]
@triton.jit
def put_tile(out, acc, row, column, PARTS: tl.constexpr, ADD: tl.constexpr):
    """Store acc as the tile of out at [row, column], or add it in if ADD.

    In PARTS (1, 2 or 4) of its columns: each passes through a shared memory
    of its own size, which leaves the rest to the pipeline. Added by the copy
    engine, in L2: no program reads what out holds.
    """
    if PARTS > 1:
        ROWS: tl.constexpr = acc.shape[0]
        HALF: tl.constexpr = acc.shape[1] // 2
        halves = acc.reshape(ROWS, 2, HALF).permute(0, 2, 1)
        near, far = halves.split()
        put_tile(out, near, row, column, PARTS // 2, ADD)
        put_tile(out, far, row, column + HALF, PARTS // 2, ADD)
    elif ADD:
        out.atomic_add([row, column], acc)
    else:
        out.store([row, column], acc.to(out.dtype))
