"""Drawings of the lesson: inline SVG from `kernels.plan` and the recording.

Every state that a reader can choose is drawn here, its numbers beside it; the
browser only shows one state and hides the others.
"""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from generate.render.formats import count, shape_key, shape_label, significant
from generate.render.measured import ITEMSIZE, OPS, Measurements, Missing
from generate.shapes import STARVED, WORKED, Shape
from kernels.plan import (
    cdiv,
    choose_tile,
    contracted_axis,
    contracted_blocks,
    expected_resident,
    output_axes,
    output_tiles,
    split_range,
    waves,
)

LETTERS = "TKN"
LABELS = {"forward": "forward", "dx": "dX", "dw": "dW"}
# Left operand, right operand, output; a ᵀ marks what is read transposed.
FACTORS = {
    "forward": ("X", "W", "Y"),
    "dx": ("dY", "Wᵀ", "dX"),
    "dw": ("Xᵀ", "dY", "dW"),
}
LAYERS: dict[Shape, str] = {
    WORKED: "7B MLP up-projection",
    STARVED: "attention, d_model 1024",
    (16384, 768, 3072): "MLP of a small model",
    (8192, 4096, 64): "LoRA factor, rank 64",
    (4096, 2880, 2880): "projection, d_model 2880",
}
GEMM_CHOICES = (WORKED, STARVED, (16384, 768, 3072), (8192, 4096, 64))
CHIP_CHOICES = (STARVED, (4096, 2880, 2880), WORKED)
SPLIT_CHOICES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Picture:
    """One SVG and the words under it, as HTML; a name and a fact may lead them."""

    svg: str
    label: str = ""
    fact: str | None = None
    name: str = ""


@dataclass(frozen=True)
class State:
    """What stands in the figure while its controls have the values `when`.

    says: a sentence, as HTML, for every reader; `fact`, a time, ends it. spoken: the
    slider's value in words. strip: an SVG above the pictures.
    """

    when: str
    pictures: tuple[Picture, ...]
    says: str = ""
    spoken: str = ""
    strip: str = ""
    fact: str | None = None


@dataclass(frozen=True)
class Control:
    """A native input: a list of `options`, or a slider with as many steps."""

    label: str
    options: tuple[str, ...]
    slider: bool = False
    chosen: int = 0


@dataclass(frozen=True)
class Drawing:
    """A figure. key: its marks with their names.

    canvas: one SVG for all states; each has two pictures then, which go below and
    above what the canvas holds.
    """

    name: str
    title: str
    caption: str
    states: tuple[State, ...]
    controls: tuple[Control, ...] = ()
    key: tuple[Picture, ...] = ()
    canvas: str = ""

    @property
    def initial(self) -> State:
        """The state of whoever has no JavaScript, and of everyone at first."""
        when = " ".join(str(control.chosen) for control in self.controls)
        return next(state for state in self.states if state.when == when)

    def when(self, state: State) -> str:
        """Attributes of an element that stands in one state only."""
        hidden = "" if state is self.initial else " hidden"
        return f' data-when="{state.when}"{hidden}'

    def canvas_with_states(self) -> str:
        below, above = (
            "".join(
                f"<g{self.when(state)}>{state.pictures[layer].svg}</g>"
                for state in self.states
            )
            for layer in (0, 1)
        )
        head, body = self.canvas.split(">", 1)
        return f"{head}>{below}{body.removesuffix('</svg>')}{above}</svg>"


@functools.lru_cache(maxsize=8)
def drawings(measured: Measurements) -> dict[str, Drawing]:
    """Every drawing of the site, by the name that a template uses."""
    found = (
        _phenomenon(measured),
        _gemms(measured),
        _strides(),
        _chip(measured, "chip", (1,)),
        _chip(measured, "split-chip", SPLIT_CHOICES),
    )
    return {drawing.name: drawing for drawing in found}


# The three GEMMs

SHORTEST, LONGEST = 26, 84


def side(size: int, longest: int) -> int:
    """Length of an edge beside the longest: by square roots, and never too short."""
    return max(SHORTEST, round(LONGEST * math.sqrt(size / longest)))


def _gemms(measured: Measurements) -> Drawing:
    states = []
    for index, shape in enumerate(GEMM_CHOICES):
        pictures = tuple(_gemm(measured, op, shape) for op in OPS)
        work = _gflop(shape)
        says = (
            f"T = {shape[0]}, K = {shape[1]}, N = {shape[2]}: each of the three "
            f"multiplies the same three numbers, 2·T·K·N = {work}."
        )
        states.append(State(str(index), pictures, says))
    return Drawing(
        name="gemms",
        title="Three products of the same three edges",
        caption=(
            "The left operand stands left of the output, the right operand above it. "
            "A heavy edge with end marks is contracted: both operands have it, the "
            "output lacks it. A dashed operand with a diagonal is read transposed. "
            "Edges grow with the square root of their size, short ones are stretched."
        ),
        states=tuple(states),
        controls=(Control("Layer, T × K × N", _layer_names(GEMM_CHOICES)),),
    )


def _layer_names(shapes: Iterable[Shape]) -> tuple[str, ...]:
    return tuple(f"{shape_label(shape)}, {LAYERS[shape]}" for shape in shapes)


def _gemm(measured: Measurements, op: str, shape: Shape) -> Picture:
    left, right, output = FACTORS[op]
    row_axis, column_axis = output_axes(op)
    inner_axis = contracted_axis(op)
    rows, columns, inner = (
        side(shape[axis], max(shape)) for axis in (row_axis, column_axis, inner_axis)
    )
    row, column, summed = (LETTERS[a] for a in (row_axis, column_axis, inner_axis))
    x, y, gap = LONGEST + 24, LONGEST + 20, 16
    body = [
        _operand(left, x - inner, y + gap, inner, rows),
        _operand(right, x + gap, y - inner, columns, inner),
        f'<rect class="d-out" x="{x + gap}" y="{y + gap}" width="{columns}" '
        f'height="{rows}"/>',
        _text(x + gap + columns / 2, y + gap + rows / 2, output, "d-on d-strong"),
        f'<path class="d-edge" d="M{x - inner} {y + gap}h{inner}'
        f"M{x - inner} {y + gap - 4}v8M{x} {y + gap - 4}v8"
        f"M{x + gap} {y - inner}v{inner}"
        f'M{x + gap - 4} {y - inner}h8M{x + gap - 4} {y}h8"/>',
        _text(x - inner / 2, y + gap - 11, summed, "d-strong d-op"),
        _text(x + gap - 13, y - inner / 2, summed, "d-strong d-op"),
        _text(x - inner - 11, y + gap + rows / 2, row),
        _text(x + gap + columns / 2, y - inner - 9, column),
    ]
    width, height = x + gap + LONGEST + 6, y + gap + LONGEST + 6
    turned = next((name for name in (left, right) if "ᵀ" in name), None)
    words = (
        f"{LABELS[op]}: {left}, {shape[row_axis]} by {shape[inner_axis]}, times "
        f"{right}, {shape[inner_axis]} by {shape[column_axis]}, gives {output}, "
        f"{shape[row_axis]} by {shape[column_axis]}. The edge {summed} is contracted; "
        + (f"{turned} is read transposed." if turned else "nothing is transposed.")
    )
    tile = choose_tile(op, ITEMSIZE, measured.gpu.device)
    tiles = output_tiles(op, shape, tile)
    blocks = contracted_blocks(op, shape, tile)
    label = (
        f"<b>{output} = {left}·{right}</b><br>"
        f"{count(tiles, 'tile')}, each a sum over {summed}: {count(blocks, 'block')}"
    )
    top = y - inner - 20
    return Picture(_svg(width, height, body, words, f"d-{op}", top), label)


def _operand(name: str, x: int, y: int, width: int, height: int) -> str:
    turned = "ᵀ" in name
    box = (
        f'<rect class="d-box{" d-dashed" if turned else ""}" x="{x}" y="{y}" '
        f'width="{width}" height="{height}"/>'
    )
    diagonal = f'<path class="d-thin" d="M{x} {y}l{width} {height}"/>' if turned else ""
    middle = x + width / 2, y + height / 2
    return box + diagonal + _text(*middle, name, "d-inside")


# The stride swap

W_ROWS, W_COLUMNS = 2, 3
STRIDES = {"k": W_COLUMNS, "n": 1}
CELL = 46


def _strides() -> Drawing:
    width, top, grids = 340, 26, 118
    memory = [
        (24 + CELL * offset + (340 - 48 - 6 * CELL) / 2, top)
        for offset in range(W_ROWS * W_COLUMNS)
    ]
    plain_x, turned_x = 30, 216
    body = [
        _text(width / 2, 10, "memory: one row, nothing moves", "d-strong"),
        *(_cell(x, y, str(o)) for o, (x, y) in enumerate(memory)),
        *(
            _text(x + CELL / 2, y + 40, f"byte {2 * o}", "d-small")
            for o, (x, y) in enumerate(memory)
        ),
        _text(plain_x - 14, grids + 30, "k ↓", "d-small"),
        _text(plain_x + 1.5 * CELL, grids + 71, "n →", "d-small"),
        *_counting(plain_x, grids + 122, "W[k,n]", "k", "n"),
        _text(turned_x - 14, grids + 45, "n ↓", "d-small"),
        _text(turned_x + CELL, grids + 101, "k →", "d-small"),
        *_counting(turned_x, grids + 122, "Wᵀ[n,k]", "n", "k"),
    ]
    states = []
    for offset in range(W_ROWS * W_COLUMNS):
        k, n = divmod(offset, W_COLUMNS)
        plain = plain_x + CELL * n, grids + 30 * k
        turned = turned_x + CELL * k, grids + 30 * n
        body += [_cell(*plain, str(offset)), _cell(*turned, str(offset))]
        x, y = memory[offset]
        links = "".join(
            f'<path class="d-link" d="M{x + CELL / 2:g} {y + 48}'
            f'L{to[0] + CELL / 2:g} {to[1] + 15}"/>'
            for to in (plain, turned)
        )
        lit = "".join(_cell(*at, str(offset), True) for at in ((x, y), plain, turned))
        says = (
            f"<code>W[{k},{n}]</code> at {k}·{STRIDES['k']} + {n}·{STRIDES['n']} = "
            f"{offset}, and <code>Wᵀ[{n},{k}]</code> at {n}·{STRIDES['n']} + "
            f"{k}·{STRIDES['k']} = {offset}: one element, bytes {2 * offset} and "
            f"{2 * offset + 1}."
        )
        spoken = f"W[{k},{n}] and Wᵀ[{n},{k}], element {offset + 1}"
        states.append(State(str(offset), (Picture(links), Picture(lit)), says, spoken))
    words = (
        "Above, one row of six memory cells. Below, two index grids over the same six "
        "elements: W, two by three, and W transposed, three by two. The chosen "
        "element is marked in all three and joined by lines."
    )
    k, n = STRIDES["k"], STRIDES["n"]
    return Drawing(
        name="strides",
        title="One row of memory, two ways to count through it",
        caption=(
            "16-bit elements. The number in a cell is its offset from w in elements. "
            f"Under each grid, the offsets a load computes: k goes by {k} and n by {n} "
            "in both, but the arange that runs down and the one that runs across have "
            "traded these strides."
        ),
        states=tuple(states),
        controls=(
            Control("Element", tuple(s.spoken for s in states), slider=True, chosen=2),
        ),
        canvas=_svg(width, grids + 164, body, words, "d-dx"),
    )


def _counting(x: int, y: int, name: str, down: str, across: str) -> list[str]:
    """A grid's name and its offsets as a kernel writes them; the strides stand out."""
    lines = (f"{down}[:, None] · ", down), (f"+ {across}[None, :] · ", across)
    code = (
        f'<text class="d-code" x="{x}" y="{y + 20 + 17 * row}">{text}'
        f'<tspan class="d-strong d-op">{STRIDES[index]}</tspan></text>'
        for row, (text, index) in enumerate(lines)
    )
    return [_text(x, y, name, "d-start d-strong"), *code]


def _cell(x: float, y: float, text: str, lit: bool = False) -> str:
    kind = "d-lit" if lit else "d-box"
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{CELL}" height="30"/>'
        + _text(x + CELL / 2, y + 15, text, "d-on d-strong" if lit else "")
    )


# dW's grid on the chip

SM_WIDTH, SM_HEIGHT, MARGIN = 26, 18, 2


@dataclass(frozen=True)
class Grid:
    """A launch on the chip: what `kernels.plan` says of its programs and waves."""

    tiles: int
    split_t: int
    sm_count: int
    resident: int

    @property
    def programs(self) -> int:
        return self.tiles * self.split_t

    @property
    def slots(self) -> int:
        return self.sm_count * self.resident

    @property
    def waves(self) -> int:
        return cdiv(self.programs, self.slots)

    @property
    def used_pct(self) -> float:
        """Share of the places of all its waves that get a program."""
        return 100 * waves(self.programs, self.slots) / self.waves

    def wave(self, index: int) -> range:
        """Programs of one wave."""
        first = index * self.slots
        return range(first, min(first + self.slots, self.programs))

    def busy(self, index: int) -> int:
        """SMs with a program in one wave: each gets one before any gets two."""
        return min(self.sm_count, len(self.wave(index)))


def grid(measured: Measurements, op: str, shape: Shape, split_t: int = 1) -> Grid:
    tile = choose_tile(op, ITEMSIZE, measured.gpu.device)
    return Grid(
        tiles=output_tiles(op, shape, tile),
        split_t=split_t,
        sm_count=measured.gpu.sm_count,
        resident=_resident(measured, op),
    )


def _resident(measured: Measurements, op: str) -> int:
    """Programs an SM holds at once: recorded, or as expected from the tile."""
    point = measured.occupancy(STARVED, op, "none", 1)
    if not isinstance(point, Missing) and point.resident_programs:
        return point.resident_programs
    device = measured.gpu.device
    tile = choose_tile(op, ITEMSIZE, device)
    return expected_resident(op, tile, ITEMSIZE, device)


def chip(launch: Grid, index: int, op: str, slices: bool = False) -> str:
    """SVG of one wave on the SMs.

    slices: odd slices of T look different from even ones, and dots mark the programs
    of the first tile.
    """
    columns = math.ceil(math.sqrt(launch.sm_count))
    rows = cdiv(launch.sm_count, columns)
    programs, busy = launch.wave(index), launch.busy(index)
    slot = (SM_WIDTH - 2 * MARGIN - 2) / launch.resident

    def corner(sm: int) -> tuple[int, int]:
        row, column = divmod(sm, columns)
        return column * SM_WIDTH + MARGIN, row * SM_HEIGHT + MARGIN

    def boxes(sms: Iterable[int]) -> str:
        size = f"h{SM_WIDTH - 4}v{SM_HEIGHT - 4}h-{SM_WIDTH - 4}z"
        return "".join("M{} {}".format(*corner(sm)) + size for sm in sms)

    even, odd, dots = [], [], []
    for place, program in enumerate(programs):
        layer, sm = divmod(place, launch.sm_count)
        x, y = corner(sm)
        x, y = x + 1 + layer * slot, y + 1
        slice_, tile = divmod(program, launch.tiles)
        box = f"M{x + 1:g} {y + 1}h{slot - 2:g}v{SM_HEIGHT - 8}h-{slot - 2:g}z"
        (odd if slices and slice_ % 2 else even).append(box)
        if slices and tile == 0:
            dots.append(f"M{x + slot / 2 - 2:g} {y + 4}h4v4h-4z")
    body = [
        f'<path class="d-idle" d="{boxes(range(busy, launch.sm_count))}"/>',
        f'<path class="d-sm" d="{boxes(range(busy))}"/>',
        f'<path class="d-fill" d="{"".join(even)}"/>',
        f'<path class="d-half" d="{"".join(odd)}"/>' if odd else "",
        f'<path class="d-dot" d="{"".join(dots)}"/>' if dots else "",
    ]
    words = (
        f"{count(launch.sm_count, 'SM')} as cells: {busy} with a program, "
        f"{launch.sm_count - busy} idle; {len(programs)} of {launch.slots} places "
        "taken."
    )
    return _svg(columns * SM_WIDTH, rows * SM_HEIGHT, body, words, f"d-{op}")


def _chip(measured: Measurements, name: str, splits: tuple[int, ...]) -> Drawing:
    several = len(splits) > 1
    states = []
    for row, shape in enumerate(CHIP_CHOICES):
        for column, split_t in enumerate(splits):
            launch = grid(measured, "dw", shape, split_t)
            when = f"{row} {column}" if several else str(row)
            reduction = "none" if split_t == 1 else "atomic"
            states.append(
                State(
                    when,
                    _chip_waves(launch),
                    _chip_says(launch),
                    spoken=f"{split_t}, {count(launch.programs, 'program')}"
                    if several
                    else "",
                    strip=_strip(measured, shape, split_t) if several else "",
                    fact=f"split.{shape_key(shape)}.{reduction}.{split_t}.ms",
                )
            )
    layers = Control("Layer, T × K × N", _layer_names(CHIP_CHOICES))
    split = Control("SPLIT_T", tuple(map(str, splits)), True, len(splits) // 2)
    model = (
        "A cell is one SM, a filled place in it one program. The picture is a model: "
        "SMs get one program each before any gets a second, wave by wave; in truth a "
        "place is filled again as soon as its program ends. Times are measured, the "
        "whole operation."
    )
    key = [("d-fill", "a program"), ("d-idle", "an idle SM")]
    if several:
        key = [
            ("d-fill", "slices 0, 2, …"),
            ("d-half", "slices 1, 3, …"),
            ("d-dot", "the programs that share the first tile"),
            ("d-idle", "an idle SM"),
        ]
        model = "The bar is T of one tile, cut into its slices. " + model
    return Drawing(
        name=name,
        title=f"{'Split dW' if several else 'dW, one program a tile,'} on the SMs of "
        f"{measured.gpu.name}",
        caption=model,
        states=tuple(states),
        controls=(layers, split) if several else (layers,),
        key=tuple(Picture(_sample(kind), text) for kind, text in key),
    )


def _chip_waves(launch: Grid) -> tuple[Picture, ...]:
    last = launch.waves - 1
    several = launch.split_t > 1
    first = "The only wave" if last == 0 else "The first wave"
    found = [Picture(chip(launch, 0, "dw", several), _taken(launch, 0, first))]
    if last:
        name = f"Wave {last + 1}, the last"
        label = _taken(launch, last, name)
        found.append(Picture(chip(launch, last, "dw", several), label))
    return tuple(found)


def _taken(launch: Grid, index: int, name: str) -> str:
    idle = launch.sm_count - launch.busy(index)
    return (
        f"<b>{name}</b><br>{len(launch.wave(index))} of {launch.slots} places, "
        f"{count(idle, 'SM')} idle"
    )


def _chip_says(launch: Grid) -> str:
    share = f"{launch.used_pct:.0f} %" if launch.used_pct >= 1 else "under 1 %"
    return (
        f"{count(launch.tiles, 'tile')} × {launch.split_t} = "
        f"{count(launch.programs, 'program')} for {launch.sm_count} SMs × "
        f"{launch.resident} = {launch.slots} places: {count(launch.waves, 'wave')}, "
        f"{share} of their places used."
    )


def _strip(measured: Measurements, shape: Shape, split_t: int) -> str:
    """T of one tile as a bar, cut where its splits begin and end."""
    tile = choose_tile("dw", ITEMSIZE, measured.gpu.device)
    blocks = contracted_blocks("dw", shape, tile)
    width, body = 640, []
    for split in range(split_t):
        low, high = split_range(split, split_t, blocks)
        x, end = width * low / blocks, width * high / blocks
        body.append(
            f'<rect class="{"d-half" if split % 2 else "d-fill"}" x="{x + 1:g}" y="1" '
            f'width="{end - x - 2:g}" height="14"/>'
        )
    words = f"T, {count(blocks, 'block')}, in {count(split_t, 'slice')}."
    return _svg(width, 16, body, words, "d-dw")


def _sample(kind: str) -> str:
    """One mark of the key under a drawing."""
    if kind == "d-dot":
        mark = (
            '<path class="d-fill" d="M2 1h8v10h-8z"/>'
            '<path class="d-dot" d="M4 4h4v4h-4z"/>'
        )
    else:
        mark = f'<path class="{kind}" d="M1.5 1.5h9v9h-9z"/>'
    return f'<svg class="d d-dw" viewBox="0 0 12 12" aria-hidden="true">{mark}</svg>'


# The phenomenon, for the first screen


def _phenomenon(measured: Measurements) -> Drawing:
    key = shape_key(STARVED)
    best = measured.best_split(STARVED)
    chosen = measured.plan(STARVED).split_t
    split_t = chosen if isinstance(best, Missing) else best.split_t
    columns = [
        ("forward", 1, f"gemm.{key}.forward.lesson.ms"),
        ("dx", 1, f"gemm.{key}.dx.lesson.ms"),
        ("dw", 1, f"split.{key}.none.1.ms"),
    ]
    if split_t > 1:
        columns.append(("dw", split_t, f"split.{key}.best.ms"))
    pictures = []
    for op, factor, fact in columns:
        launch = grid(measured, op, STARVED, factor)
        name = LABELS[op] if factor == 1 else f"{LABELS[op]}, {factor} splits"
        full = len(launch.wave(0)) == launch.slots
        room = "chip full" if full else f"{launch.slots} places"
        label = f"{count(launch.programs, 'program')}, {room}"
        pictures.append(Picture(chip(launch, 0, op), label, fact, name))
    work = _gflop(STARVED)
    return Drawing(
        name="phenomenon",
        title="The same work, unequal grids",
        caption=(
            f"T = {STARVED[0]}, K = {STARVED[1]}, N = {STARVED[2]} on "
            f"{measured.gpu.name}, the lesson's kernels. A cell is one of its "
            f"{measured.gpu.sm_count} SMs, as the launch begins."
        ),
        states=(State("", tuple(pictures), strip=_bars(work)),),
    )


def _bars(work: str) -> str:
    body = []
    for index, op in enumerate(OPS):
        y = 20 * index
        body += [
            _text(0, y + 9, LABELS[op], "d-start"),
            f'<rect class="d-bar d-{op}" x="62" y="{y + 2}" width="200" height="14"/>',
            _text(270, y + 9, work, "d-start"),
        ]
    words = f"Three bars of the same length: forward, dX and dW, {work} each."
    return _svg(340, 58, body, words, "d-bars")


def _gflop(shape: Shape) -> str:
    flops = 2 * math.prod(shape)
    if flops >= 5e11:
        return f"{significant(flops / 1e12)} TFLOP"
    return f"{significant(flops / 1e9)} GFLOP"


# SVG


def _svg(
    width: float,
    height: float,
    body: Iterable[str],
    words: str,
    kind: str,
    top: float = 0,
) -> str:
    box = f"0 {top:g} {width:g} {height - top:g}"
    return (
        f'<svg class="d {kind}" viewBox="{box}" role="img" '
        f'aria-label="{escape(words)}">{"".join(body)}</svg>'
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    """Centred on a point, in both directions."""
    classes = f' class="{kind}"' if kind else ""
    return f'<text{classes} x="{x:g}" y="{y + 4:g}">{escape(text)}</text>'
