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


# Kinds of clocks (nvmlClockType_t), and the one sensor of temperature that all have.
SM, MEMORY, TEMPERATURE = 1, 2, 0
# What it means that a device does not support a question.
UNSUPPORTED = {"DeviceGetMigMode": (0, 0)}


class Nvml:
    """One device of NVML."""

    def __init__(self, pci_bus_id: str):
        self._missing: str | None = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
            self._nvml = pynvml
        except Exception as error:  # Any fault of an optional library.
            self._missing = f"NVML is not available: {sentence(error)}"

    def answers(self, **questions: tuple) -> tuple[dict, str | None]:
        """An answer, or None, by each name; and why some are None, if any.

        questions: each a function of NVML, without its prefix, and its arguments
        besides the device.
        """
        found, reasons = dict.fromkeys(questions), []
        for name, (function, *arguments) in questions.items():
            if self._missing:
                return found, self._missing
            device = (self._handle,) if function.startswith("Device") else ()
            try:
                ask = getattr(self._nvml, f"nvml{function}")
                found[name] = ask(*device, *arguments)
            except Exception as error:  # MIG slices and old drivers refuse some.
                if type(error).__name__ == "NVMLError_NotSupported":
                    found[name] = UNSUPPORTED.get(function)
                if found[name] is None:
                    reasons.append(f"NVML refused {function}: {sentence(error)}")
        return found, "; ".join(dict.fromkeys(reasons)) or None

    def state(self) -> DeviceState:
        """Clocks, power, temperature and throttle reasons, now."""
        found, reason = self.answers(
            clock_sm_mhz=("DeviceGetClockInfo", SM),
            clock_memory_mhz=("DeviceGetClockInfo", MEMORY),
            power_w=("DeviceGetPowerUsage",),
            temperature_c=("DeviceGetTemperature", TEMPERATURE),
            throttle=("DeviceGetCurrentClocksEventReasons",),
        )
        bits = found["throttle"]
        if bits is not None:
            words = (word for bit, word in THROTTLE.items() if bits & bit)
            found["throttle"] = tuple(words)
        found["power_w"] = watts(found["power_w"])
        return DeviceState(**found, nvml_reason=reason)


def watts(milliwatts: int | None) -> float | None:
    """NVML's unit of power in that of a recording."""
    return None if milliwatts is None else milliwatts / 1000
