"""`python -m bench [NAME...] [--json FILE]`: run the benches, print a table, write JSON.

Guarantees: every module of this folder with a `measure()` that yields figures is a bench and is found by its name.
Leaves out: pass or fail, which the reader decides by the targets beside the figures.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

import bench
from bench.report import Figure, show, write

Measure = Callable[[], Iterable[Figure]]


def found() -> dict[str, Measure]:
    """Benches of this folder, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name != "__main__")
    modules = {name: importlib.import_module(f"bench.{name}") for name in names}
    return {name: module.measure for name, module in modules.items() if hasattr(module, "measure")}


def main() -> None:
    """Run the named benches, or all."""
    benches = found()
    parser = argparse.ArgumentParser(prog="python -m bench", description="measure, print a table, write JSON")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(benches)}; all without one")
    parser.add_argument("--json", type=Path, default=Path("bench/results.json"), metavar="FILE")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - benches.keys():
        parser.error(f"no bench is called {', '.join(sorted(unknown))}")
    progress, figures = Console(stderr=True), list[Figure]()
    for name in arguments.names or benches:
        with progress.status(f"measuring {name}"):
            figures.extend(benches[name]())
    show(figures, Console())
    write(figures, arguments.json)
    progress.print(f"written to {arguments.json}")


if __name__ == "__main__":
    main()
