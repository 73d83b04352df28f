"""`python -m bench.house NAME=FOLDER[,FOLDER...] ...`: trees of Python side by side, for docs/design/house.md.

Guarantees: every figure is taken from the syntax trees of all files below the folders, by the same code for each; links
aren't followed. Leaves out: tests, unless a folder holds them, and whether the code is any good.
"""

from __future__ import annotations

import ast
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

Function = ast.FunctionDef | ast.AsyncFunctionDef
LONG_FUNCTION = 50
LONG_FILE = 300


@dataclass(frozen=True, slots=True)
class Module:
    """One file: where it stands, how long it is, what it says."""

    path: Path
    lines: int
    tree: ast.Module

    @property
    def room(self) -> Path:
        """The folder that it stands in."""
        return self.path.parent

    @property
    def is_face(self) -> bool:
        """True for an `__init__` or `__main__`, which has the name of its folder."""
        return self.path.stem.startswith("__")

    def functions(self) -> Iterator[Function]:
        """Functions and methods, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def public_classes(self) -> Iterator[str]:
        """Names of its classes that don't begin with an underscore."""
        return (n.name for n in self.tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_"))


def modules_of(folders: Iterable[Path]) -> list[Module]:
    """Every file of Python below the folders."""
    paths = (Path(top, name) for folder in folders for top, _, names in os.walk(folder) for name in sorted(names))
    return [_module(path) for path in paths if path.suffix == ".py"]


def _module(path: Path) -> Module:
    text = path.read_text()
    return Module(path, text.count("\n"), ast.parse(text))


def length(function: Function) -> int:
    """Lines of a function, its docstring left out."""
    said = function.body[0]
    has_text = isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant) and isinstance(said.value.value, str)
    text = (said.end_lineno or said.lineno) - said.lineno + 1 if has_text else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - text


def is_annotated(function: Function) -> bool:
    """True if its result and each argument but self and cls has a type."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return function.returns is not None and all(a.annotation or a.arg in ("self", "cls") for a in arguments)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.0f} %"


def _recurring(names: Iterable[tuple[str, Path]]) -> int:
    homes: defaultdict[str, set[Path]] = defaultdict(set)
    for name, home in names:
        homes[name].add(home)
    return sum(len(found) > 1 for found in homes.values())


def figures(modules: list[Module]) -> dict[str, str]:
    """What the table says of one tree."""
    files = [module for module in modules if not module.is_face]
    functions = [function for module in modules for function in module.functions()]
    lengths = sorted(map(length, functions))
    rooms = Counter(module.room for module in files)
    classes = sum(1 for module in modules for _ in module.public_classes())
    return {
        "files": str(len(files)),
        "lines": f"{sum(module.lines for module in modules):,}",
        "median lines of a file": f"{median(module.lines for module in files):.0f}",
        f"files over {LONG_FILE} lines": str(sum(module.lines > LONG_FILE for module in files)),
        "longest file": str(max(module.lines for module in files)),
        "functions": f"{len(functions):,}",
        "median lines of a function": f"{median(lengths):.0f}",
        "nine of ten functions are within": f"{lengths[len(lengths) * 9 // 10]} lines",
        f"functions over {LONG_FUNCTION} lines": str(sum(lines > LONG_FUNCTION for lines in lengths)),
        "functions with all their types": _percent(sum(map(is_annotated, functions)), len(functions)),
        "files that open with what they are": _percent(sum(bool(ast.get_docstring(m.tree)) for m in files), len(files)),
        "rooms (folders)": str(len(rooms)),
        "files in the largest room": str(max(rooms.values())),
        "file names that recur": str(_recurring((module.path.name, module.path) for module in files)),
        "public classes": str(classes),
        "public class names that recur": str(_recurring((n, m.path) for m in modules for n in m.public_classes())),
    }


def table(trees: Mapping[str, dict[str, str]]) -> Iterator[str]:
    """Lines of Markdown: a column a tree."""
    yield "| | " + " | ".join(trees) + " |"
    yield "|---" * (len(trees) + 1) + "|"
    for name in next(iter(trees.values())):
        yield f"| {name} | " + " | ".join(tree[name] for tree in trees.values()) + " |"


def main(arguments: list[str], say: Callable[[str], None] = print) -> None:
    """Print the table of the trees that are named."""
    if not arguments or not all("=" in argument for argument in arguments):
        sys.exit("usage: python -m bench.house NAME=FOLDER[,FOLDER...] ...")
    trees = (argument.partition("=") for argument in arguments)
    for line in table({name: figures(modules_of(map(Path, folders.split(",")))) for name, _, folders in trees}):
        say(line)


if __name__ == "__main__":
    main(sys.argv[1:])
