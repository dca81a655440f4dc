"""``looprepro claims``: what the paper claims and what the collected numbers say to it."""

from __future__ import annotations

from typing import Annotated

import typer

from looprepro.cli.options import RESULTS, Json, ResultsFolder, Scale, chosen_scale, say

Only = Annotated[list[str] | None, typer.Argument(metavar="[CLAIM]...", help="C1, C5: show these only.", show_default=False)]
Paper = Annotated[str, typer.Option("--paper", help="Whose claims: a file of sweeps/claims/.")]


def claims(
    only: Only = None,
    scale: Scale = None,
    results: ResultsFolder = RESULTS,
    paper: Paper = "rotate_the_loop",
    as_json: Json = False,
) -> None:
    """Judge every claim on collected results: supported, contradicted, undecided, single run or no data. Also writes
    results/<scale>/claims.json."""
    from looprepro.analysis.claim_samples import Samples
    from looprepro.analysis.claims import judge
    from looprepro.analysis.decomposition import decomposition
    from looprepro.analysis.results import load_results
    from looprepro.files.atomic import write_text
    from looprepro.files.errors import ConfigError
    from looprepro.files.json_files import pretty_json
    from looprepro.planning import load_sweep
    from looprepro.planning.claims import load_claims
    from looprepro.report import claims as shown

    loaded = load_claims(paper)
    unknown = set(only or ()) - {claim.id for claim in loaded}
    if unknown:
        raise ConfigError(f"no claim is called {sorted(unknown)[0]}", f"There are {', '.join(claim.id for claim in loaded)}")
    wanted = chosen_scale(scale)
    found = load_results(results, wanted)
    findings, gains = judge(loaded, found), decomposition(Samples(found))
    note = load_sweep("table1").scale(wanted).note
    path = found.folder / "claims.json"
    whole = shown.document(wanted, note, findings, gains)
    write_text(path, pretty_json(whole))
    if only:  # the correction ran over the whole family all the same
        findings, gains = [finding for finding in findings if finding.claim.id in only], []
    if as_json:
        typer.echo(pretty_json(shown.document(wanted, note, findings, gains)), nl=False)
        return
    typer.echo(shown.text(wanted, note, findings, gains), nl=False)
    say(f"{path}")
