"""One timer for every row of a recording.

Rules (each answers a public report of a number that was wrong): the whole
operation is timed, by device events around it; the device is warmed up for a
stated time; L2 is flushed before every call by reading a buffer, so that it
holds clean lines of something else; compared calls take turns, launch by launch, in
orders that give none a neighbor of its own; each round of turns is queued behind a
kernel that keeps the device busy, and counts only if it was queued whole before the
device got to it, so that no gap of the host is ever timed; all samples are kept.
"""

import time
from collections.abc import Callable, Hashable, Sequence

import torch

from generate.record import sentence
from generate.record.nvml import Nvml
from generate.schema import DeviceState, rounded

WARMUP_MS = 200.0
SAMPLES = 40
FLUSH_FACTOR = 4
# torch.cuda._sleep counts cycles; at 2 GHz this is a millisecond.
SLEEP_CYCLES_PER_MS = 2_000_000
# How long the device is kept busy before a round, at first and at most.
HEAD_MS, LONGEST_HEAD_MS = 0.25, 512.0

Call = Callable[[], torch.Tensor]


class Timer:
    """Times calls on one CUDA device; see the module for the rules."""

    def __init__(self, device: torch.device, nvml: Nvml):
        properties = torch.cuda.get_device_properties(device)
        size = FLUSH_FACTOR * properties.L2_cache_size
        self._lines = torch.ones(size // 4, dtype=torch.float32, device=device)
        self._sum = torch.empty((), dtype=torch.float32, device=device)
        self._nvml = nvml

    def flush(self) -> None:
        """Leave clean lines of something else in L2."""
        torch.sum(self._lines, dim=0, out=self._sum)

    def compare(
        self, calls: dict[Hashable, Call], samples: int = SAMPLES
    ) -> tuple[dict[Hashable, tuple[float, ...]], DeviceState]:
        """Samples in ms of each call, taken in turns, and the device's state."""
        self._warm_up(list(calls.values()))
        times = {key: [] for key in calls}
        keys, head_ms = list(calls), HEAD_MS
        while len(times[keys[0]]) < samples:
            order = in_turn(keys, len(times[keys[0]]))
            events, queued = self._round([calls[key] for key in order], head_ms)
            if len(times[keys[0]]) == samples - 1:
                state = self._nvml.state()
            torch.cuda.synchronize()
            if not queued:
                if head_ms >= LONGEST_HEAD_MS:
                    raise RuntimeError(f"{len(keys)} calls cannot be queued in time")
                head_ms *= 2
                continue
            for key, (start, end) in zip(order, events, strict=True):
                times[key].append(rounded(start.elapsed_time(end)))
        return {key: tuple(found) for key, found in times.items()}, state

    def _round(self, calls: list[Call], head_ms: float) -> tuple[list, bool]:
        """Events around each call, and whether all were queued in time."""
        torch.cuda._sleep(int(head_ms * SLEEP_CYCLES_PER_MS))
        head = torch.cuda.Event()
        head.record()
        events = []
        for call in calls:
            self.flush()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            events.append((start, end))
        return events, not head.query()

    def _warm_up(self, calls: list[Call]) -> None:
        begin = time.perf_counter()
        while (time.perf_counter() - begin) * 1e3 < WARMUP_MS:
            for call in calls:
                call()
            torch.cuda.synchronize()


def in_turn(keys: Sequence[Hashable], turn: int) -> list[Hashable]:
    """The keys in the order of a round.

    Rows of a Williams square, each also backwards: over twice as many rounds as keys,
    each stands equally often at each place, and equally often behind each other.
    """
    count, row = len(keys), turn // 2
    places = [(place + 1) // 2 if place % 2 else -place // 2 for place in range(count)]
    order = [keys[(place + row) % count] for place in places]
    return order[::-1] if turn % 2 else order


def attempt(call: Call) -> str | None:
    """Run a call once to compile it; why it cannot run, or None."""
    try:
        call()
        torch.cuda.synchronize()
    except Exception as error:  # A failing point is a recorded skip.
        torch.cuda.empty_cache()
        return sentence(error)
    return None
