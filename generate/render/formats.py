"""How numbers are written, everywhere on the site."""

import math

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def rounded(value: float, digits: int = 4) -> float:
    """To so many significant digits, as charts and their files hold numbers.

    What is written for a reader is rounded from the whole number, never from this.
    """
    return float(f"{value:.{digits}g}")


def short(value: float) -> str:
    """As charts say it on hover, at four digits or fewer: 0.1125, 12350."""
    return f"{rounded(value):g}"


def significant(value: float, digits: int = 3) -> str:
    """So many significant digits without an exponent: 0.0297, 1.20, 141."""
    if value == 0:
        return "0"
    value = float(f"{value:.{digits}g}")
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, decimals)}f}".replace("-", "−")


def milliseconds(value: float) -> str:
    return f"{significant(value)} ms"


def microseconds(value: float) -> str:
    return f"{significant(value)} µs"


def tflops(value: float) -> str:
    return f"{significant(value)} TFLOP/s"


def terabytes(value: float) -> str:
    return f"{significant(value)} TB/s"


def ratio(value: float) -> str:
    return f"{value:.2f}×"


def close_ratio(value: float) -> str:
    """Where times are so close that two decimals would hide which is the longer."""
    return f"{value:.3f}×"


def percent(value: float) -> str:
    return f"{value:.1f} %"


def whole_percent(value: float) -> str:
    """A difference in whole percent: +7 %, −12 %."""
    return f"{round(value):+d} %".replace("-", "−")


def signed_percent(value: float) -> str:
    return f"{value:+.1f} %".replace("-", "−")


def points(value: float) -> str:
    """A difference of two percentages."""
    return f"{value:+.1f} points".replace("-", "−")


def error(value: float) -> str:
    """A relative error, at two digits: 1.7·10⁻³."""
    if value == 0:
        return "0"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits}·{power_of_ten(int(power))}"


def power_of_ten(power: int) -> str:
    return f"10{str(power).translate(SUPERSCRIPTS)}"


def nats(value: float) -> str:
    return f"{significant(value)} nats"


def kibibytes(value: int) -> str:
    """Bytes as KiB, whole where they are whole."""
    whole, rest = divmod(value, 1024)
    return f"{significant(value / 1024) if rest else whole} KiB"


def mebibytes(value: int) -> str:
    return f"{significant(value / 2**20)} MiB"


def gibibytes(value: int) -> str:
    return f"{significant(value / 2**30)} GiB"


def megahertz(value: int) -> str:
    return f"{value} MHz"


def shape_key(shape: tuple[int, int, int]) -> str:
    """As in the keys of facts: 8192x4096x14336."""
    return "x".join(map(str, shape))


def shape_label(shape: tuple[int, ...]) -> str:
    """As a reader sees it: 8192 × 4096 × 14336."""
    return " × ".join(map(str, shape))


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: 1 shape, 3 shapes."""
    return f"{number} {one if number == 1 else many or one + 's'}"
