"""``looprepro sweep``: expand, plan, run what is missing, show progress."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from looprepro.cli.options import (
    RESULTS,
    RUNS,
    Every,
    Json,
    Only,
    Pack,
    ResultsFolder,
    Runs,
    Scale,
    Seeds,
    Targets,
    checked_pack,
    device_hours,
    expansions_of,
    say,
)
from looprepro.cli.plan import Retrain

if TYPE_CHECKING:
    from looprepro.launch.base import Executor, Progress, Work
    from looprepro.planning import Expansion, Plan
    from looprepro.store import Store

Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Cells at once [default: cores / threads per cell].", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop (= looprepro plan).")]
Where = Annotated[
    str,
    typer.Option("--executor", help="local: worker processes; inline: in this process, one by one; slurm: job arrays."),
]
Cluster = Annotated[
    str | None, typer.Option("--profile", help="Of the cluster, for slurm: slurm/<name>.yaml or a file.", show_default=False)
]
Wait = Annotated[bool, typer.Option("--wait", help="slurm: stay until every cell has ended.")]
MaxHours = Annotated[
    float | None,
    typer.Option("--max-hours", min=0, help="Start nothing if it is estimated to take more device hours.", show_default=False),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="slurm: also cells whose failure comes again (others always are).")
]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu or cuda instead of the scale's; recorded in every row.", show_default=False)
]


FULL = 1 << 20
"""Free bytes under which a disk counts as full."""


def sweep(
    targets: Targets = None,
    every: Every = False,
    scale: Scale = None,
    only: Only = None,
    seeds: Seeds = None,
    runs: Runs = RUNS,
    results: ResultsFolder = RESULTS,
    jobs: Jobs = None,
    executor: Where = "local",
    profile: Cluster = None,
    wait: Wait = False,
    max_hours: MaxHours = None,
    retry_failed: RetryFailed = False,
    device: Device = None,
    pack: Pack = None,
    dry_run: DryRun = False,
    retrain: Retrain = False,
    as_json: Json = False,
) -> None:
    """Run the cells of sweeps that are missing; the same command again runs only what is still missing or failed."""
    from looprepro.cli.plan import document, make_plan, print_plan
    from looprepro.store import Store

    where = _executor(executor, jobs, profile, wait=wait, retry_failed=retry_failed)
    expansions = expansions_of(targets, every, scale, only, seeds)
    made = make_plan(expansions, runs, results, retrain=retrain, pack=checked_pack(pack))
    if dry_run:
        if as_json:
            typer.echo(json.dumps(document(expansions, made), indent=2))
        else:
            print_plan(expansions, made)
            _print_scripts(where, made, Store(runs), device)
        return
    where = _with_estimates(where, max_hours, made)
    code = run_plan(expansions, made, Store(runs), where, device=device, as_json=as_json)
    if code:
        raise typer.Exit(code)


def run_plan(
    expansions: Sequence[Expansion],
    made: Plan,
    store: Store,
    where: Executor,
    *,
    device: str | None = None,
    as_json: bool = False,
) -> int:
    """Record what is asked for, run what is missing, report; the exit code."""
    from looprepro.analysis.placements import request_document
    from looprepro.cli.plan import say_untrained
    from looprepro.cli.progress import display, summary
    from looprepro.cli.required_data import prepare_required
    from looprepro.launch.base import work_of

    for expansion in expansions:
        store.record_request(request_document(expansion))
    at_rest = {
        item.cell.id: item.cell.cell for item in made.items if item.action == "none"
    }  # others are registered as they run
    for name in store.unreadable(at_rest):
        store.register(name, at_rest[name].model_dump(mode="json"))
        say(f"{name}: its cell.json could not be read and was written anew")
    wanted = [item.cell for item in made.items if item.action != "none"]
    names = " ".join(expansion.sweep.name for expansion in expansions)
    say_untrained(made)
    if not wanted:
        if as_json:
            typer.echo(json.dumps({"wanted": made.wanted, "ran": 0, "complete": made.complete}))
        else:
            say(f"nothing to run: {made.counts['done']} of {made.wanted} cells done, {made.counts['diverged']} diverged")
        return 0 if made.complete else 1
    prepare_required((p.cell for p in wanted), (e.evaluation for p in wanted for e in p.evaluations))
    work = _on_device(work_of(wanted), device)
    say(f"{names}: {len(work)} of {made.wanted} cells to run, logs under {store.root}/cells/<cell>/attempts/")
    last: Progress | None = None
    with display(work) as shown:
        for progress in where.run(store, work):
            shown.show(progress)
            last = progress
    assert last is not None, "an executor yields at least its last progress"
    failures = _failures(store, last)
    for name, (status, cause) in failures.items():
        logs = store.log_files(name)
        say(f"{status}: {name}: {cause or 'no cause recorded'}" + (f" ({logs[-1]})" if logs else ""))
    if last.exit_code == 1 and not failures and shutil.disk_usage(store.root).free < FULL:
        say(f"error: the disk of {store.root} is full, so that no cause could be written. Free space (looprepro gc)")
    if as_json:
        ran = {name: {"status": known.status, "cause": known.cause} for name, known in last.presence.items()}
        typer.echo(json.dumps({"wanted": made.wanted, "ran": ran, "exit_code": last.exit_code}, indent=2))
    else:
        again = (
            "run the same command again to go on"
            if last.exit_code
            else f"next: looprepro collect --scale {expansions[0].scale}"
        )
        say(f"{summary(last)}; {again}")
    return last.exit_code or (1 if made.needs_retraining or made.untrained else 0)


def _failures(store: Store, last: Progress) -> dict[str, tuple[str, str]]:
    """Cell -> (status, cause) of what went wrong. A trained cell whose evaluation failed is done; its last attempt is not."""
    found: dict[str, tuple[str, str]] = {}
    for name, known in last.presence.items():
        if known.status in ("failed", "lost", "cancelled"):
            found[name] = (known.status, known.cause)
        elif known.status == "done" and name not in last.complete:
            highest = store.reading(name).highest
            if highest is not None and highest.status in ("failed", "lost"):
                found[name] = (highest.status, highest.cause)
    return found


def _on_device(work: list[Work], device: str | None) -> list[Work]:
    from looprepro.config.cell import Execution

    if device is None:
        return work
    return [
        replace(item, execution=Execution.model_validate(item.execution.model_dump() | {"device": device})) for item in work
    ]


def _with_estimates(where: Executor, max_hours: float | None, made: Plan) -> Executor:
    """``where`` under the limit and, on this machine, the longest cells first; :class:`ConfigError` where the plan is above
    the limit (of a cluster: what is not queued yet)."""
    from looprepro.files.errors import ConfigError
    from looprepro.launch.local import LocalExecutor
    from looprepro.launch.slurm import SlurmExecutor

    hours = {item.cell.id: item.hours for item in made.items}
    if isinstance(where, SlurmExecutor):
        return replace(where, max_hours=max_hours, hours=hours)
    if max_hours is not None and made.to_run and (made.device_hours is None or made.device_hours > max_hours):
        raise ConfigError(
            f"this would take about {device_hours(made.device_hours)} device hours, more than --max-hours {max_hours:g}",
            "Narrow it with --only or --seeds, or raise the limit",
        )
    return replace(where, hours=hours) if isinstance(where, LocalExecutor) else where


def _print_scripts(where: Executor, made: Plan, store: Store, device: str | None) -> None:
    """What sbatch would get, and what that costs per cell."""
    from looprepro.launch.base import work_of
    from looprepro.launch.slurm import SlurmExecutor, planned_scripts

    if not isinstance(where, SlurmExecutor):
        return
    work = _on_device(work_of(item.cell for item in made.to_run), device)
    for item in made.to_run:
        typer.echo(f"  {item.cell.id}: about {device_hours(item.hours)} device hours")
    for script in planned_scripts(store, work, where.profile):
        typer.echo(f"\n{script}")


def _executor(
    name: str, jobs: int | None, profile: str | None = None, *, wait: bool = False, retry_failed: bool = False
) -> Executor:
    from looprepro.files.errors import ConfigError

    if name == "slurm":
        from looprepro.launch.profile import available_profiles, load_profile
        from looprepro.launch.slurm import SlurmExecutor

        if profile is None:
            raise ConfigError("no cluster profile named", f"Give --profile with one of {', '.join(available_profiles())}")
        return SlurmExecutor(load_profile(profile), wait=wait, retry_failed=retry_failed)
    for option, given in (("--profile", profile), ("--wait", wait)):
        if given:
            raise ConfigError(
                f"{option} belongs to --executor slurm", f"Leave it out for {name}, which retries and waits anyway"
            )
    if name == "local":
        from looprepro.launch.local import LocalExecutor

        return LocalExecutor(jobs)
    if name == "inline":
        from looprepro.launch.inline import InlineExecutor
        from looprepro.worker import run_manifest

        return InlineExecutor(partial(run_manifest, redirect=False))
    raise ConfigError(f"unknown executor '{name}'", "Use local, inline or slurm")
