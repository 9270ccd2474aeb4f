"""Section `ladder`: the vendor's, the lesson's and every rung above, in turns.

So is, at a few shapes, what was tried beside them.
"""

from dataclasses import replace

from generate.record.calls import GEMM_CALLS, Operands, Outcomes, gemm_point
from generate.record.context import Context
from generate.record.tried import specialized
from generate.schema import GemmPoint, Ladder
from generate.shapes import LADDER_SHAPES, TRIED_SHAPES, Shape
from kernels.plan import RUNGS, Device, has_descriptors, rung_plan

NO_ENGINE = "the device has no engine that copies tiles by descriptors"
NO_ROOM = "none of its tiles fits the device's shared memory"
WHOLE_WAVES = "its tiles are whole waves, which leaves stream-K nothing to share"
NO_LAUNCH = "the rung has no launch at this shape"


def steps(context: Context) -> int:
    return len(context.shapes(LADDER_SHAPES)) * len(GEMM_CALLS)


def record(context: Context) -> Ladder:
    points = []
    for shape in context.shapes(LADDER_SHAPES):
        operands = Operands(shape, context.device)
        for op, mode in GEMM_CALLS:
            points += _compare(context, shape, operands, op, mode)
            context.advance()
    return Ladder(section="ladder", **context.header, points=tuple(points))


def _compare(
    context: Context, shape: Shape, operands: Operands, op: str, mode: str
) -> list[GemmPoint]:
    calls = {name: operands.call(op, mode, name) for name in ("vendor", "lesson")}
    plans = {"vendor": None, "lesson": context.plan(op, shape)}
    refused = {}
    for rung in RUNGS:
        plans[rung] = plan = rung_plan(rung, op, shape, 2, context.facts, mode)
        calls[rung] = operands.planned_call(op, mode, plan)
        if plan is None:
            refused[rung] = no_launch(rung, op, shape, context.facts)
    if shape in TRIED_SHAPES:
        plans["specialized"] = plans["persistent"]
        calls["specialized"] = specialized(calls["persistent"])
        if "persistent" in refused:
            refused["specialized"] = refused["persistent"]
    outcomes = Outcomes(context.timer, operands, op, mode, calls, refused=refused)
    return [gemm_point(shape, op, mode, name, plans[name], outcomes) for name in calls]


def no_launch(rung: str, op: str, shape: Shape, facts: Device) -> str:
    """Why a rung has no launch: for lack of an engine, of room, or by the shape."""
    if not has_descriptors(facts):
        return NO_ENGINE
    if rung != "stream_k":
        return NO_LAUNCH
    # With more SMs than tiles no wave is whole: what is missing then is room.
    large = replace(facts, sm_count=2**31)
    return WHOLE_WAVES if rung_plan(rung, op, shape, 2, large) else NO_ROOM
