"""How do the figures of a bench become a picture? With matplotlib, where it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from redisworld.bench.results import Result
from redisworld.cli.bench_report import curves
from redisworld.errors import InvalidInput

_DRAWN = ("fanout", "sequence", "all")


def check_plot(path: Path, workload: str) -> None:
    """Raises InvalidInput when this could not be drawn, or not written there."""
    if workload not in _DRAWN:
        raise InvalidInput(f"--plot draws fanout, sequence and all; of {workload} there is no curve to draw")
    if path.suffix != ".png":
        raise InvalidInput(f"--plot writes a PNG, and {str(path)!r} does not end in .png")
    if not path.parent.is_dir():
        raise InvalidInput(f"--plot: there is no directory {str(path.parent)!r}")
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidInput("--plot needs matplotlib: pip install 'redisworld[bench]'")


def plot(results: list[Result], path: Path) -> None:
    """Draw what ``check_plot`` has let through."""
    found = curves(results)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(found), figsize=(7 * len(found), 4.5), squeeze=False)
    for axis, (title, lines) in zip(axes[0], found.items(), strict=True):
        _draw(axis, title, lines)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw(axis: Any, title: str, lines: dict[str, list[tuple[float, float]]]) -> None:
    for name, points in lines.items():
        axis.plot(*zip(*sorted(points), strict=True), marker="o", label=name)
    axis.set_title(title)
    axis.set_xscale("log", base=2)
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend()
