"""Claims about dW's few tiles, idle SMs and the split over T."""

from generate.render.claims.base import (
    AT_STARVED,
    DW,
    MARGIN,
    NOISE,
    SPLIT,
    Evidence,
    Said,
    Verdict,
    counted,
    fails,
    holds,
    in_part,
    longer,
)
from generate.render.formats import count, milliseconds, shape_key, shape_label
from generate.render.measured import ITEMSIZE, Missing
from generate.shapes import (
    SPLIT_FACTORS,
    SPLIT_SHAPES,
    STARVED,
    TIMELINE_FACTORS,
    TIMELINE_SHAPES,
    WORKED,
    Shape,
)
from kernels.plan import (
    cdiv,
    choose_tile,
    contracted_blocks,
    output_tiles,
    split_range,
    waves,
)

# Layers whose dW is small, K × N.
NARROW = {
    (768, 768): "attention at d_model 768",
    (1024, 1024): "attention at d_model 1024",
    (2048, 512): "K or V of 4 heads at d_model 2048",
    (4096, 64): "a LoRA factor of rank 64",
    (4096, 16): "a LoRA factor of rank 16",
}

# Whose last wave is partly filled, one program a tile; the second has full ones
# before it.
LAST_WAVE = ((16384, 768, 3072), (4096, 2880, 2880))
SEVERAL_WAVES = LAST_WAVE[1]
# SM-time with a program, in percent, from which the chip counts as filled.
FULL = 95

dw_starves = Said("lesson/dw-starves", "4. Kernel 2: dW, and why it starves")
split_k = Said("lesson/split-k", "5. Split-K over T")
crossover = Said("explore", "10. Find the crossover")
dw_file = Said("kernels/dw", "The dW kernel")
timeline = Said("evidence/timeline", "See dW starve")


# Part 4: why dW starves


@dw_starves(
    "worked-tiles",
    "K = 4096, N = 14336 gives 32·112 = 3584 tiles of 128×128.",
)
def worked_tiles(m: Evidence) -> Verdict:
    tiles, sms = m.tiles(4096, 14336), m["gpu.sm_count"]
    sentence = (
        f"It is {tiles} tiles on this GPU, {tiles / sms:.1f} for each of its {sms} SMs."
    )
    return (holds if tiles == 3584 else fails)(sentence)


@dw_starves(
    "starved-tiles",
    "K = N = 1024 gives 64 tiles, fewer than the GPU has SMs.",
)
def starved_tiles(m: Evidence) -> Verdict:
    tiles, sms = m.tiles(1024, 1024), m["gpu.sm_count"]
    if tiles < sms:
        return holds(f"A 1024×1024 weight is {tiles} tiles, and the GPU has {sms} SMs.")
    return fails(
        f"A 1024×1024 weight is {tiles} tiles, which suffices for the {sms} SMs of "
        "this GPU and starves a larger one."
    )


@dw_starves(
    "tokens-add-no-tile",
    "More tokens do not help: T is not in dW's grid.",
)
def tokens_add_no_tile(m: Evidence) -> Verdict:
    tile = choose_tile("dw", ITEMSIZE, m.measured.gpu.device)
    batches = (8192, 32768, 131072)
    dx, dw = (
        [output_tiles(op, (t, 1024, 1024), tile) for t in batches]
        for op in ("dx", "dw")
    )
    sentence = f"From T = {batches[0]} to T = {batches[-1]} at K = N = 1024, dX goes"
    tiles = f"from {dx[0]} to {dx[-1]} tiles"
    if len(set(dw)) == 1:
        return holds(f"{sentence} {tiles}, and dW stays at {dw[0]}.")
    return fails(f"{sentence} {tiles}, and dW from {dw[0]} to {dw[-1]}.")


@dw_starves(
    "dw-pays",
    "With few tiles, dW takes longer than dX for the same FLOPs.",
)
def dw_pays(m: Evidence) -> Verdict:
    dx = m[f"gemm.{shape_key(STARVED)}.dx.lesson.ms"]
    dw = m[f"{SPLIT}.none.1.ms"]
    took = f"dX took {dx} and dW, one program a tile, {dw}"
    if longer(dw, dx):
        return holds(
            f"On {m.word('gpu.name')} {took}: {dw / dx:.1f} times as long for the same "
            "FLOPs."
        )
    return fails(
        f"On {m.word('gpu.name')}, though, {took}: this GPU does not make dW pay for "
        "its few programs."
    )


@dw_starves(
    "idle-sms",
    "dW starves below about 132 tiles: SMs without a tile idle.",
)
def idle_sms(m: Evidence) -> Verdict:
    tiles, sms = m.tiles(1024, 1024), m["gpu.sm_count"]
    active = m[f"{DW}.none.1.sm_active_pct"]
    most = min(100, 100 * tiles / sms)
    if tiles >= sms:
        return fails(
            f"{tiles} programs are enough for the {sms} SMs of this GPU; it had work "
            f"on them for {active} of SM-time."
        )
    if active <= most + 2:
        return holds(
            f"With {tiles} programs at most {most:.0f} % of {sms} SMs can have work, "
            f"and the counter agrees: {active} of SM-time."
        )
    return fails(
        f"With {tiles} programs at most {most:.0f} % of {sms} SMs should have work. "
        f"The counter reads {active}, which this simple count does not explain."
    )


@dw_starves(
    "twenty-percent",
    "The dW kernel shows about 20 % SM occupancy in the profiler.",
)
def twenty_percent(m: Evidence) -> Verdict:
    names = {
        "achieved_pct": "achieved occupancy",
        "sm_active_pct": "the SM-active share",
        "tensor_pct": "the tensor-pipe share",
    }
    found = {names[f]: m[f"{DW}.none.1.{f}"] for f in names}
    name = min(found, key=lambda name: abs(found[name] - 20))
    if abs(found[name] - 20) <= 5:
        return holds(
            f"{AT_STARVED}, of the three that are counted, {name} comes nearest to the "
            f"question's 20 %, with {found[name]}."
        )
    listed = ", ".join(f"{name} {share}" for name, share in found.items())
    none_near = f"{AT_STARVED} no counted share is near 20 %: {listed}"
    fill = m.get("timeline.32768x640x640.1.fill_pct")
    if fill is None:
        return fails(f"{none_near}.")
    where = (
        f"at K = N = 640, {m.tiles(640, 640)} tiles, SMs had work for {fill} of SM-time"
    )
    if abs(fill - 20) <= 5:
        return in_part(
            f"It depends on the layer. {none_near}; {where}, and there the figure is "
            "right."
        )
    return fails(f"{none_near}; {where}.")


@dw_starves(
    "attention-4096",
    "Shrink to attention's K = N = 4096 projections, and the tile count drops below "
    "132.",
)
def attention_4096(m: Evidence) -> Verdict:
    tiles, sms = m.tiles(4096, 4096), m["gpu.sm_count"]
    if tiles < sms:
        return holds(f"It is {tiles} tiles, and this GPU has {sms} SMs.")
    slip = (
        f"A slip of the pen: K = N = 4096 is {tiles} tiles, {tiles / sms:.1f} for each "
        f"of {sms} SMs."
    )
    below = {what: m.tiles(*kn) for kn, what in NARROW.items() if m.tiles(*kn) < sms}
    if not below:
        return fails(slip)
    listed = ", ".join(f"{what} ({tiles})" for what, tiles in below.items())
    return fails(
        f"{slip} What is meant is true of narrower layers, which do have fewer tiles "
        f"than SMs here: {listed}."
    )


@dw_starves(
    "narrow-layers",
    "A small d_model, K and V of few heads and LoRA factors have fewer tiles than the "
    "GPU has SMs.",
)
def narrow_layers(m: Evidence) -> Verdict:
    sms = m["gpu.sm_count"]
    tiles = {what: m.tiles(*kn) for kn, what in NARROW.items()}
    listed = ", ".join(f"{what} ({number})" for what, number in tiles.items())
    below = sum(number < sms for number in tiles.values())
    return counted(
        below,
        len(tiles),
        f"Tiles: {listed}. Of these {len(tiles)} layers {below} have fewer than {sms}.",
    )


@dw_starves(
    "last-wave",
    "Fewer tiles than SMs is not the whole rule: 768×3072 and 2880×2880 lose 20 to "
    "30 % to a last, partly filled wave.",
)
def last_wave(m: Evidence) -> Verdict:
    words, good = [], 0
    for shape in LAST_WAVE:
        fill = m[f"timeline.{shape_key(shape)}.1.fill_pct"]
        tiles = m.tiles(*shape[1:])
        good += tiles >= m["gpu.sm_count"] and 15 <= 100 - fill <= 35
        words.append(f"{shape_label(shape[1:])}, {tiles} tiles, filled {fill}")
    return counted(
        good,
        2,
        f"Of the time of all {m['gpu.sm_count']} SMs, one program a tile of "
        f"{'; '.join(words)}.",
    )


@dw_starves(
    "wide-tiles",
    "With tiles of 128×256, 2880×2880 is 276 tiles, 2.09 waves, and 768×3072 is 72.",
)
def wide_tiles(m: Evidence) -> Verdict:
    sms = m["gpu.sm_count"]
    large, small = (cdiv(k, 128) * cdiv(n, 256) for k, n in ((2880, 2880), (768, 3072)))
    filled = f"{waves(large, sms):.2f}"
    return counted(
        (large == 276) + (filled == "2.09") + (small == 72),
        3,
        f"⌈2880/128⌉·⌈2880/256⌉ is {large}, {filled} waves of {sms} SMs; "
        f"⌈768/128⌉·⌈3072/256⌉ is {small}.",
    )


@dw_starves(
    "sharing",
    "Two programs can share an SM, so filling the SMs is not filling the chip.",
)
def sharing(m: Evidence) -> Verdict:
    sms, resident = m["gpu.sm_count"], m[f"{DW}.none.1.resident"]
    if resident > 1:
        return holds(
            f"An SM holds {resident} programs of this kernel at once. So {sms} "
            f"programs occupy the SMs, but it takes {sms * resident:.0f} to fill the "
            "chip."
        )
    return fails(
        "In this build only one fits on an SM, so one program an SM is also all it can "
        "hold."
    )


# Part 5: split-K over T


@split_k(
    "programs-of-a-split",
    "64 tiles with SPLIT_T = 8 are 512 programs.",
)
def programs_of_a_split(m: Evidence) -> Verdict:
    tiles = m.tiles(1024, 1024)
    point = m.measured.occupancy(STARVED, "dw", "atomic", 8)
    says = f"K = N = 1024 is {tiles} tiles here, {8 * tiles} programs with SPLIT_T = 8"
    if isinstance(point, Missing):
        return (holds if 8 * tiles == 512 else fails)(f"{says}.")
    launched = f"{says}; the recorded launch had {point.programs}."
    return (holds if 8 * tiles == point.programs == 512 else fails)(launched)


@split_k(
    "one-owner-a-block",
    "Each split owns one slice of T: no block is left out, none is counted twice, and "
    "SPLIT_T = 1 is the plain GEMM.",
)
def one_owner_a_block(m: Evidence) -> Verdict:
    tile = choose_tile("dw", ITEMSIZE, m.measured.gpu.device)
    good = cases = 0
    for shape in SPLIT_SHAPES:
        blocks = contracted_blocks("dw", shape, tile)
        for split_t in SPLIT_FACTORS:
            ranges = [split_range(s, split_t, blocks) for s in range(split_t)]
            owned = [block for low, high in ranges for block in range(low, high)]
            good += owned == list(range(blocks))
            cases += 1
    return counted(
        good,
        cases,
        f"By the kernel's own formula, in {good} of {cases} recorded shapes and "
        "factors the slices are all blocks once, in order.",
    )


@split_k(
    "split-pays",
    "The fix for a starved dW is to split T.",
)
def split_pays(m: Evidence) -> Verdict:
    plain, best = m[f"{SPLIT}.none.1.ms"], m[f"{SPLIT}.best.ms"]
    if longer(plain, best):
        return holds(
            f"One program a tile took {plain}; {m[f'{SPLIT}.best.split_t']} programs a "
            f"tile took {best}."
        )
    return fails(
        f"On this GPU no split improved on one program a tile, {plain}, by more than "
        f"{MARGIN}."
    )


@split_k(
    "two-splits",
    "Two programs a tile put work on idle SMs and shorten dW.",
)
def two_splits(m: Evidence) -> Verdict:
    plain, two = m[f"{SPLIT}.none.1.ms"], m[f"{SPLIT}.atomic.2.ms"]
    if longer(plain, two):
        return holds(
            "Two programs a tile put work on more SMs, and the time fell to "
            f"{100 * two / plain:.0f} % of the unsplit one, from {plain} to {two}."
        )
    return fails(
        f"Two programs a tile did not shorten the time here, {two} after {plain}: the "
        "unsplit kernel was not short of programs, or adding partial sums ate the gain."
    )


@split_k(
    "four-splits",
    "Beyond one program an SM, a second one fills the gaps that the first leaves.",
)
def four_splits(m: Evidence) -> Verdict:
    two, four = m[f"{SPLIT}.atomic.2.ms"], m[f"{SPLIT}.atomic.4.ms"]
    if not longer(two, four):
        return fails(
            f"Four programs a tile brought nothing over two: {four} after {two}."
        )
    programs, sms = 4 * m.tiles(1024, 1024), m["gpu.sm_count"]
    if programs > sms:
        return holds(
            f"Four programs a tile shortened it again, from {two} to {four}: with "
            f"{programs} programs on {sms} SMs some hold more than one at a time, and "
            "each fills gaps the other leaves."
        )
    return in_part(
        f"Four programs a tile shortened it again, from {two} to {four}, though "
        f"{programs} programs are not one for each of {sms} SMs yet."
    )


@split_k(
    "split-fills",
    "One program a tile leaves half of the chip idle; two splits fill it.",
)
def split_fills(m: Evidence) -> Verdict:
    one, two = m[f"{DW}.none.1.sm_active_pct"], m[f"{DW}.atomic.2.sm_active_pct"]
    sentence = (
        f"{AT_STARVED} one program a tile kept the SMs active {one} of the time, two "
        f"programs a tile {two}."
    )
    if one < 60 and two > 90:
        return holds(sentence)
    return (in_part if two > one else fails)(sentence)


@split_k(
    "small-splits-win",
    "The best time comes at 2 to 4 splits; 8 and more get slower.",
)
def small_splits_win(m: Evidence) -> Verdict:
    best, at = m[f"{SPLIT}.best.ms"], m[f"{SPLIT}.best.split_t"]
    eight = min(m[f"{SPLIT}.atomic.8.ms"], m[f"{SPLIT}.workspace.8.ms"])
    good = (2 <= at <= 4) + longer(eight, best)
    sentence = (
        f"{AT_STARVED} the best time, {best}, comes at SPLIT_T = {at}; 8 took {eight}."
    )
    return counted(good, 2, sentence)


@split_k(
    "too-many-splits",
    "Too many splits are slow: each is one more partial sum to add.",
)
def too_many_splits(m: Evidence) -> Verdict:
    best, at, most = (
        m[f"{SPLIT}.best.ms"],
        m[f"{SPLIT}.best.split_t"],
        m[f"{SPLIT}.atomic.64.ms"],
    )
    if longer(most, best):
        return holds(
            f"Here the best time, {best}, comes at SPLIT_T = {at} "
            f"({m.word(f'{SPLIT}.best.reduction')}). At 64, with 256 MiB of partial "
            f"sums for a gradient of 4 MiB, the atomic form takes {most}."
        )
    return fails(
        "At this shape the recorded range does not reach the far end of the curve: 64 "
        f"splits, {most}, are still as good as any, {best}."
    )


@split_k(
    "full-grid",
    "Where dW has tiles enough, there is nothing for a split to repair.",
)
def full_grid(m: Evidence) -> Verdict:
    gain = m[f"split.{shape_key(WORKED)}.gain"]
    at = m[f"split.{shape_key(WORKED)}.best.split_t"]
    if at == 1:
        return holds(f"With {m.tiles(4096, 14336)} tiles the best split is {at}.")
    if gain <= 1 + NOISE:
        return holds(
            f"The best split is {at} and not 1, for a gain of {gain}: within {MARGIN}, "
            "noise."
        )
    return fails(f"The best split is {at}, and that is worth {gain}.")


@split_k(
    "rest-of-a-wave",
    "Where full waves leave a few tiles for the last one, a split gains nothing: it "
    "gives every tile another partial sum.",
)
def rest_of_a_wave(m: Evidence) -> Verdict:
    key, at = shape_key(SEVERAL_WAVES), shape_label(SEVERAL_WAVES)
    fill, gain = m[f"timeline.{key}.1.fill_pct"], m[f"split.{key}.gain"]
    sentence = f"At {at} one program a tile fills {fill} of the SM-time"
    if gain > 1 + NOISE:
        return fails(f"{sentence}, and the best split gains {gain}.")
    if fill >= FULL:
        return in_part(f"{sentence}, and no split gains more than {MARGIN}.")
    return holds(
        f"{sentence} and leaves the rest idle, but no split gains more than {MARGIN}: "
        "each gives every tile another partial sum, for the sake of a few."
    )


@split_k(
    "plan-is-close",
    "The split can be chosen before the launch, by arithmetic alone.",
)
def plan_is_close(m: Evidence) -> Verdict:
    keys = [f"split.{shape_key(shape)}.planned.over_best" for shape in SPLIT_SHAPES]
    found = m.known(keys)
    good = sum(over <= 1.05 for over in found)
    return counted(
        good,
        len(found),
        "The planned split took at most 5 % longer than the best of the sweep at "
        f"{good} of {len(found)} shapes, at worst {max(found)} its time.",
    )


# Part 10: find the crossover


@crossover(
    "shrinking-starves",
    "Shrinking K and N starves dW.",
)
def shrinking_starves(m: Evidence) -> Verdict:
    sms = m["gpu.sm_count"]
    tiles = {side: m.tiles(side, side) for side in (4096, 2048, 1024, 512)}
    listed = ", ".join(f"{number} at {side}" for side, number in tiles.items())
    below = [side for side, number in tiles.items() if number < sms]
    sentence = f"Tiles at K = N: {listed}, for {sms} SMs."
    return (holds if below and 4096 not in below else in_part if below else fails)(
        sentence
    )


@crossover(
    "growing-t-starves",
    "Growing T starves dW: the idle SMs cost more time.",
)
def growing_t_starves(m: Evidence) -> Verdict:
    lost = {
        t: m[f"{key}.none.1.ms"] - m[f"{key}.best.ms"]
        for t in (8192, 32768, 65536)
        for key in [f"split.{t}x1024x1024"]
    }
    listed = ", ".join(f"{milliseconds(ms)} at T = {t}" for t, ms in lost.items())
    sentence = (
        "T adds no tile, but one program a tile loses more against the best split: "
        f"{listed}, with K = N = 1024."
    )
    grows = list(lost.values()) == sorted(lost.values()) and min(lost.values()) > 0
    if grows:
        return holds(sentence)
    return fails(f"What one program a tile loses does not grow with T: {listed}.")


@dw_file(
    "four-occupy",
    "Four programs a tile occupy the SMs better than one.",
)
def four_occupy(m: Evidence) -> Verdict:
    one, four = m[f"{DW}.none.1.achieved_pct"], m[f"{DW}.atomic.4.achieved_pct"]
    if four > one * (1 + NOISE):
        return holds(
            f"Four programs a tile raised the achieved occupancy from {one} to {four}."
        )
    return fails(
        f"Four programs a tile did not raise the achieved occupancy: {one} with one, "
        f"{four} with four."
    )


# The SM timeline


TRACED = f"timeline.{shape_key(STARVED)}"
FIFTH = "timeline.32768x640x640"


@timeline(
    "splits-end-sooner",
    "Splitting T puts idle SMs to work, and dW is done sooner.",
)
def splits_end_sooner(m: Evidence) -> Verdict:
    one, four = m[f"{TRACED}.1.makespan_us"], m[f"{TRACED}.4.makespan_us"]
    fill = [m[f"{TRACED}.{split_t}.fill_pct"] for split_t in (1, 4)]
    sentence = (
        f"With T = 32768 and K = N = 1024, one program a tile kept "
        f"{m[f'{TRACED}.1.sms']} of {m['gpu.sm_count']} SMs at work, {fill[0]} of the "
        f"SM-time, and was done after {one}. Four programs a tile filled {fill[1]} and "
        f"were done after {four}"
    )
    good = (fill[1] > fill[0]) + longer(one, four)
    gain = "" if longer(one, four) else ", which on this GPU is no gain"
    return counted(good, 2, f"{sentence}{gain}.")


@timeline(
    "idle-sms-first",
    "A program goes to an idle SM before a second one joins a first.",
)
def idle_sms_first(m: Evidence) -> Verdict:
    programs, sms = m[f"{TRACED}.2.programs"], m[f"{TRACED}.2.sms"]
    if programs > m["gpu.sm_count"]:
        return in_part(
            f"At S = 2 there are {programs} programs, more than SMs, so some must "
            "share."
        )
    if sms == programs:
        return holds(
            f"At S = 2 none shares an SM: {programs} programs went to as many SMs, one "
            "each, although every SM has room for more."
        )
    return fails(
        f"At S = 2 {programs} programs went to {sms} SMs, though others idled."
    )


@timeline(
    "few-share",
    "A grid just above the SM count ends with the few SMs that have two programs.",
)
def few_share(m: Evidence) -> Verdict:
    shape = (16384, 768, 3072)
    trace = m.point(m.measured.timeline(shape, 1)).trace
    key = f"timeline.{shape_key(shape)}.1"
    programs, sms = m[f"{key}.programs"], m[f"{key}.sms"]
    sentence = f"At S = 1, {shape_label(shape)} is {programs} programs on {sms} SMs."
    last = trace.sm[trace.end_ns.index(trace.makespan_ns)]
    if not 0 < programs - sms < sms / 2:
        return fails(f"{sentence} It is not a few that share one.")
    if trace.sm.count(last) > 1:
        return holds(f"{sentence} A few have two, and the launch ends with them.")
    return in_part(f"{sentence} A few have two, but the launch does not end with them.")


@timeline(
    "stream-k-fills",
    "Stream-K's equal shares end at about the same time, so that the SMs have work "
    "almost until the end.",
)
def stream_k_fills(m: Evidence) -> Verdict:
    shapes = [shape_key(shape) for shape in TIMELINE_SHAPES]
    found = m.known([f"timeline.{shape}.stream_k.fill_pct" for shape in shapes])
    good = sum(fill >= FULL for fill in found)
    return counted(
        good,
        len(found),
        f"In stream-K form SMs held a program for {FULL} % of the SM-time or more at "
        f"{good} of {count(len(found), 'shape')}, for {min(found)} at the least.",
    )


@timeline(
    "stream-k-sooner",
    "Where a last wave is partly filled, stream-K fills it and is done sooner than "
    "any traced split.",
)
def stream_k_sooner(m: Evidence) -> Verdict:
    words, fuller, sooner = [], 0, 0
    for shape in LAST_WAVE:
        key = f"timeline.{shape_key(shape)}"
        splits = {s: m[f"{key}.{s}.makespan_us"] for s in TIMELINE_FACTORS}
        best = min(splits, key=splits.get)
        ends, fill = (m[f"{key}.stream_k.{n}"] for n in ("makespan_us", "fill_pct"))
        split_fill = m[f"{key}.{best}.fill_pct"]
        fuller += fill > split_fill
        sooner += longer(splits[best], ends)
        words.append(
            f"{shape_label(shape)} was done after {ends}, {fill} filled, and by the "
            f"best traced split, S = {best}, after {splits[best]}, {split_fill} filled"
        )
    sentence = (
        f"Of the two shapes with a partly filled last wave, stream-K filled the SMs "
        f"better than the best traced split at {fuller} and was done more than "
        f"{MARGIN} sooner at {sooner}: {'; '.join(words)}."
    )
    others = [shape for shape in TIMELINE_SHAPES if shape not in LAST_WAVE]
    later = [ended for s in others if (ended := _later(m, s)) is not None]
    if later:
        sentence += (
            f" At the other {count(len(later), 'traced shape')} it was done more than "
            f"{MARGIN} later than the best traced split at {sum(later)}."
        )
    return counted(fuller + sooner, 4, sentence)


def _later(m: Evidence, shape: Shape) -> bool | None:
    """Whether stream-K ended later than every split; None if one was not traced."""
    forms = ("stream_k", *TIMELINE_FACTORS)
    ends = [m.get(f"timeline.{shape_key(shape)}.{form}.makespan_us") for form in forms]
    return None if None in ends else longer(ends[0], min(ends[1:]))


@timeline(
    "utilization-is-blind",
    "GPU-Util is blind to starvation: one program on one SM is enough to keep it high.",
)
def utilization_is_blind(m: Evidence) -> Verdict:
    used, fill = m[f"{FIFTH}.1.utilization_pct"], m[f"{FIFTH}.1.fill_pct"]
    planned = m[f"{FIFTH}.planned.split_t"]
    sentence = f"GPU-Util showed {used} while SMs had work for {fill} of SM-time."
    if used < 2 * fill:
        return fails(sentence)
    later = m.get(f"{FIFTH}.{planned:.0f}.utilization_pct")
    if later is not None and later < used:
        sentence += (
            f" With {planned} splits it even falls, to {later}, because shorter "
            "kernels leave gaps between one another."
        )
    return holds(sentence)


@timeline(
    "traces-agree",
    "Fill by the trace and by the hardware counter agree within 5 points.",
)
def traces_agree(m: Evidence) -> Verdict:
    compared, within = m["timeline.compared"], m["timeline.within"]
    largest = f"the largest difference is {m['timeline.largest']}"
    if within == compared:
        return holds(f"All {compared} launches agree within 5 points; {largest}.")
    return (in_part if within else fails)(
        f"Of {compared} launches, {within} agree within 5 points; {largest}."
    )
