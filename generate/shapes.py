"""The shapes that are recorded, as (T, K, N); T = batch · tokens."""

import math
import random

Shape = tuple[int, int, int]

# The lesson's worked layer: the up-projection of a 7B-class MLP.
WORKED: Shape = (8192, 4096, 14336)
# The lesson's starved dW: 64 tiles, a long contraction.
STARVED: Shape = (32768, 1024, 1024)

GEMM_SHAPES: tuple[Shape, ...] = (
    WORKED,
    (8192, 4096, 4096),
    (8192, 4096, 1024),
    (8192, 1024, 1024),
    STARVED,
    (65536, 1024, 1024),
    (32768, 512, 512),
    (131072, 512, 512),
    (16384, 768, 3072),
    (16384, 768, 768),
    (8192, 4096, 64),
    (16384, 2048, 128),
    (8192, 8192, 28672),
    (4096, 2880, 2880),
)

# Every rung of the ladder runs at these: the worked layer, two square ones beside
# it, and three dW that starve or lose to a last wave.
LADDER_SHAPES: tuple[Shape, ...] = (
    WORKED,
    (8192, 4096, 4096),
    STARVED,
    (65536, 1024, 1024),
    (16384, 768, 3072),
    (4096, 2880, 2880),
)

# What was tried beside the rungs and left runs at the two that hide a loss least.
TRIED_SHAPES: tuple[Shape, ...] = LADDER_SHAPES[:2]

# The host's time of a call shows where the GPU's does not hide it.
LAUNCH_SHAPE: Shape = (1024, 512, 512)


def _drawn(count: int, seed: int) -> tuple[Shape, ...]:
    """Shapes whose sizes are drawn evenly on a scale of logarithms.

    A third each of multiples of 64, of multiples of 8, and of neither.
    """
    draw, found = random.Random(seed).random, []
    while len(found) < count:
        step = (64, 8, 1)[len(found) % 3]
        sizes = []
        for low, high in ((512, 131072), (64, 16384), (64, 16384)):
            size = round(low * (high / low) ** draw() / step) * step
            sizes.append(size + (step == 1 and size % 8 == 0))
        if math.prod(sizes) <= LARGEST_DRAWN:
            found.append(tuple(sizes))
    return tuple(found)


# A larger product would take more of a recording's time than forty others.
LARGEST_DRAWN = 2**41
# No plan was fitted to these.
FURTHER_SHAPES: tuple[Shape, ...] = _drawn(40, seed=0)

# Starved, or losing to a last, partly filled wave; the worked shape beside them
# shows that a full grid gains nothing.
SPLIT_SHAPES: tuple[Shape, ...] = (
    (8192, 1024, 1024),
    STARVED,
    (65536, 1024, 1024),
    (32768, 512, 512),
    (131072, 512, 512),
    (16384, 768, 3072),
    (16384, 768, 768),
    (8192, 4096, 64),
    (16384, 2048, 128),
    (4096, 2880, 2880),
    (8192, 4096, 1024),
    WORKED,
)
# Every dW whose programs are traced. 640 is 25 tiles, about a fifth of an H200's
# SMs; 2880 is two full waves of 264 programs and one tile more.
TIMELINE_SHAPES: tuple[Shape, ...] = (
    STARVED,
    (32768, 640, 640),
    (131072, 512, 512),
    (65536, 2048, 128),
    (16384, 768, 3072),
    (16384, 4096, 1024),
    (4096, 2880, 2880),
)
TIMELINE_FACTORS: tuple[int, ...] = (1, 2, 4, 8)

SPLIT_FACTORS: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)

# Run again and again: a starved dW, and one as narrow as a LoRA factor.
DETERMINISM_SHAPES: tuple[Shape, ...] = (STARVED, (8192, 4096, 64))
DETERMINISM_FACTORS: tuple[int, ...] = (2, 3, 4, 8, 16, 64)

# Micro-batches of this shape are added up, doubling their number each time.
ACCUMULATED: Shape = (2048, 512, 512)
MICRO_BATCHES: tuple[int, ...] = tuple(2**n for n in range(11))
# Partial sums of dW at STARVED are rounded to each dtype.
PARTIAL_FACTORS: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)

TRANSPOSE_SHAPES: tuple[Shape, ...] = (
    WORKED,
    (8192, 4096, 4096),
    STARVED,
    (65536, 1024, 1024),
)


def parse(text: str) -> Shape:
    """A shape from "T,K,N" or "TxKxN". ValueError if it is not three sizes."""
    parts = text.replace("x", ",").split(",")
    if len(parts) != 3 or not all(p.strip().isdecimal() and int(p) for p in parts):
        raise ValueError(f'a shape must be "T,K,N" of three sizes ≥ 1, got {text!r}')
    t, k, n = map(int, parts)
    return t, k, n
