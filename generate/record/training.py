"""Section `training`: a small language model, trained again and again.

One transformer on one text with one recipe; runs differ in who computes the linear
layers. All else is deterministic, so that what differs between two runs comes from
there: attention is products and a softmax of torch's, and an embedding a product
with ones and zeros, for the gradients of torch's own are added in order of arrival.

How far two runs may differ that nobody would call different is asked of
torch.nn.Linear itself. The same run again would not do: on one device it may well
repeat bit for bit. So it also runs with the sequences of each batch in another
order. Parameters, batches, and in exact arithmetic every loss and gradient are the
same then, and only the order differs in which the tokens' contributions to a gradient
are added; which is all that atomic adds change, too. Beside them it runs from other
seeds, as a measure of what a difference that means something looks like.
"""

import functools
import hashlib
import math
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.nn import functional as F

from generate.digest import layers_digest
from generate.record import sentence
from generate.record.context import Context
from generate.schema import (
    Training,
    TrainingModel,
    TrainingPoint,
    TrainingRun,
    TrainingText,
    TrainingWay,
    rounded,
)
from kernels import Linear

ROOT = Path(__file__).parents[2]
TEXT_NAME = "pydoc_data.topics, the documentation that ships with Python"
HELD_OUT = 10  # One byte in so many, at the end.
STEPS, RISING_STEPS, WARM_UP_STEPS = 300, 30, 3
LEARNING_RATE = 6e-4
BETAS, WEIGHT_DECAY = (0.9, 0.95), 0.1
OPTIMIZER = (
    f"AdamW, learning rate {LEARNING_RATE:g} after {RISING_STEPS} steps of rising to "
    f"it, betas {BETAS[0]:g} and {BETAS[1]:g}, weight decay {WEIGHT_DECAY:g}"
)
NOISE = (
    "torch.nn.Linear from the same parameters on the same batches, with the sequences "
    "of each batch in another order"
)
MODEL = TrainingModel(
    layers=4,
    width=512,
    heads=8,
    context_tokens=256,
    batch_sequences=32,
    vocabulary=256,
    parameters=13_004_032,
    parameters_dtype="float32",
    autocast_dtype="bfloat16",
)

# Shuffles of the vendor's batches.
ORDERS = (1, 2, 3, 4, 5)
# Way, seed, order and repeat, in turns, so that a device that grows warm favors none.
Row = tuple[TrainingWay, int, int, int]
ROWS: tuple[Row, ...] = (
    ("vendor", 0, 0, 1),
    ("atomic", 0, 0, 1),
    ("deterministic", 0, 0, 1),
    ("main_grad", 0, 0, 1),
    ("vendor", 0, 0, 2),
    ("atomic", 0, 0, 2),
    ("deterministic", 0, 0, 2),
    *(("vendor", 0, order, 1) for order in ORDERS),
    ("vendor", 1, 0, 1),
    ("vendor", 2, 0, 1),
)


def steps(context: Context) -> int:
    return len(ROWS)


def record(context: Context) -> Training:
    text, described = read_text()
    text = text.to(context.device)
    points = []
    for row in ROWS:
        points.append(point(row, text, described.held_out_bytes, MODEL))
        torch.cuda.empty_cache()
        context.advance()
    return Training(
        section="training",
        **context.header,
        layers_sha256=layers_digest(ROOT),
        text=described,
        model=MODEL,
        steps=STEPS,
        optimizer=OPTIMIZER,
        noise=NOISE,
        points=tuple(points),
    )


def read_text() -> tuple[torch.Tensor, TrainingText]:
    """The bytes of the text, [bytes] uint8, and what it is.

    It differs between versions of Python.
    """
    raw = "\n".join(topics[name] for name in sorted(topics)).encode()
    shares = [times / len(raw) for times in Counter(raw).values()]
    described = TrainingText(
        name=TEXT_NAME,
        text_bytes=len(raw),
        text_sha256=hashlib.sha256(raw).hexdigest(),
        held_out_bytes=len(raw) // HELD_OUT,
        byte_entropy_nats=rounded(-sum(share * math.log(share) for share in shares)),
    )
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8), described


class Block(nn.Module):
    """Attention to what came before, then two linear layers."""

    def __init__(self, width: int, heads: int, linear):
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.qkv = linear(width, 3 * width)
        self.attended = linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.up = linear(width, 4 * width)
        self.down = linear(4 * width, width)

    def forward(self, x: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """x: [sequences, tokens, width]. future: [tokens, tokens], not to be seen."""
        sequences, tokens, width = x.shape
        qkv = self.qkv(self.before_attention(x))
        qkv = qkv.view(sequences, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        seen = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
        x = x + self.attended(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class Transformer(nn.Module):
    """Logits of the next byte; linear: what makes a layer of so many features."""

    def __init__(self, model: TrainingModel, linear):
        super().__init__()
        self.byte = nn.Parameter(torch.empty(model.vocabulary, model.width))
        self.place = nn.Parameter(torch.empty(model.context_tokens, model.width))
        self.blocks = nn.ModuleList(
            Block(model.width, model.heads, linear) for _ in range(model.layers)
        )
        self.norm = nn.LayerNorm(model.width)
        self.head = linear(model.width, model.vocabulary)
        for embedding in (self.byte, self.place):
            nn.init.normal_(embedding, std=0.02)
        size = model.context_tokens
        future = torch.ones(size, size, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[sequences, tokens] to [sequences, tokens, vocabulary]."""
        with torch.autocast(tokens.device.type, enabled=False):  # ones and zeros
            x = F.one_hot(tokens, len(self.byte)).float() @ self.byte + self.place
        for block in self.blocks:
            x = block(x, self.future)
        return self.head(self.norm(x))


LINEAR = {
    "vendor": nn.Linear,
    "atomic": Linear,
    "deterministic": functools.partial(Linear, deterministic=True),
    "main_grad": Linear,
}


def point(
    row: Row, text: torch.Tensor, held_out: int, model: TrainingModel
) -> TrainingPoint:
    """A run, or why there is none.

    text: uint8 on the device to train on, its last held_out bytes not trained on.
    """
    way, seed, order, repeat = row
    run = reason = None
    try:
        # Not timed: kernels are compiled and libraries loaded here.
        train(way, seed, order, text, held_out, model, WARM_UP_STEPS)
        run = train(way, seed, order, text, held_out, model, STEPS)
    except Exception as error:  # A run that fails is a recorded skip.
        reason = sentence(error)
    return TrainingPoint(
        way=way, seed=seed, order=order, repeat=repeat, run=run, skipped_reason=reason
    )


def train(
    way: TrainingWay,
    seed: int,
    order: int,
    text: torch.Tensor,
    held_out: int,
    model: TrainingModel,
    count: int,
) -> TrainingRun:
    """Train a new model for `count` steps. ValueError where a loss is not finite."""
    device, learned = text.device, text[:-held_out]
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(seed)
    network = Transformer(model, LINEAR[way]).to(device)
    if way == "main_grad":
        keep_main_grads(network)
    optimizer = torch.optim.AdamW(
        network.parameters(), betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )
    losses, step_ms, host_ms = [], [], []
    for step, starts in enumerate(batches(len(learned), model, seed, order, count)):
        rate = LEARNING_RATE * min(1, (step + 1) / RISING_STEPS)
        sequences = windows(learned, starts.to(device), model)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=way != "main_grad")
        loss = loss_of(network, sequences, model)
        loss.backward()
        optimizer.step()
        queued = time.perf_counter()
        torch.cuda.synchronize()
        step_ms.append(rounded(1e3 * (time.perf_counter() - begin)))
        host_ms.append(rounded(1e3 * (queued - begin)))
        losses.append(loss.detach())
    found = torch.stack(losses)
    if not found.isfinite().all():
        raise ValueError(f"the loss of a step is {found[~found.isfinite()][0].item()}")
    return TrainingRun(
        # Nine digits tell all numbers of fp32 apart.
        losses_nats=tuple(float(f"{loss:.9g}") for loss in found.tolist()),
        held_out_nats=judged(network, text[-held_out:], model),
        step_ms=tuple(step_ms),
        host_ms=tuple(host_ms),
        parameters_sha256=digest(network),
        peak_bytes=torch.cuda.max_memory_allocated() - before,
    )


def batches(
    length: int, model: TrainingModel, seed: int, order: int, count: int
) -> Iterator[torch.Tensor]:
    """Where each step's sequences begin, [sequences], drawn on the CPU."""
    drawn = torch.Generator().manual_seed(seed)
    shuffled = torch.Generator().manual_seed(order)
    last, size = length - model.context_tokens, model.batch_sequences
    for _ in range(count):
        starts = torch.randint(last, (size,), generator=drawn)
        yield starts[torch.randperm(size, generator=shuffled)] if order else starts


def windows(
    text: torch.Tensor, starts: torch.Tensor, model: TrainingModel
) -> torch.Tensor:
    """Sequences of the context and one byte more, [sequences, context + 1]."""
    places = torch.arange(model.context_tokens + 1, device=text.device)
    return text[starts[:, None] + places].long()


def loss_of(
    network: nn.Module, sequences: torch.Tensor, model: TrainingModel
) -> torch.Tensor:
    """Mean cross-entropy of every byte but the first, in nats, fp32."""
    dtype = getattr(torch, model.autocast_dtype)
    with torch.autocast(sequences.device.type, dtype=dtype):
        logits = network(sequences[:, :-1])
    logits = logits.flatten(0, 1).float()
    return F.cross_entropy(logits, sequences[:, 1:].flatten())


@torch.no_grad()
def judged(network: nn.Module, text: torch.Tensor, model: TrainingModel) -> float:
    """Mean loss over a text, in windows that share but their ends.

    Whole batches of them alone: another T would be other kernels.
    """
    size = model.batch_sequences
    ends = len(text) - model.context_tokens
    starts = torch.arange(0, ends, model.context_tokens, device=text.device)
    parts = starts[: len(starts) // size * size].split(size)
    total = sum(loss_of(network, windows(text, p, model), model) for p in parts)
    return float(f"{total.item() / len(parts):.9g}")


def keep_main_grads(network: nn.Module) -> None:
    """Give each weight of ours a buffer for dW, which the optimizer reads as .grad."""
    for module in network.modules():
        if isinstance(module, Linear):
            weight = module.weight
            weight.grad = weight.main_grad = torch.zeros_like(weight)


def digest(network: nn.Module) -> str:
    """SHA-256, in hexadecimal, of the bits of all parameters, one after another."""
    found = hashlib.sha256()
    for parameter in network.parameters():
        found.update(parameter.detach().cpu().numpy().tobytes())
    return found.hexdigest()
