"""What the functions promise, as tables that each answer one question.

`kernels.promises` is one table of many axes. A question names those that decide its
answer; that no other does is checked on every row, and values that make no difference
share a line.
"""

from collections.abc import Callable
from dataclasses import dataclass

from generate.render.errors import RenderError
from generate.render.tables import Cell, Head, Table
from kernels.promises import (
    OTHER,
    REFUSALS,
    ROWS,
    Promise,
    Refusal,
    Row,
    promise,
    roundings,
)

LABELS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    OTHER: "any other",
    "either": "any",
    "default": "not given",
    "framework": "torch.use_deterministic_algorithms",
    "argument": "deterministic=True",
    True: "by linear under autocast",
    False: "no",
}
PRODUCTS = {
    "exact": "exactly: two of 16 bits have a product that fp32 holds",
    "ieee": "to fp32's own precision",
    "tf32": "of operands rounded to TF32",
}
KEPT = {"overwrite": "weight.grad", "accumulate": "weight.main_grad"}
FILE = "tests/kernels/test_refusals.py"
# Tests of refusals that take a machine which is not there.
ELSEWHERE = {
    "operands on two GPUs": "test_refused_on_two_gpus",
    "a gradient on another GPU": "test_refused_on_two_gpus",
    "tensors on the CPU, without the interpreter": "test_refused_on_the_cpu",
    "operands of bf16 on a GPU that has none": "test_refused_bf16",
    "a GPU whose shared memory holds no tile": "test_refused_for_want_of_shared_memory",
}

Answer = tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """axes: attributes of a row and what they are called, for some of the calls, the
    one that most depends on first.

    answer: what a row says, a cell for each of heads; None where it says nothing.
    """

    caption: str
    calls: tuple[str, ...]
    axes: dict[str, str]
    heads: tuple[str, ...]
    answer: Callable[[Row, Promise | Refusal], Answer | None]


def _way(path: tuple[str, ...]) -> Answer:
    """Where the sum goes, and how often it is rounded there."""
    return " → ".join(_label(dtype) for dtype in path), str(roundings(path))


def _promised(answer: Callable[[Row, Promise], Answer]):
    """The answer of rows that are not refused."""
    return lambda row, said: None if isinstance(said, Refusal) else answer(row, said)


PRODUCT_CALLS = ("matmul", "matmul_dx", "matmul_dw")
LINEAR = ("linear",)
SUM, ROUNDED = "The fp32 sum, on its way out", "Roundings"
QUESTIONS = {
    "results": Question(
        "What the products return",
        PRODUCT_CALLS,
        {"call": "Call", "first": "Operands"},
        (SUM, ROUNDED),
        _promised(lambda row, said: _way(said.y or said.dx or said.dw)),
    ),
    "y": Question(
        "Y of linear, before a bias is added",
        LINEAR,
        {"autocast": "Autocast", "first": "x", "second": "weight"},
        (SUM, ROUNDED),
        _promised(lambda row, said: _way(said.y)),
    ),
    "dx": Question(
        "dX of linear, as x.grad",
        LINEAR,
        {"autocast": "Autocast", "first": "x"},
        (SUM, ROUNDED),
        _promised(lambda row, said: _way(said.dx)),
    ),
    "dw": Question(
        "dW of linear",
        LINEAR,
        {"mode": "It goes to", "second": "weight"},
        (SUM, ROUNDED),
        _promised(lambda row, said: _way(said.dw)),
    ),
    "products": Question(
        "How two numbers are multiplied",
        (*PRODUCT_CALLS, *LINEAR),
        {"computed_in": "Multiplied in", "precision": "fp32_precision"},
        ("Products are made",),
        _promised(lambda row, said: (PRODUCTS[said.products],)),
    ),
    "bits": Question(
        "Whether the bits of dW repeat",
        ("matmul_dw", *LINEAR),
        {"reduction": "reduction", "determinism": "Determinism"},
        ("The same bits in every run",),
        _promised(lambda row, said: ("yes" if said.repeats else "not promised",)),
    ),
    "together": Question(
        "Which dtypes go together",
        (*PRODUCT_CALLS, *LINEAR),
        {
            "casts": "Cast",
            "first": "First operand",
            "second": "Second operand",
        },
        ("Taken, or the error",),
        lambda row, said: (said.error if isinstance(said, Refusal) else "taken",),
    ),
}


def tables() -> dict[str, Table]:
    """A table a question. RenderError where its axes do not decide it."""
    return {name: table(question, ROWS) for name, question in QUESTIONS.items()}


def table(question: Question, rows: tuple[Row, ...]) -> Table:
    """The answer to a question by these rows."""
    answers: dict[tuple[str, ...], Answer] = {}
    for row in rows:
        if row.call not in question.calls:
            continue
        if not (answer := question.answer(row, promise(row))):
            continue
        key = tuple(getattr(row, axis) for axis in question.axes)
        if answers.setdefault(key, answer) != answer:
            raise RenderError(
                f"{question.caption}: more than {', '.join(question.axes)} decide "
                f"about {key}: it is {answers[key]} and {answer}"
            )
    numeric = [head == ROUNDED for head in question.heads]
    return Table(
        question.caption,
        [
            *map(Head, question.axes.values()),
            *map(Head, question.heads, numeric),
        ],
        [
            [
                *(
                    Cell(_values(sets[axis], axis, answers))
                    for axis in range(len(sets))
                ),
                *map(Cell, answer, numeric),
            ]
            for sets, answer in merged(answers)
        ],
    )


def merged(answers: dict[tuple[str, ...], Answer]) -> list[tuple[tuple, Answer]]:
    """Lines of (values of each axis, answer): all that share an answer, merged."""
    lines = [
        (tuple((value,) for value in key), answer) for key, answer in answers.items()
    ]
    for axis in reversed(range(len(next(iter(answers))))):
        groups: dict[tuple, list[str]] = {}
        for sets, answer in lines:
            others = sets[:axis], sets[axis + 1 :], answer
            groups.setdefault(others, []).extend(sets[axis])
        lines = [
            ((*before, tuple(values), *after), answer)
            for (before, after, answer), values in groups.items()
        ]
    order = list(dict.fromkeys(key[0] for key in answers))
    return sorted(lines, key=lambda line: order.index(line[0][0][0]))


def refusals() -> list[tuple[str, Refusal, str]]:
    """What is refused, how, and the test of it, as pytest names it."""
    return [
        (wrong, refusal, f"{FILE}::{ELSEWHERE.get(wrong, f'test_refused[{wrong}]')}")
        for wrong, refusal in REFUSALS.items()
    ]


def _values(values: tuple[str, ...], axis: int, answers: dict) -> str:
    """The values of an axis on a line, or "any" for all that there are."""
    if len(values) > 1 and set(values) == {key[axis] for key in answers}:
        return "any"
    return ", ".join(_label(value) for value in values)


def _label(value: str) -> str:
    return LABELS.get(value, KEPT.get(value, value))
