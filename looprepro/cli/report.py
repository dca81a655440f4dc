"""``looprepro report``: everything that was collected at a scale as one HTML page that needs nothing else."""

from __future__ import annotations

import typer

from looprepro.cli.options import RESULTS, ResultsFolder, Scale, known_scale


def report(scale: Scale = None, results: ResultsFolder = RESULTS) -> None:
    """Write results/<scale>/report.html: claims, tables, figures (drawn anew), cost, provenance, assumptions in one file."""
    from looprepro.analysis.claim_samples import Samples
    from looprepro.analysis.claims import judge
    from looprepro.analysis.decomposition import decomposition
    from looprepro.analysis.results import load_results
    from looprepro.cli.claims import note_of
    from looprepro.cli.collect import tables_of_scale
    from looprepro.cli.plot import present_expansions
    from looprepro.planning.claims import claimed_papers, load_claims
    from looprepro.report.page import write_page

    wanted = known_scale(scale)
    found = load_results(results, wanted)
    path = write_page(
        found,
        note_of(wanted),
        tables_of_scale(results, wanted),
        [finding for paper in claimed_papers() for finding in judge(load_claims(paper), found)],
        decomposition(Samples(found)),
        {name: expansion.wanted for name, expansion in present_expansions(found).items()},
        _assumptions(),
    )
    typer.echo(str(path))


def _assumptions() -> str:
    """docs/assumptions.md of the checkout; "" in an installation without docs."""
    from looprepro.files.places import project_root

    page = project_root() / "docs" / "assumptions.md"
    return page.read_text(encoding="utf-8") if page.is_file() else ""
