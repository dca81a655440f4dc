"""A user's own operator, ``package.module:Class``: found and hashed as a file, never imported."""

from __future__ import annotations

import ast
import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from looprepro.files.checksum import sha256_bytes
from looprepro.files.errors import ConfigError


def source_hash(method: str, where: str) -> str:
    """SHA-256 of the file that defines ``method`` ("package.module:Class"). ``where`` begins the error message.

    Only that one file is hashed: what it imports is outside the identity of a cell.
    """
    module, _, name = method.partition(":")
    if not module or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(f"{where}: operator '{method}' is not of the form package.module:Class", "Write it so")
    path = _find(module, where)
    try:
        text = path.read_bytes()
        tree = ast.parse(text, str(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{where}: operator '{method}': cannot read {path}: {error}", "Fix that file") from error
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        found = f"it defines {', '.join(classes)}" if classes else "it defines no class"
        raise ConfigError(
            f"{where}: operator '{method}': {path} does not define class {name} ({found})",
            "Name the module that defines it: its file is part of the cell's identity",
        )
    if not classes[name].bases:
        raise ConfigError(
            f"{where}: operator '{method}': class {name} of {path} has no base class",
            "Derive it from looprepro.models.injections.Injection",
        )
    return sha256_bytes(text)


def operator_files(method: str) -> dict[str, Path]:
    """What must be copied so that ``method`` can be imported elsewhere: path below a folder of the Python path -> file.

    The one file of a plain module; of a package all its Python files. Nothing for an installed package: it is there wherever
    the environment is.
    """
    module = method.partition(":")[0]
    path = _find(module, "operator")
    top = module.split(".")[0]
    root = path.parents[module.count(".") + (path.name == "__init__.py")]
    if {"site-packages", "dist-packages"} & set(root.parts):
        return {}
    if not (root / top).is_dir():
        return {path.name: path}
    return {file.relative_to(root).as_posix(): file for file in sorted((root / top).rglob("*.py"))}


def _find(module: str, where: str) -> Path:
    """The source file of ``module``. ``importlib.util.find_spec`` imports the parents of a dotted name; this does not."""
    top, *rest = module.split(".")
    # Workers start with "python -m", which puts the working folder first; the console script does not.
    path = [str(Path.cwd()), *sys.path]
    spec: ModuleSpec | None = PathFinder.find_spec(top, path)
    if spec is None and top not in sys.modules:
        spec = importlib.util.find_spec(top)  # finders of editable installs
    name = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            break
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    if spec is None or name != module:
        raise ConfigError(
            f"{where}: operator module '{module}' is not found ('{name}' is {'missing' if spec is None else 'no package'})",
            "Run from the folder that holds it, or install it",
        )
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise ConfigError(f"{where}: operator module '{module}' has no Python source file", "Name a module in a .py file")
    return Path(spec.origin)
