"""Report a recording: ours against the vendor, splits, targets, every claim."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from generate.render.claims import CLAIMS, Judged
from generate.render.facts import facts
from generate.render.formats import percent, signed_percent
from generate.render.measured import Measurements, Missing
from generate.render.repeat import MOVED, repetition
from generate.render.targets import targets
from generate.schema import GemmPoint, Recording, geometric_mean
from kernels.plan import plan


def report(recording: Recording, found: Sequence[Recording] = ()) -> dict:
    """The report as plain data, computed from the recording alone.

    found: every recording, to say how far another like it agrees.
    """
    return {
        "recording": recording.name,
        "gpu": recording.environment.gpu.name,
        "gemms": _gemms(recording),
        "summary": _summary(_gemms(recording)),
        "splits": _splits(recording),
        "targets": [target.as_json() for target in targets(Measurements(recording))],
        "claims": _claims(recording),
        "repeat": _repeat(recording, found),
        "sanitizer": _sanitizer(recording),
    }


def print_report(
    recording: Recording, console: Console, found: Sequence[Recording] = ()
) -> None:
    """The report as tables."""
    data = report(recording, found)
    console.print(f"{data['gpu']}, {data['recording']}")
    gemms = Table(title="vendor time ÷ our time, whole operations")
    for name in (
        "op",
        "mode",
        "T × K × N",
        "implementation",
        "ms",
        "vendor ms",
        "ratio",
        "error",
    ):
        gemms.add_column(
            name,
            justify="left" if name in ("op", "mode", "implementation") else "right",
        )
    for row in data["gemms"]:
        if row["implementation"] == "vendor":
            continue
        gemms.add_row(
            row["op"],
            row["mode"],
            _shape(row),
            row["implementation"],
            _number(row["time_ms"], ".4f"),
            _number(row["vendor_ms"], ".4f"),
            _number(row["ratio"], ".3f"),
            _number(row["error"], ".1e"),
        )
    summary = Table(title="over all shapes")
    for name in ("op", "mode", "implementation", "shapes", "geometric mean", "minimum"):
        summary.add_column(
            name,
            justify="right"
            if name in ("shapes", "geometric mean", "minimum")
            else "left",
        )
    for row in data["summary"]:
        summary.add_row(
            row["op"],
            row["mode"],
            row["implementation"],
            str(row["shapes"]),
            _number(row["geomean_ratio"], ".3f"),
            _number(row["min_ratio"], ".3f"),
        )
    splits = Table(title="best split over T")
    for name in ("T × K × N", "reduction", "planned", "best", "planned ÷ best time"):
        splits.add_column(name, justify="left" if name == "reduction" else "right")
    for row in data["splits"]:
        splits.add_row(
            _shape(row),
            row["reduction"],
            str(row["planned_split_t"]),
            str(row["best_split_t"]),
            _number(row["planned_over_best"], ".3f"),
        )
    claims = Table(title="claims of the lesson")
    claims.add_column("claim", no_wrap=True)
    claims.add_column("verdict", no_wrap=True)
    claims.add_column("evidence")
    for row in data["claims"]:
        claims.add_row(row["claim"], row["verdict"], row["evidence"])
    for table in (gemms, summary, splits, _targets(recording), claims):
        console.print(table)
    console.print(f"compute-sanitizer: {_sanitized(data['sanitizer'])}", soft_wrap=True)
    console.print(f"Measured again: {_repeated(data['repeat'])}", soft_wrap=True)


def _targets(recording: Recording) -> Table:
    table = Table(title="targets of the fast kernels; means are geometric")
    for name in ("target", "wanted", "measured", "verdict", "where, or why not"):
        numeric = name in ("wanted", "measured")
        table.add_column(
            name,
            justify="right" if numeric else "left",
            no_wrap=numeric or name == "verdict",
        )
    for target in targets(Measurements(recording)):
        shown = target.value is not None
        apart = target.apart is not None and f" ({signed_percent(target.apart)})"
        table.add_row(
            target.what,
            target.wanted,
            f"{target.measured}{apart or ''}" if shown else "",
            target.outcome,
            "; ".join(filter(None, (target.where if shown else "", target.missing))),
        )
    return table


def planned_split(recording: Recording, shape: tuple[int, int, int]) -> int:
    """The split that `kernels.plan` chooses for bf16 on the recorded device."""
    return plan("dw", shape, 2, recording.environment.gpu.device).split_t


def vendor_of(point: GemmPoint, points: tuple[GemmPoint, ...]) -> GemmPoint | None:
    """The vendor's point of the same GEMM."""
    for other in points:
        same = (other.op, other.mode, other.dtype, other.shape)
        if other.implementation == "vendor" and same == (
            point.op,
            point.mode,
            point.dtype,
            point.shape,
        ):
            return other
    return None


def _gemms(recording: Recording) -> list[dict]:
    points = recording.gemms.points if recording.gemms else ()
    rows = []
    for point in points:
        vendor = vendor_of(point, points)
        vendor_ms = vendor.time_ms if vendor else None
        known = vendor_ms is not None and point.time_ms is not None
        rows.append(
            {
                "op": point.op,
                "mode": point.mode,
                "T": point.T,
                "K": point.K,
                "N": point.N,
                "implementation": point.implementation,
                "time_ms": point.time_ms,
                "vendor_ms": vendor_ms,
                "ratio": vendor_ms / point.time_ms if known else None,
                "error": point.error,
            }
        )
    return rows


def _summary(gemms: list[dict]) -> list[dict]:
    groups: dict[tuple, list[float]] = {}
    for row in gemms:
        if row["implementation"] != "vendor" and row["ratio"] is not None:
            key = row["op"], row["mode"], row["implementation"]
            groups.setdefault(key, []).append(row["ratio"])
    return [
        {
            "op": op,
            "mode": mode,
            "implementation": implementation,
            "shapes": len(ratios),
            "geomean_ratio": geometric_mean(ratios),
            "min_ratio": min(ratios),
        }
        for (op, mode, implementation), ratios in groups.items()
    ]


def _splits(recording: Recording) -> list[dict]:
    """Per shape and reduction; split_t 1 is the plain kernel for both."""
    points = recording.splits.points if recording.splits else ()
    times: dict[tuple, dict[int, float]] = {}
    for reduction in ("atomic", "workspace"):
        for point in points:
            mine = point.reduction == reduction and point.split_t > 1
            if (mine or point.reduction == "none") and point.time_ms is not None:
                row = times.setdefault((point.shape, reduction), {})
                row[point.split_t] = point.time_ms
    rows = []
    for ((t, k, n), reduction), by_split in times.items():
        best = min(by_split, key=by_split.get)
        planned = planned_split(recording, (t, k, n))
        planned_ms = by_split.get(planned)
        rows.append(
            {
                "T": t,
                "K": k,
                "N": n,
                "reduction": reduction,
                "planned_split_t": planned,
                "best_split_t": best,
                "planned_over_best": planned_ms / by_split[best]
                if planned_ms is not None
                else None,
            }
        )
    return rows


def _claims(recording: Recording) -> list[dict]:
    measured = Measurements(recording)
    judged = Judged(measured, facts(measured))
    return [
        {
            "claim": anchor,
            "statement": CLAIMS[anchor].statement,
            "verdict": verdict.outcome,
            "evidence": judged.text(anchor),
            "facts": list(verdict.used),
        }
        for anchor, verdict in judged.verdicts.items()
    ]


def _repeat(recording: Recording, found: Sequence[Recording]) -> dict:
    """How far another recording of the GPU agrees, or why none says so."""
    both = repetition(Measurements(recording, found))
    if isinstance(both, Missing):
        return {"not_measured_reason": both.reason}
    spreads = both.spreads
    return {
        "first": both.first.recording.name,
        "second": both.second.recording.name,
        "moved": len(both.moved),
        "unexplained": [p.explanation for p in both.moved].count("unexplained"),
        "changes": [
            {
                "section": section,
                "what": way,
                "compared": len(spread.changes),
                "median": spread.median,
                "p95_of_magnitude": spread.most,
            }
            for (section, way), spread in spreads.items()
        ],
    }


def _repeated(data: dict) -> str:
    if "not_measured_reason" in data:
        return f"not measured, {data['not_measured_reason']}."
    times, ratios = (
        next((c for c in data["changes"] if (c["section"], c["what"]) == key), None)
        for key in (("all", "times"), ("gemms", "ratios"))
    )
    words = f"{data['first']}, then {data['second']}."
    for changes, what in ((times, "times"), (ratios, "ratios to the vendor")):
        if changes is not None:
            most = percent(100 * changes["p95_of_magnitude"])
            words += f" {changes['compared']} {what}: 95 of 100 within {most}."
    return (
        f"{words} {data['moved']} times moved by more than {100 * MOVED:.0f} %, "
        f"{data['unexplained']} of them for no reason that was logged."
    )


def _sanitizer(recording: Recording) -> list[dict]:
    """What each tool of compute-sanitizer reported of our kernels, or why nothing."""
    points = recording.sanitizer.points if recording.sanitizer else ()
    return [
        {
            "tool": point.tool,
            "errors": point.errors,
            "warnings": point.warnings,
            "elsewhere": point.elsewhere,
            "control_errors": point.control_errors,
            "not_measured_reason": point.doubt,
        }
        for point in points
    ]


def _sanitized(data: list[dict]) -> str:
    if not data:
        return "not measured, this recording has no section sanitizer."
    words = (
        f"{tool['tool']} not measured, {tool['not_measured_reason']}"
        if tool["not_measured_reason"]
        else f"{tool['tool']} {tool['errors']} errors, {tool['warnings']} warnings"
        for tool in data
    )
    return f"{'; '.join(words)}."


def _shape(row: dict) -> str:
    return f"{row['T']} × {row['K']} × {row['N']}"


def _number(value: float | None, form: str) -> str:
    return "not measured" if value is None else format(value, form)
