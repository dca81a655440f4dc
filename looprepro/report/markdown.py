"""The little markdown that our own pages use, as HTML: headings, paragraphs, lists, tables, code, bold, italics."""

from __future__ import annotations

import html
import re


def to_html(text: str, level: int = 1) -> str:
    """``text`` as HTML; its headings start at ``<h{level}>``. Links become their text: the page stands alone."""
    parts: list[str] = []
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        line = lines[index]
        block = [line]
        if not line.strip():
            index += 1
            continue
        if heading := re.match(r"(#+) +(.*)", line):
            depth = min(6, len(heading[1]) + level - 1)
            parts.append(f"<h{depth}>{inline(heading[2])}</h{depth}>")
        else:
            kind = _kind(line)
            while index + 1 < len(lines) and lines[index + 1].strip() and _continues(kind, lines[index + 1]):
                index += 1
                block.append(lines[index])
            parts.append(_block(kind, block))
        index += 1
    return "\n".join(parts)


def _kind(line: str) -> str:
    return "table" if line.startswith("|") else "list" if line.startswith("- ") else "paragraph"


def _continues(kind: str, line: str) -> bool:
    if kind == "list":
        return line.startswith(("- ", "  "))
    return _kind(line) == kind and not line.startswith("#")


def _block(kind: str, lines: list[str]) -> str:
    if kind == "table":
        head, _, *body = lines
        rows = "".join(f"<tr>{_cells(line, 'td')}</tr>" for line in body)
        return f'<div class="wide"><table><thead><tr>{_cells(head, "th")}</tr></thead><tbody>{rows}</tbody></table></div>'
    if kind == "list":
        items = re.split(r"\n- ", "\n" + "\n".join(lines))[1:]
        return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>"
    return f"<p>{inline(' '.join(lines))}</p>"


def _cells(line: str, tag: str) -> str:
    return "".join(f"<{tag}>{inline(cell.strip())}</{tag}>" for cell in line.strip().strip("|").split(" | "))


def inline(text: str) -> str:
    """Marks inside a line; what stands between backticks is left as it is."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(f"<code>{html.escape(piece[1:-1])}</code>" if piece.startswith("`") else _marks(piece) for piece in pieces)


def _marks(text: str) -> str:
    text = html.escape(text, quote=False)
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"(?<![\w*])\*([^*\s][^*]*?)\*(?![\w*])", r"<em>\1</em>", text)
