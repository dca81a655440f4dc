"""``looprepro claims``: what the paper claims and what the collected numbers say to it."""

from __future__ import annotations

from typing import Annotated

import typer

from looprepro.cli.options import RESULTS, Json, ResultsFolder, Scale, known_scale, say

Only = Annotated[list[str] | None, typer.Argument(metavar="[CLAIM]...", help="C1, C5: show these only.", show_default=False)]
Paper = Annotated[
    str | None,
    typer.Option(
        "--paper", help="Whose claims: rotate_the_loop or fixed_point_reasoners; both if left out.", show_default=False
    ),
]


NOTED = {"rotate_the_loop": "table1", "fixed_point_reasoners": "fprm_table1"}
"""Sweep whose note says what a scale shows of a paper."""


def note_of(scale: str) -> str:
    """What ``scale`` shows of each paper, in one line: a reader of a verdict must know of stand-ins."""
    from looprepro.planning import load_sweep
    from looprepro.planning.claims import PAPERS

    return " ".join(f"{PAPERS[paper]}: {load_sweep(sweep).scale(scale).note}" for paper, sweep in NOTED.items())


def claims(
    only: Only = None,
    scale: Scale = None,
    results: ResultsFolder = RESULTS,
    paper: Paper = None,
    as_json: Json = False,
) -> None:
    """Judge every claim on collected results: supported, contradicted, undecided (also while seeds of a sweep are to come),
    single run or no data. Also writes results/<scale>/claims.json."""
    from looprepro.analysis.claim_samples import Samples
    from looprepro.analysis.claims import judge
    from looprepro.analysis.decomposition import decomposition
    from looprepro.analysis.results import load_results
    from looprepro.files.atomic import write_text
    from looprepro.files.errors import ConfigError
    from looprepro.files.json_files import pretty_json
    from looprepro.planning import load_sweep
    from looprepro.planning.claims import PAPERS, claimed_papers, load_claims
    from looprepro.report import claims as shown

    loaded = {name: load_claims(name) for name in ([paper] if paper else claimed_papers())}
    known = [claim.id for claims in loaded.values() for claim in claims]
    unknown = set(only or ()) - set(known)
    if unknown:
        raise ConfigError(f"no claim is called {sorted(unknown)[0]}", f"There are {', '.join(known)}")
    wanted = known_scale(scale)
    found = load_results(results, wanted)
    judged = {name: judge(claims, found) for name, claims in loaded.items()}
    gains = decomposition(Samples(found)) if "rotate_the_loop" in loaded else []
    notes = {name: load_sweep(NOTED[name]).scale(wanted).note for name in loaded if name in NOTED}
    path = found.folder / "claims.json"
    if paper is None:
        everything = [finding for findings in judged.values() for finding in findings]
        write_text(path, pretty_json(shown.document(wanted, note_of(wanted), everything, gains)))
    if only:  # the correction ran over the whole family all the same
        judged = {name: [finding for finding in findings if finding.claim.id in only] for name, findings in judged.items()}
        judged, gains = {name: findings for name, findings in judged.items() if findings}, []
    if as_json:
        everything = [finding for findings in judged.values() for finding in findings]
        typer.echo(pretty_json(shown.document(wanted, note_of(wanted), everything, gains)), nl=False)
        return
    texts = [
        shown.text(wanted, notes.get(name, ""), findings, gains if name == "rotate_the_loop" else [], PAPERS.get(name, name))
        for name, findings in judged.items()
    ]
    typer.echo("\n".join(texts), nl=False)
    if paper is None:
        say(f"{path}")
