"""The numbers that a paper's text states: sweeps/reference/<paper>.yaml. What is not stated is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from looprepro.config.cell import Frozen
from looprepro.files.errors import ConfigError
from looprepro.files.yaml_files import read_yaml
from looprepro.planning.catalog import sweeps_folder
from looprepro.planning.keys import nearest
from looprepro.planning.roles import canonical


class StatedNumber(Frozen):
    """One number, keyed by role, so that it can stand beside ours at every scale."""

    row: str
    """Role on the sweep's first row axis."""
    column: dict[str, str]
    """Axis (or "T") -> role, for the sweep's column axes."""
    value: float
    stated_in: str = Field(min_length=1)
    """Its place in the paper, or how it follows from a stated number; where it was found, if not there."""
    source: Literal["paper", "third party", "other paper", "independent"] = "paper"
    """Read in the paper's own text; quoted from it by others; of another paper; or measured by others on its checkpoints."""

    def roles(self, row_axis: str) -> dict[str, str]:
        """Axis -> canonical role, rows and columns together."""
        return {row_axis: canonical(self.row)} | {axis: canonical(role) for axis, role in self.column.items()}


_Tables = TypeAdapter(dict[str, Annotated[list[StatedNumber], Field(min_length=1)]])


def stated_numbers(paper: str, folder: Path | None = None) -> dict[str, list[StatedNumber]]:
    """Table name -> its stated numbers. :class:`ConfigError` where ``paper`` has no file, or a line of it is wrong."""
    folder = folder or sweeps_folder() / "reference"
    path = folder / f"{paper}.yaml"
    if not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        raise ConfigError(
            f"no stated numbers for the paper '{paper}'",
            f"Did you mean '{nearest(paper, known)}'?" if known else f"Add {path}",
        )
    document = read_yaml(path)
    try:
        return _Tables.validate_python(document.value)
    except ValidationError as error:
        problem = error.errors()[0]
        where = f"{path}:{document.line(problem['loc'])}"
        raise ConfigError(f"{where}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}", "Correct that line") from error
