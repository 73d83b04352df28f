"""The curves of a training run, from the rows of its folder (design/live-loop#numbers).

Guarantees: rows alone are read, so any run's can be drawn anywhere; of a step that was gone back from, what was trained
last counts. Leaves out: what isn't in the rows. It needs the extra [plot].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from rolloutlog.contract.errors import MissingExtra, NotFound, PathUnusable
from rolloutlog.trainer.training.run_folder import MOVE, RunFolder, writing

Row = Mapping[str, Any]
Series = dict[str, list[float]]
NAN = float("nan")


class EvaluationRow(TypedDict):
    """Of an environment."""

    reward: float | None


class PlottedRow(TypedDict):
    """What is drawn of a row (`training_row`)."""

    step: int
    reward: float | None
    groups: int
    masked_share: float
    staleness: dict[int, int]
    rewards: dict[str, float]
    kinds: dict[str, int]
    dropped: dict[str, int]
    evals: dict[str, EvaluationRow]


def draw_run(folder: RunFolder) -> Path:
    """Draw what is there to the folder's picture. Raises NotFound where nothing was trained, MissingExtra,
    PathUnusable."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtra("plot", error.name or "matplotlib") from error
    rows = standing(_checked(folder))
    if not rows:
        raise NotFound(f"{folder.metrics} has no step yet", "`rolloutlog train run` writes one a step")
    figure = Figure(figsize=(13, 7), dpi=110, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    panels = iter(figure.subplots(2, 3).flat)
    steps = [row["step"] for row in rows]
    for title, series in panels_of(rows).items():
        axes = next(panels)
        for name, values in series.items():
            known = [(step, value) for step, value in zip(steps, values, strict=True) if value == value]
            marker = "o" if len(known) < len(values) else None
            if known:
                axes.plot(*zip(*known, strict=True), label=name, marker=marker, markersize=3)
        axes.set_ylim(bottom=min([0.0, *(value for values in series.values() for value in values if value == value)]))
        axes.set_title(title)
        axes.set_xlabel("train step")
        if axes.lines:
            axes.legend(fontsize=8)
    with writing(folder.plot):
        partial = folder.plot.with_suffix(".partial")
        canvas.print_png(partial)  # pyright: ignore[reportUnknownMemberType]
        partial.replace(folder.plot)
    return folder.plot


def _checked(folder: RunFolder) -> list[PlottedRow]:
    try:
        return msgspec.convert(folder.rows(), list[PlottedRow], str_keys=True)
    except msgspec.ValidationError as error:
        raise PathUnusable(f"{folder.metrics} can't be drawn: {error}, the rows from 0 on", MOVE) from error


def standing(rows: Iterable[Row]) -> list[Row]:
    """The rows of steps that count: one of a step at or below another's was trained after that was gone back from."""
    kept: list[Row] = []
    for row in rows:
        while kept and kept[-1]["step"] >= row["step"]:
            kept.pop()
        kept.append(row)
    return kept


def panels_of(rows: Sequence[Row]) -> dict[str, Series]:
    """What is drawn: series by panel, a value a step each, NaN where there is none."""
    evals = {f"held out: {env}": values for env, values in _inside(rows, "evals", "reward").items()}
    kinds, ends = _inside(rows, "kinds"), _added_up(_inside(rows, "dropped", none=0.0))
    return {
        "reward": {"trained": [_number(row["reward"]) for row in rows], **evals},
        "reward by task": _inside(rows, "rewards"),
        "staleness of members, train steps": {
            "mean": [_mean_age(row) for row in rows],
            "oldest": [_oldest(row) for row in rows],
        },
        "tokens masked, share": {"masked": [row["masked_share"] for row in rows]},
        "groups by outcome, in all": {"trained": _sums([row["groups"] for row in rows]), **ends},
        "trained groups by kind of their seed": kinds,
    }


def _inside(rows: Sequence[Row], name: str, part: str | None = None, none: float = NAN) -> Series:
    """Series of what a row has by name inside one of its fields."""
    names = sorted({key for row in rows for key in row.get(name, ())})
    found = {key: [row.get(name, {}).get(key) for row in rows] for key in names}
    return {
        key: [none if said is None else float(said[part] if part else said) for said in values]
        for key, values in found.items()
    }


def _added_up(series: Series) -> Series:
    return {f"dropped: {name}": _sums(values) for name, values in series.items()}


def _sums(values: Iterable[float]) -> list[float]:
    total, made = 0.0, list[float]()
    for value in values:
        total += value
        made.append(total)
    return made


def _ages(row: Row) -> dict[int, int]:
    return {int(age): members for age, members in row["staleness"].items()}


def _mean_age(row: Row) -> float:
    ages = _ages(row)
    return sum(age * members for age, members in ages.items()) / sum(ages.values()) if ages else NAN


def _oldest(row: Row) -> float:
    return float(max(_ages(row), default=NAN))


def _number(value: float | None) -> float:
    return NAN if value is None else float(value)
