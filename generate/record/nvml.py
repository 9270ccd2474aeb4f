"""What NVML tells of a GPU; optional, and every answer may be missing."""

from generate.record import sentence
from generate.schema import DeviceState

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h).
THROTTLE = {
    0x02: "applications clocks setting",
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}


class Nvml:
    """One device of NVML. `reason` says why answers are missing, if they are."""

    def __init__(self, pci_bus_id: str):
        self.reason: str | None = None
        self._handle = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
            self._nvml = pynvml
        except Exception as error:  # Any fault of an optional library.
            self.reason = f"NVML is not available: {sentence(error)}"

    def ask(self, function: str, *arguments):
        """The answer of `nvml<function>`, or None, noting the reason."""
        if self._handle is None:
            return None
        try:
            return getattr(self._nvml, f"nvml{function}")(self._handle, *arguments)
        except Exception as error:  # MIG slices and old drivers refuse some.
            self.reason = f"NVML refused {function}: {sentence(error)}"
            return None

    def clock_mhz(self, kind: str, highest: bool = False) -> int | None:
        """Clock of "SM" or "MEM" in MHz: now, or the highest it may reach."""
        if self._handle is None:
            return None
        domain = getattr(self._nvml, f"NVML_CLOCK_{kind}")
        name = "DeviceGetMaxClockInfo" if highest else "DeviceGetClockInfo"
        return self.ask(name, domain)

    def state(self) -> DeviceState:
        """Clocks, power, temperature and throttle reasons, now."""
        power = self.ask("DeviceGetPowerUsage")
        bits = self.ask("DeviceGetCurrentClocksEventReasons")
        words = bits is not None and tuple(
            word for bit, word in THROTTLE.items() if bits & bit
        )
        return DeviceState(
            clock_sm_mhz=self.clock_mhz("SM"),
            clock_memory_mhz=self.clock_mhz("MEM"),
            power_w=None if power is None else power / 1000,
            temperature_c=self.ask("DeviceGetTemperature", 0),
            throttle=None if bits is None else words,
            nvml_reason=self.reason,
        )
