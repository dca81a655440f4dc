"""Read YAML safely, remembering the line of every key, so that an error can say where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from looprepro.files.errors import ConfigError

KeyPath = tuple[str | int, ...]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader where PyYAML has it: 8x faster, same values


@dataclass(frozen=True)
class Document:
    """A YAML document: its value, and the line (from 1) on which each key path stands."""

    path: Path
    value: Any
    lines: dict[KeyPath, int]

    def line(self, key: KeyPath) -> int:
        """The line of ``key`` or of its nearest ancestor that has one."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key, 1)


def read_yaml(path: Path) -> Document:
    """Parse ``path`` with the safe loader. :class:`ConfigError` with file and line on bad syntax or a repeated key."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", "Check the path") from error
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            lines: dict[KeyPath, int] = {}
            if node is not None:
                _collect_lines(node, (), lines, Path(path))
            value = loader.construct_document(node) if node is not None else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{where}: not valid YAML: {problem}", "Fix the syntax at that line") from error
    except RecursionError as error:  # an alias inside its own anchor
        raise ConfigError(f"{path}:1: a value contains itself, or is nested too deeply", "Write it without aliases") from error
    return Document(Path(path), value, lines)


def _collect_lines(node: yaml.Node, prefix: KeyPath, lines: dict[KeyPath, int], path: Path) -> None:
    lines.setdefault(prefix, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            key = (*prefix, str(key_node.value))
            line = key_node.start_mark.line + 1
            if key in lines:
                raise ConfigError(
                    f"{path}:{line}: key '{key_node.value}' stands twice (first on line {lines[key]})", "Keep one of them"
                )
            lines[key] = line
            _collect_lines(value_node, key, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect_lines(item, (*prefix, index), lines, path)
