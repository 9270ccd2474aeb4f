"""The shapes that are recorded, as (T, K, N); T = batch · tokens."""

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
