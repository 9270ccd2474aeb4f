"""The crossover widget: its file of GPUs, layers and words, and its first state.

The file holds every recorded GPU and those known from datasheets alone. The widget's
markup stands in the page as it is for the first state; explore.js goes on from there.
"""

import json
import math
from dataclasses import asdict, dataclass

from generate.gpus import DATASHEETS
from generate.render.facts import facts
from generate.render.measured import Measurements, Missing
from generate.render.readings import FRAME, WORDS, fixed, readings, x_of, y_of
from generate.shapes import SPLIT_FACTORS, STARVED, WORKED
from kernels.plan import Tile

# Version of the state in an address, as ?v=1.
VERSION = 1
LIMITS = {"T": (64, 2**20), "K": (16, 2**16), "N": (16, 2**16)}
DIMENSIONS = {"T": "tokens", "K": "input features", "N": "output features"}
PRESETS = (
    ("The lesson's starved layer", *STARVED),
    ("7B MLP, up-projection", *WORKED),
    ("70B MLP, up-projection", 8192, 8192, 28672),
    ("7B attention, Q or output", 8192, 4096, 4096),
    ("7B GQA, K or V", 8192, 4096, 1024),
    ("70B GQA, K or V", 8192, 8192, 1024),
    ("LoRA on 4096, rank 16", 8192, 4096, 16),
    ("LoRA on 4096, rank 64", 8192, 4096, 64),
    ("Small d_model 768, MLP", 16384, 768, 3072),
    ("Small d_model 768, attention", 16384, 768, 768),
    ("MoE expert, 2880", 4096, 2880, 2880),
)
EDGES = ((128, 128), (64, 64), (128, 256), (256, 128))


@dataclass(frozen=True)
class Prompt:
    """A question with choices, and the state that answers it."""

    question: str
    choices: tuple[str, ...]
    right: int
    answer: str
    state: str


def data(measured: Measurements, everything: list[Measurements]) -> dict:
    """What the widget needs, the GPU of `measured` first."""
    newest = {_slug(m): m for m in everything}
    newest.pop(_slug(measured), None)
    recorded = [measured, *newest.values()]
    return {
        "version": VERSION,
        "default": {
            "gpu": _slug(measured),
            "tile": "planned",
            "bytes": 2,
            **dict(zip("TKN", STARVED, strict=True)),
        },
        "limits": LIMITS,
        "dimensions": DIMENSIONS,
        "presets": [[label, *shape] for label, *shape in PRESETS],
        "tiles": {str(itemsize): _tiles(itemsize) for itemsize in (2, 4)},
        "factors": list(SPLIT_FACTORS),
        "words": WORDS,
        "gpus": [_recorded(m) for m in recorded] + _datasheets(),
    }


def text(found: dict) -> str:
    """The file: a line an entry, so that a diff names what changed."""
    parts = []
    for key, value in found.items():
        if key == "gpus":
            entries = ",\n    ".join(map(_line, value))
            parts.append(f'  "gpus": [\n    {entries}\n  ]')
        else:
            parts.append(f"  {_line(key)}: {_line(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def context(found: dict) -> dict:
    """What the widget's template shows of the first state."""
    return {
        "data": found,
        "first": readings(found, found["default"]),
        "state": found["default"],
        "prompts": prompts(found),
        "sources": DATASHEETS,
        "ticks_x": [(s, fixed(x_of(s), 1)) for s in (1, 2, 4, 8, 16, 32, 64)],
        "ticks_y": [(fixed(o, 1), fixed(y_of(o), 1)) for o in (0, 0.5, 1, 1.5, 2)],
        "frame": FRAME,
        "slides": {
            name: fixed(math.log2(found["default"][name]), 2) for name in LIMITS
        },
        "octaves": {
            name: [fixed(math.log2(end), 2) for end in ends]
            for name, ends in LIMITS.items()
        },
    }


def prompts(found: dict) -> list[Prompt]:
    """Things to try, each answered by the arithmetic for the first GPU."""
    default, gpu = found["default"], found["gpus"][0]
    sms = gpu["sm_count"]

    def at(t: int, k: int, n: int) -> tuple[dict, str]:
        state = {**default, "T": t, "K": k, "N": n}
        return readings(found, state)["show"], address(found, state)

    t, k, n = STARVED
    longer, more = at(4 * t, k, n)
    first = readings(found, default)["show"]
    small, small_state = at(131072, 512, 512)
    working = str(min(int(small["tiles"]), sms))
    mlp, mlp_state = at(*WORKED)
    moe, moe_state = at(4096, 2880, 2880)
    return [
        _ask(
            f"Grow T of the starved layer from {t} to {4 * t}. What happens to the "
            "number of dW's tiles?",
            ("it grows fourfold", "it stays", "it falls to a quarter"),
            "it stays",
            f"It stays at {longer['tiles']}: T is contracted, so more tokens make each "
            f"program walk longer, {longer['blocks']} blocks instead of "
            f"{first['blocks']}. More work, no more programs.",
            more,
        ),
        _ask(
            f"Halve K and N of the starved layer to 512. How many of {sms} SMs get "
            "work without a split?",
            _numbers(working, [64, 32, sms, 8]),
            working,
            f"{working}: half of each edge is a quarter of the tiles. The plan "
            f"splits T {small['planned']} ways.",
            small_state,
        ),
        _ask(
            "The up-projection of a 7B MLP, 4096 × 14336. Which split is planned?",
            _numbers(mlp["planned"], [1, 2, 8]),
            mlp["planned"],
            f"{mlp['planned']}: {mlp['sentence']}",
            mlp_state,
        ),
        _ask(
            "An MoE expert, 2880 × 2880, has more tiles than the GPU has SMs. How full "
            "is its last wave?",
            _numbers(moe["share"], ["100 %", "50 %", "25 %"]),
            moe["share"],
            f"{moe['share']}: {moe['sentence']}",
            moe_state,
        ),
    ]


def address(found: dict, state: dict) -> str:
    """A state as it stands in an address, as explore.js writes it."""
    names = ("gpu", "T", "K", "N", "tile", "bytes")
    given = [f"v={found['version']}", *(f"{name}={state[name]}" for name in names)]
    return "?" + "&".join(given)


def _ask(question, choices, right, answer, state) -> Prompt:
    return Prompt(question, tuple(choices), choices.index(right), answer, state)


def _numbers(right: str, others: list) -> list[str]:
    """The right choice among two others, in ascending order."""
    wrong = [text for text in dict.fromkeys(map(str, others)) if text != right][:2]
    return sorted([right, *wrong], key=lambda text: float(text.removesuffix(" %")))


def _slug(measured: Measurements) -> str:
    return measured.recording.name.split("/")[0]


def _recorded(measured: Measurements) -> dict:
    gpu, known = measured.gpu, facts(measured)

    def ceiling(name: str) -> float | None:
        return known[f"ceilings.{name}"].value

    return {
        "id": _slug(measured),
        "name": gpu.name,
        "recording": measured.recording.name,
        "units": "SMs",
        "sm_count": gpu.sm_count,
        "device": asdict(gpu.device),
        "peak_tflops": {"2": ceiling("gemm_tflops")},
        "bandwidth_tbps": ceiling("copy_tbps"),
        "splits": _splits(measured),
    }


def _datasheets() -> list[dict]:
    return [
        {
            "id": sheet.id,
            "name": sheet.name,
            "recording": None,
            "units": sheet.units,
            "sm_count": sheet.sm_count,
            "device": asdict(sheet.device) if sheet.device else None,
            "peak_tflops": {
                str(size): peak for size, peak in sheet.peak_tflops.items()
            },
            "bandwidth_tbps": sheet.bandwidth_tbps,
            "splits": [],
        }
        for sheet in DATASHEETS
    ]


def _splits(measured: Measurements) -> list[dict]:
    """Median times in ms, of shapes whose unsplit time is there to compare with."""
    found = []
    for shape in measured.split_shapes:
        plain = measured.split(shape, "none", 1)
        if isinstance(plain, Missing):
            continue
        ways = {"plain": [[1, plain.time_ms]]}
        for way in ("atomic", "workspace"):
            ways[way] = [
                [point.split_t, point.time_ms] for point in measured.splits(shape, way)
            ]
        found.append({"shape": list(shape), **ways})
    return found


def _tiles(itemsize: int) -> list[dict]:
    deep = 64 if itemsize == 2 else 32
    return [
        {
            "id": f"{k}x{n}",
            **asdict(
                Tile(deep, k, n, num_warps=8 if k * n > 4096 else 4, num_stages=3)
            ),
        }
        for k, n in EDGES
    ]


def _line(value) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
