"""Claims about training with the linear layers: does it, how alike, at what cost."""

from generate.render.claims.base import (
    MARGIN,
    Evidence,
    Said,
    Verdict,
    fails,
    holds,
    in_part,
    longer,
    more,
)
from generate.render.formats import ratio
from generate.render.training import OURS, WAYS

training = Said("training/train", "Does it train?")

# Distances up to so many times the noise are told from ones beyond it.
NEAR = 2
# A step waits for the host whose queueing takes more than this share of it, in percent.
HOST_BOUND = 80


@training(
    "training-learns",
    "A model whose linear layers are these learns its text.",
)
def learns(m: Evidence) -> Verdict:
    entropy = m["training.byte_entropy"]
    ends = m.known([f"training.{way}.held_out" for way in OURS])
    sentence = (
        f"On text that it was not trained on the model ends at {max(ends)} a byte or "
        f"less; knowing no more than how often each byte occurs costs {entropy}."
    )
    return (holds if max(ends) < entropy else fails)(sentence)


@training(
    "training-within-noise",
    "Its loss curves agree with those of nn.Linear within noise.",
)
def within_noise(m: Evidence) -> Verdict:
    noise, least = m["training.noise.apart"], m["training.noise.least"]
    far = max(m.known([f"training.{way}.apart" for way in OURS]))
    sentence = (
        f"Runs of nn.Linear that differ in the order of the sequences alone are "
        f"{least} to {noise} apart; of the runs of these layers the furthest is {far} "
        "from them."
    )
    if far <= noise:
        return holds(f"{sentence} That is noise.")
    if far <= NEAR * noise:
        return in_part(f"{sentence} That is more, but less than {NEAR} times as much.")
    return fails(f"{sentence} That is not noise.")


@training(
    "training-early",
    "They agree from the first steps on.",
)
def early(m: Evidence) -> Verdict:
    noise = m["training.noise.early"]
    far = max(m.known([f"training.{way}.early" for way in OURS]))
    sentence = (
        f"In the first third of the steps those runs of nn.Linear are up to {noise} "
        f"apart, and the furthest of these layers {far} from them"
    )
    if far <= noise:
        return holds(f"{sentence}.")
    return (in_part if far <= NEAR * noise else fails)(
        f"{sentence}, {ratio(far / noise)} as far. No order of sequences changes what "
        "sets the two apart from the first step on: nn.Linear rounds every dW to 16 "
        "bits, these layers do not."
    )


@training(
    "training-ends-alike",
    "It ends at the same loss on held-out text as with nn.Linear, within noise.",
)
def ends_alike(m: Evidence) -> Verdict:
    noise, seeds = m["training.noise.held_out"], m["training.noise.seeds_held_out"]
    off = max(m.known([f"training.{way}.held_out_apart" for way in OURS]))
    sentence = (
        f"On held-out text a run of these layers ends up to {off} from the mean of "
        f"nn.Linear's, whose own runs span {noise}. Other seeds move nn.Linear by "
        f"{seeds}."
    )
    if off <= noise:
        return holds(sentence)
    return (in_part if off <= max(seeds, NEAR * noise) else fails)(sentence)


@training(
    "training-repeats",
    "With deterministic=True, training repeats bit for bit.",
)
def repeats(m: Evidence) -> Verdict:
    distinct, runs = (
        m["training.deterministic.distinct"],
        m["training.deterministic.runs"],
    )
    if distinct == 1:
        return holds(
            f"Asked for determinism, {runs} runs gave every loss and every parameter "
            "with the same bits."
        )
    return fails(
        f"Asked for determinism, {runs} runs ended in {distinct} sets of bits."
    )


@training(
    "training-atomics-do-not-repeat",
    "With atomic adds, the default, it does not.",
)
def atomics_do_not_repeat(m: Evidence) -> Verdict:
    distinct, runs = m["training.atomic.distinct"], m["training.atomic.runs"]
    if distinct > 1:
        return holds(f"With atomic adds, {runs} runs ended in {distinct} sets of bits.")
    return fails(
        f"With atomic adds {runs} runs ended in the same bits, too; nothing promises "
        "that the next will."
    )


@training(
    "training-vendor-repeats",
    "With nn.Linear the same run gives the same bits again.",
)
def vendor_repeats(m: Evidence) -> Verdict:
    distinct, runs = m["training.vendor.distinct"], m["training.vendor.runs"]
    if distinct == 1:
        return holds(
            f"With nn.Linear {runs} runs, nothing changed between them, ended in the "
            "same bits."
        )
    return fails(
        f"With nn.Linear {runs} runs, nothing changed between them, ended in "
        f"{distinct} sets of bits."
    )


@training(
    "training-step-time",
    "A step takes no longer than with nn.Linear.",
)
def step_time(m: Evidence) -> Verdict:
    theirs = m["training.vendor.ms"]
    known = {way: m.get(f"training.{way}.ms") for way in OURS}
    ours = {way: ms for way, ms in known.items() if ms is not None}
    if not ours:
        m[f"training.{OURS[0]}.ms"]
    each = ", ".join(
        f"{ms} with {WAYS[way].replace(', ', ' and ')}"
        + (f" ({more(ms, theirs)} longer)" if longer(ms, theirs) else "")
        for way, ms in ours.items()
    )
    slower = sum(longer(ms, theirs) for ms in ours.values())
    sentence = f"A step takes {theirs} with nn.Linear, {each}."
    if not slower:
        return holds(f"{sentence} No way takes over {MARGIN} longer.")
    return (in_part if slower < len(ours) else fails)(sentence)


@training(
    "training-host",
    "What such a step waits for is the host, not the GPU.",
)
def host(m: Evidence) -> Verdict:
    """Where the host has queued a step only when the GPU is all but done with it."""
    both = [
        (m[f"training.{way}.host_ms"], m[f"training.{way}.ms"])
        for way in WAYS
        if m.get(f"training.{way}.ms") is not None
    ] or [(m["training.vendor.host_ms"], m["training.vendor.ms"])]
    shares = [100 * host / step for host, step in both]
    low, high = (f"{end(shares):.0f}" for end in (min, max))
    sentence = (
        f"Of a step's time, {low if low == high else f'{low} to {high}'} % have passed "
        "when the host has queued all of it."
    )
    waits = sum(share > HOST_BOUND for share in shares)
    if waits == len(shares):
        return holds(
            f"{sentence} So these times are the host's: Python, autograd and launches, "
            "hardly the products."
        )
    return (in_part if waits else fails)(
        f"{sentence} So the GPU is what "
        f"{'some of these steps wait' if waits else 'these steps wait'} for."
    )
