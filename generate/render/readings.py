"""What the crossover widget says and draws of a state; readings.js says the same.

The two are held together by tests that run both over the same states, so a change
here is a change there. Arithmetic is that of kernels.plan; every sentence is one of
WORDS, which the widget's file carries to the browser.
"""

import math
from decimal import ROUND_HALF_UP, Decimal

from kernels.plan import (
    Device,
    Tile,
    cdiv,
    choose_tile,
    contracted_blocks,
    expected_resident,
    filling_split,
    largest_split,
    output_tiles,
    shared_memory_bytes,
    split_factor,
    split_time,
)

WORDS = {
    "no_fit": "A program with this tile needs {need} of shared memory; the {gpu} gives "
    "it {limit} at most. Choose a smaller tile.",
    "starved": "dW has {tiles} for {sms}: without a split it leaves {idle} idle, while "
    "each program walks {blocks} of T alone.",
    "partial": "dW has {tiles} for {sms}: each has work, but only {share} of the "
    "{slots} places do.",
    "tail": "dW has {tiles} in {slots} places: {waves}, the last {share} full.",
    "split": "The plan splits T {planned} ways, for {programs}: {gain} as fast, by "
    "the model.",
    "whole": "The plan leaves T whole: adding partial sums would cost more than "
    "filling the chip gains.",
    "short": "T is too short to split: a slice would have fewer than 4 blocks.",
    "unplanned_starved": "dW has {tiles} for {sms}: one program a tile leaves {idle} "
    "idle.",
    "unplanned_enough": "dW has {tiles} for {sms}: one program a tile gives each of "
    "them work.",
    "unplanned": "Residency, planned split and time are not computed: plan.py models "
    "NVIDIA's SMs, with warps of 32 threads; this GPU has warps of 64 and other "
    "limits.",
    "chip_plain": "No split: {programs} in {waves}; in the last, {busy} of {sms} at "
    "work",
    "chip_planned": "Planned split of {planned}: {programs} in {waves}; in the "
    "last, {busy} of {sms} at work",
    "chip_unplanned": "No split: {programs}; {busy} of {sms} at work in the first wave",
    "above": "{intensity} FLOP/byte, above the ridge: arithmetic is the limit, once "
    "the chip is full",
    "below": "{intensity} FLOP/byte, below the ridge: memory traffic is the limit, "
    "however full the chip",
    "bare": "{intensity} FLOP/byte",
    "ridge_recorded": "{ridge} FLOP/byte, measured: {peak} TFLOP/s over {bandwidth} "
    "TB/s",
    "ridge_datasheet": "{ridge} FLOP/byte, datasheet, not measured: {peak} TFLOP/s "
    "over {bandwidth} TB/s",
    "ridge_unknown": "not measured for this dtype",
    "exact": "Diamonds and squares: measured at this very shape, recording "
    "{recording}.",
    "near": "Diamonds and squares: measured at the nearest recorded shape, {shape}, "
    "recording {recording}.",
    "far": "No shape near this one was recorded on this GPU; the nearest is {shape}.",
    "other": "Recorded times are of 16-bit inputs and the planned tile; choose those "
    "to see them here.",
    "unrecorded": "Datasheet, not measured: nothing was recorded on this GPU.",
    "unswept": "This recording holds no split sweep.",
    "state": "T {T} × K {K} × N {N} · {gpu} · inputs of {bytes} bytes",
    "recorded": "recorded: {recording}",
    "datasheet": "datasheet, not measured",
    "no_workspace": "none, as nothing is split",
    "not_computed": "not computed",
    "not_measured": "not measured",
    "tile": "tile",
    "program": "program",
    "block": "block",
    "wave": "wave",
}
OPS = ("forward", "dx", "dw")
# A chip is drawn so many units wide; each is a square of 10 with a gap of 2.
COLUMNS = 22
# The curve's frame, in the units of its view box.
LEFT, RIGHT, TOP, BOTTOM, HIGHEST = FRAME = 34, 352, 8, 200, 2
# Sum of the octaves by which T, K and N may differ, to count as near.
NEAR_OCTAVES = 2


def fixed(value: float, digits: int) -> str:
    """So many decimals, halves away from zero, as JavaScript's toFixed."""
    step = Decimal(1).scaleb(-digits)
    return str(Decimal(value).quantize(step, rounding=ROUND_HALF_UP))


def three(value: float) -> str:
    """Three significant digits of a number of at least 1."""
    return fixed(value, 0 if value >= 100 else 1 if value >= 10 else 2)


def scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    power = 0
    while value >= base and power < len(units) - 1:
        value /= base
        power += 1
    number = three(value) if power else str(value)
    return f"{number} {units[power]}"


def flops(value: int) -> str:
    return scaled(
        value, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP")
    )


def size(value: int) -> str:
    return scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def count(number: int, one: str) -> str:
    return f"{number} {one}{'' if number == 1 else 's'}"


def percent(value: float) -> str:
    return f"{fixed(100 * value, 1 if value < 0.1 else 0)} %"


def readings(data: dict, state: dict) -> dict:
    """Texts (`show`), attributes (`draw`), table (`rows`) and what applies (`when`)."""
    gpu = next(g for g in data["gpus"] if g["id"] == state["gpu"])
    shape = T, K, N = state["T"], state["K"], state["N"]
    itemsize = state["bytes"]
    words = data["words"]
    device = Device(**gpu["device"]) if gpu["device"] else None
    tile = _tile(data, state, device)
    tiles = {op: output_tiles(op, shape, _shared(tile, op)) for op in OPS}
    sms = gpu["sm_count"]

    def say(key: str, **given) -> str:
        return words[key].format(**given)

    def units(number: int) -> str:
        one = number == 1
        return f"{number} {gpu['units'][:-1] if one else gpu['units']}"

    work = 2 * T * K * N
    traffic = (T * K + T * N) * itemsize + 4 * K * N
    intensity = work / traffic
    peak = gpu["peak_tflops"].get(str(itemsize))
    known = peak is not None and gpu["bandwidth_tbps"] is not None
    ridge = peak / gpu["bandwidth_tbps"] if known else None
    need = shared_memory_bytes("dw", tile, itemsize)
    limit = device.shared_memory_per_program_bytes if device else need
    planned = device is not None and need <= limit
    dw = tiles["dw"]
    none = words["not_computed"]

    side = "bare" if ridge is None else "above" if intensity >= ridge else "below"
    kind = "ridge_recorded" if gpu["recording"] else "ridge_datasheet"
    show = {
        "flops": flops(work),
        "state": say("state", T=T, K=K, N=N, gpu=gpu["name"], bytes=itemsize),
        "origin": say(
            "recorded" if gpu["recording"] else "datasheet", recording=gpu["recording"]
        ),
        "tile": f"{tile.block_k} × {tile.block_n}, {tile.block_t} of T at a time",
        "blocks": str(contracted_blocks("dw", shape, tile)),
        "sms": units(sms),
        "tiles": str(dw),
        "fills_units": str(filling_split(dw, sms)),
        "intensity": say(side, intensity=three(intensity)),
        "ridge": say(
            kind,
            ridge=fixed(ridge, 0),
            peak=three(peak),
            bandwidth=three(gpu["bandwidth_tbps"]),
        )
        if known
        else words["ridge_unknown"],
        "resident": none,
        "slots": none,
        "waves": none,
        "share": none,
        "fills_slots": none,
        "planned": none,
        "workspace": none,
        "chip_planned": "",
        "measured": "",
    }
    draw, rows = {}, []
    for op in OPS:
        show[f"tiles_{op}"] = str(tiles[op])
        draw[f"bar_{op}"] = {"width": fixed(_along(tiles[op]), 1)}
    for name, places in (("units", sms), ("slots", sms)):
        draw[f"mark_{name}"] = _mark(places)
    when = {"planned": planned, "measured": False, "recorded": bool(gpu["recording"])}

    if not planned:
        busy = min(dw, sms)
        key = "unplanned_starved" if dw < sms else "unplanned_enough"
        facts = {"tiles": count(dw, words["tile"]), "sms": units(sms)}
        show["chip_plain"] = say(
            "chip_unplanned",
            programs=count(dw, words["program"]),
            busy=busy,
            sms=units(sms),
        )
        draw |= _chip("plain", busy, sms, 1)
        if device:
            show["sentence"] = say(
                "no_fit", gpu=gpu["name"], need=size(need), limit=size(limit)
            )
        else:
            first = say(key, idle=units(max(0, sms - dw)), **facts)
            show["sentence"] = f"{first} {words['unplanned']}"
        return {"show": show, "draw": draw, "rows": rows, "when": when}

    blocks = contracted_blocks("dw", shape, tile)
    resident = expected_resident("dw", tile, itemsize, device)
    slots = sms * resident
    split_t = split_factor(dw, blocks, sms, resident)
    most = largest_split(blocks)
    times = [split_time(s, dw, blocks, sms, resident) for s in range(1, most + 1)]
    over = [time / times[0] for time in times]
    last = _last(dw, slots)
    draw["mark_slots"] = _mark(slots)
    show |= {
        "resident": str(resident),
        "slots": str(slots),
        "waves": _waves(dw, slots, words),
        "share": percent(last / slots),
        "fills_slots": str(filling_split(dw, slots)),
        "planned": str(split_t),
        "workspace": size(4 * split_t * K * N)
        if split_t > 1
        else words["no_workspace"],
    }
    for name, split in (("plain", 1), ("planned", split_t)):
        programs = dw * split
        final = _last(programs, slots)
        show[f"chip_{name}"] = say(
            f"chip_{name}",
            planned=split,
            programs=count(programs, words["program"]),
            waves=_waves(programs, slots, words),
            busy=min(final, sms),
            sms=units(sms),
        )
        draw |= _chip(name, final, sms, resident)

    about = "starved" if dw < sms else "partial" if dw < slots else "tail"
    first = say(
        about,
        tiles=count(dw, words["tile"]),
        sms=units(sms),
        idle=units(max(0, sms - dw)),
        blocks=count(blocks, words["block"]),
        slots=slots,
        waves=show["waves"],
        share=show["share"],
    )
    what = "split" if split_t > 1 else "short" if most == 1 else "whole"
    second = say(
        what,
        planned=split_t,
        programs=count(dw * split_t, words["program"]),
        gain=fixed(1 / over[split_t - 1], 2) + "×",
    )
    show["sentence"] = f"{first} {second}"

    draw["curve"] = {"d": _line(over)}
    draw["curve_planned"] = {
        "cx": fixed(x_of(split_t), 1),
        "cy": fixed(y_of(over[split_t - 1]), 1),
    }
    found, note = _nearest(gpu, shape)
    if not gpu["recording"]:
        note = "unrecorded"
    elif not gpu["splits"]:
        note = "unswept"
    elif state["tile"] != "planned" or itemsize != 2:
        note = "other"
    when["measured"] = note in ("exact", "near")
    show["measured"] = say(
        note,
        recording=gpu["recording"],
        shape=" × ".join(map(str, found["shape"])) if found else "",
    )
    curves = {}
    for way in ("plain", "atomic", "workspace"):
        points = found[way] if found and when["measured"] else []
        base = found["plain"][0][1] if points else 1
        curves[way] = {split: ms / base for split, ms in points}
        draw[f"points_{way}"] = {"d": _points(way, curves[way])}
    for split in sorted({*data["factors"], split_t}):
        modelled = fixed(over[split - 1], 2) if split <= most else none
        cells = [str(split), modelled]
        for way in ("atomic", "workspace"):
            value = curves[way].get(split)
            if split == 1 and value is None:
                value = curves["plain"].get(1)
            cells.append(words["not_measured"] if value is None else fixed(value, 2))
        rows.append(cells)
    return {"show": show, "draw": draw, "rows": rows, "when": when}


def _tile(data: dict, state: dict, device: Device | None) -> Tile:
    """The tile of a state; where nothing can be planned, the first of the list."""
    offered = data["tiles"][str(state["bytes"])]
    if state["tile"] == "planned" and device:
        return choose_tile("dw", state["bytes"], device)
    chosen = [tile for tile in offered if tile["id"] == state["tile"]]
    fields = {k: v for k, v in (chosen or offered)[0].items() if k != "id"}
    return Tile(**fields)


def _shared(tile: Tile, op: str) -> Tile:
    """dW's tile turned to another op's output: its two edges, in the same order."""
    rows, columns, deep = tile.block_k, tile.block_n, tile.block_t
    blocks = {
        "forward": (rows, deep, columns),
        "dx": (rows, columns, deep),
        "dw": (deep, rows, columns),
    }[op]
    return Tile(*blocks, num_warps=tile.num_warps, num_stages=tile.num_stages)


def _waves(programs: int, slots: int, words: dict) -> str:
    return count(cdiv(programs, slots), words["wave"])


def _last(programs: int, slots: int) -> int:
    """Programs in the last wave."""
    return programs % slots or min(programs, slots)


def _along(number: int) -> float:
    """Where a number of tiles lies on a logarithmic scale from 1 to 2²⁰, in percent."""
    return max(1, min(100, 5 * math.log2(number)))


def _mark(places: int) -> dict:
    at = fixed(_along(places), 1)
    return {"x1": at, "x2": at}


def _chip(name: str, running: int, sms: int, resident: int) -> dict:
    """Squares for SMs, strips in them for slots; the first of each fill first."""
    wide = fixed(8 / resident, 2)
    paths = {"busy": [], "idle": []}
    for slot in range(resident):
        for sm in range(sms):
            kind = "busy" if slot * sms + sm < running else "idle"
            x = fixed(sm % COLUMNS * 10 + 1 + slot * 8 / resident, 2)
            y = sm // COLUMNS * 10 + 1
            paths[kind].append(f"M{x} {y}h{wide}v8h-{wide}z")
    rows = -(-sms // COLUMNS)
    return {
        f"chip_{name}": {"viewBox": f"0 0 {COLUMNS * 10} {rows * 10}"},
        f"chip_{name}_busy": {"d": "".join(paths["busy"])},
        f"chip_{name}_idle": {"d": "".join(paths["idle"])},
    }


def x_of(split_t: int) -> float:
    return LEFT + 10 + (RIGHT - LEFT - 20) * math.log2(split_t) / 6


def y_of(over: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * over / HIGHEST


def _line(over: list[float]) -> str:
    """The modelled curve, cut where it leaves the frame."""
    path = []
    for index, value in enumerate(over):
        if value > HIGHEST:
            break
        start = "L" if path else "M"
        path.append(f"{start}{fixed(x_of(index + 1), 1)} {fixed(y_of(value), 1)}")
    return "".join(path)


def _points(way: str, times: dict[int, float]) -> str:
    """Squares for one program a tile, diamonds for splits, those within the frame."""
    mark = {"plain": "m-4 -4h8v8h-8z"}.get(way, "m0 -5l5 5l-5 5l-5 -5z")
    return "".join(
        f"M{fixed(x_of(split), 1)} {fixed(y_of(value), 1)}{mark}"
        for split, value in times.items()
        if value <= HIGHEST
    )


def _nearest(gpu: dict, shape: tuple[int, int, int]) -> tuple[dict | None, str]:
    """The recorded shape that differs by the fewest octaves, and how near it is."""
    best, least = None, math.inf
    for swept in gpu["splits"]:
        apart = sum(
            abs(math.log2(a / b)) for a, b in zip(shape, swept["shape"], strict=True)
        )
        if apart < least:
            best, least = swept, apart
    note = "exact" if least == 0 else "near" if least <= NEAR_OCTAVES else "far"
    return best, note
