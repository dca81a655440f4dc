"""``looprepro geometry``: norms, directions, Toeplitz defect and spectrum of one operator, trained or fresh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from looprepro.cli.options import RUNS, Json, Runs

if TYPE_CHECKING:
    from looprepro.config.cell import Cell
    from looprepro.models.injections import Injection

What = Annotated[
    str | None,
    typer.Argument(
        metavar="[CHECKPOINT|CELL]", help="A checkpoint folder, or the id of a cell (its start is enough).", show_default=False
    ),
]
Budgets = Annotated[str, typer.Option("--budgets", "-T", help="Steps T, with commas.")]
Method = Annotated[
    str | None, typer.Option("--method", help="Without CHECKPOINT: a fresh operator of this method.", show_default=False)
]
Groups = Annotated[int | None, typer.Option("--groups", min=1, help="Its G.", show_default=False)]
Chart = Annotated[str | None, typer.Option("--chart", help="Its chart.", show_default=False)]
Width = Annotated[int, typer.Option("--width", min=2, help="Its width (the paper's language models: 640, 768, 1024).")]


def geometry(
    what: What = None,
    budgets: Budgets = "8,16,32,48",
    method: Method = None,
    groups: Groups = None,
    chart: Chart = None,
    width: Width = 640,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Measure one operator in float64 on the CPU: what its powers do to 256 seeded probes, and its eigenvalues."""
    from looprepro.files.errors import ConfigError
    from looprepro.geometry.spectrum import spectrum
    from looprepro.training.operator_geometry import operator_metrics

    try:
        wanted = sorted({int(text) for text in budgets.split(",")})
    except ValueError as error:
        raise ConfigError(f"budgets '{budgets}' are not whole numbers", "Write --budgets 8,16,32") from error
    if wanted[0] < 1:
        raise ConfigError(f"budget {wanted[0]} is too small", "A budget is at least 1")
    if (what is None) == (method is None):
        raise ConfigError("name one operator", "Give a cell, a checkpoint folder, or --method for a fresh one")
    if what is not None:
        if chart is not None:
            raise ConfigError("--chart belongs to --method", "The chart of a trained operator is in its configuration")
        title, injection = _trained(what, runs)
    else:
        assert method is not None
        title, injection = _fresh(method, groups, chart, width)
    matrix = injection.matrix()
    count = groups or injection.config.groups or 1
    metrics = operator_metrics(matrix, count, wanted)
    values = spectrum(matrix)
    moduli = values.abs()
    document: dict[str, Any] = {
        "schema": 1,
        "operator": title,
        "width": matrix.shape[0],
        "groups": count,
        "budgets": {str(T): {name: metric["value"] for name, metric in metrics[T].items()} for T in wanted},
        "spectrum": {"re": values.real.tolist(), "im": values.imag.tolist()},
    }
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(f"{title}, width {matrix.shape[0]}, {count} group{'s' * (count > 1)}; means over 256 probes")
    names = ("defect_sphere", "defect_blockwise", "turning", "log_contraction")
    typer.echo(f"{'T':>4}" + "".join(f"  {name:>16}" for name in names))
    for T in wanted:
        typer.echo(
            f"{T:>4}"
            + "".join(f"  {metrics[T][name]['value']:>16.4g}" if name in metrics[T] else f"  {'-':>16}" for name in names)
        )
    real = int((values.imag.abs() < 1e-12).sum())
    typer.echo(f"eigenvalues: moduli {float(moduli.min()):.4f} to {float(moduli.max()):.4f}, {real} of {len(values)} real")


def _fresh(method: str, groups: int | None, chart: str | None, width: int) -> tuple[str, Injection]:
    """As a run with seed 0 starts."""
    from functools import partial

    from pydantic import ValidationError

    from looprepro.config.cell import Injection as Config
    from looprepro.files.errors import ConfigError
    from looprepro.models.injections import make_injection
    from looprepro.randomness import parameter_generator

    try:
        config = Config.model_validate({"method": method, "groups": groups, "chart": chart})
    except ValidationError as error:
        raise ConfigError(f"--method {method}: {error.errors()[0]['msg']}", "Change the options") from error
    injection = make_injection(config, width)
    injection.initialise(partial(parameter_generator, 0))
    return f"freshly initialised {method}", injection


def _trained(what: str, runs: Path) -> tuple[str, Injection]:
    """The operator with the weights that evaluations use."""
    from looprepro.config.cell import LoopedTransformer
    from looprepro.files.errors import ConfigError
    from looprepro.models.injections import make_injection
    from looprepro.training import checkpoint

    title, cell, folder = _found(what, runs)
    model = cell.model
    if not isinstance(model, LoopedTransformer):
        raise ConfigError(f"{title} is a {model.kind}, which has no linear operator", "Name a cell of a looped transformer")
    injection = make_injection(model.injection, model.width)
    prefix = "injection."
    every = checkpoint.load(folder).evaluated_weights
    weights = {name[len(prefix) :]: value for name, value in every.items() if name.startswith(prefix)}
    injection.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    return title, injection


def _found(what: str, runs: Path) -> tuple[str, Cell, Path]:
    """(Title, cell, checkpoint folder) of a folder or of a cell's id."""
    from looprepro.cli.cells import cell_of, matching_cell, trained_weights
    from looprepro.config.cell import Cell
    from looprepro.files.errors import StoreError
    from looprepro.files.json_files import read_json
    from looprepro.store import Store

    folder = Path(what)
    if (folder / "state.json").is_file():
        described = folder.resolve().parents[2] / "cell.json"
        if not described.is_file():
            raise StoreError(
                f"{folder} does not lie in a cell's folder, so its model is unknown", "Name a checkpoint under runs/"
            )
        return f"{described.parent.name}, {folder.name}", Cell.model_validate(read_json(described)["config"]), folder
    store = Store(runs)
    name = matching_cell(store, what, "cell and no checkpoint")
    record = next(iter(store.records([name])))
    return f"{name}, trained", cell_of(record), trained_weights(store, record)
