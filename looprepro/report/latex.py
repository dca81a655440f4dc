"""A table in LaTeX. It needs the package booktabs and compiles as it is, with any engine."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from looprepro.analysis.table import Table
from looprepro.report.grid import Grid, Text, grid

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': "''",
    "±": r"$\pm$",
    "√": r"$\surd$",
    "×": r"$\times$",
    "−": r"$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "·": r"$\cdot$",
    "…": r"\dots{}",
    "—": "---",
    "–": "--",
    "’": "'",
    "θ": r"$\theta$",
    "ω": r"$\omega$",
}


WIDE = 5
"""Columns of numbers that fit beside each other on a page of the article class."""


def escape(text: str) -> str:
    """``text`` in plain ASCII LaTeX. Characters without a command lose their accents, or become a question mark."""
    return "".join(_SPECIAL.get(character) or _ascii(character) for character in text)


def latex(table: Table) -> str:
    """A ``table`` environment with caption, label, booktabs rules and the notes below.

    A table of more than :data:`WIDE` columns stacks the groups of the outermost column level, so that it fits a page.
    """
    layout = grid(table)
    everything = list(range(len(layout.heads)))
    blocks = [everything]
    if len(everything) > WIDE and len(layout.heads[0]) > 1:
        outer = dict.fromkeys(head[0] for head in layout.heads)
        blocks = [[j for j in everything if layout.heads[j][0] == name] for name in outer]
    width = max(map(len, blocks))
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escape(layout.title)}}}",
        rf"\label{{tab:{table.name}-{table.scale}}}",
        rf"\begin{{tabular}}{{{'l' * len(layout.corner)}{'r' * width}}}",
        r"\toprule",
    ]
    for number, block in enumerate(blocks):
        lines += [r"\midrule"] if number else []
        padding = [""] * (width - len(block))
        lines += [*_heads(layout, block, padding), r"\midrule"]
        for labels, texts in zip(layout.labels, layout.texts, strict=True):
            lines.append(" & ".join([*map(_label, labels), *(_text(texts[j]) for j in block), *padding]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip{{\footnotesize {escape(note)}\par}}" for note in layout.notes]
    return "\n".join([*lines, r"\end{table}", ""])


def _heads(layout: Grid, block: list[int], padding: list[str]) -> Iterator[str]:
    """One line per level; equal neighbours under the same parent share one head with a rule below it."""
    corner, heads = len(layout.corner), [layout.heads[j] for j in block]
    for level in range(len(heads[0]) - 1):
        cells, rules, start = [""] * corner, [], 0
        while start < len(heads):
            end = start
            while end < len(heads) and heads[end][: level + 1] == heads[start][: level + 1]:
                end += 1
            cells.append(rf"\multicolumn{{{end - start}}}{{c}}{{{escape(heads[start][level])}}}")
            rules.append(rf"\cmidrule(lr){{{corner + start + 1}-{corner + end}}}")
            start = end
        yield " & ".join([*cells, *padding]) + r" \\"
        yield "".join(rules)
    yield " & ".join([*map(escape, layout.corner), *(_stacked(head[-1]) for head in heads), *padding]) + r" \\"


def _stacked(head: str) -> str:
    """A long head on several lines: \\shortstack is part of LaTeX itself."""
    parts = head.replace(" (", ", (").split(", ")
    stack = r"\\".join(map(escape, parts))
    return stack if len(parts) == 1 else rf"\shortstack[r]{{{stack}}}"


def _label(label: str) -> str:
    """A row's label, its role below it."""
    name, bracket, role = label.partition(" (")
    return rf"\shortstack[l]{{{escape(name)}\\({escape(role)}}}" if bracket else escape(label)


def _text(text: Text) -> str:
    if text.number[-1:].isdigit():
        body = f"${text.number.replace('±', chr(92) + 'pm').replace('<', chr(92) + '!<')}$"
    else:
        body = escape(text.number)
    return rf"\shortstack[r]{{{body}\\{{\scriptsize {escape(text.sample)}}}}}" if text.sample else body


def _ascii(character: str) -> str:
    if character.isascii():
        return character
    plain = "".join(part for part in unicodedata.normalize("NFKD", character) if part.isascii())
    return plain or "?"
