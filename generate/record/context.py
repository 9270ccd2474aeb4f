"""What the sections of one recording share while they are recorded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date

import torch

from generate.record import sentence
from generate.record.nvml import Nvml
from generate.record.timing import Timer
from generate.schema import SCHEMA_VERSION
from generate.shapes import Shape
from kernels import device
from kernels.plan import Device, Plan, plan

# Raised with every change of how anything is measured, so that numbers of
# different methods are never compared silently.
HARNESS_VERSION = 5


@dataclass(eq=False)
class Context:
    """One device, its timer, and the shapes that were asked for."""

    device: torch.device
    kernels_sha256: str
    only: tuple[Shape, ...] = ()
    extent: str = "quick"
    recorded_on: date = field(default_factory=date.today)
    advance: Callable[[], None] = lambda: None
    say: Callable[[str], None] = print

    def __post_init__(self):
        properties = torch.cuda.get_device_properties(self.device)
        domain, bus, slot = (
            properties.pci_domain_id,
            properties.pci_bus_id,
            properties.pci_device_id,
        )
        self.nvml = Nvml(f"{domain:08x}:{bus:02x}:{slot:02x}.0")
        self.facts: Device = device.facts(self.device.index)
        self.timer = Timer(self.device, self.nvml)

    @property
    def header(self) -> dict:
        """The fields that every section begins with."""
        return {
            "schema_version": SCHEMA_VERSION,
            "harness_version": HARNESS_VERSION,
            "kernels_sha256": self.kernels_sha256,
            "recorded_on": self.recorded_on,
        }

    @contextmanager
    def omitting(self, what: str) -> Iterator[None]:
        """Where a section has no place for a skip: what fails is left out, and said."""
        try:
            yield
        except Exception as error:
            torch.cuda.empty_cache()
            self.say(f"left out {what}: {sentence(error)}")

    def shapes(self, of: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The shapes of a section, or those asked for if any were."""
        return self.only or of

    def plan(self, op: str, shape: Shape, **choices) -> Plan:
        """The plan that the host API makes for 16-bit operands."""
        return plan(op, shape, 2, self.facts, **choices)
