"""What a study leaves for its readers, in every form: terminal, Markdown, LaTeX, HTML, CSV and pictures."""

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_fl import files, plot
from lightning_fl.run import page
from lightning_fl.run.version import written
from lightning_fl.tables import Place, latex, markdown, table
from lightning_fl.tables import cell as markdown_cell
from lightning_fl.text import for_csv, plain, without_tags

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Section:
    """A table, and what stands around it; either may be missing.

    Args:
        heading: Heading of the section.
        header: Names of the columns.
        rows: Cells.
        best: Places of the cells that stand out.
        remarks: What there is to say about it, a line each.
        picture: Name of the picture that belongs to it, and what that shows.
        pages: Files beside the page to which cells of this text lead, in HTML.
    """

    heading: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    best: Collection[Place] = ()
    remarks: Sequence[str] = ()
    picture: tuple[str, str] = ("", "")
    pages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Tables with text around them, numbers and pictures.

    Args:
        title: Title of the whole.
        paragraphs: What to know before reading a table.
        sections: The tables.
        records: What a program reads: the columns' names, then the rows.
        figures: Pictures by the names of their files; several of one name stand side by side where there is room.
    """

    title: str
    paragraphs: Sequence[str] = ()
    sections: Sequence[Section] = ()
    records: Sequence[Sequence[Any]] = ()
    figures: Mapping[str, "Sequence[Figure]"] = field(default_factory=dict)

    def _parts(self) -> list[Section]:
        return [one for one in self.sections if one.rows or one.remarks]  # the others are pictures

    def terminal(self) -> str:
        """Write the tables for the terminal."""
        parts = []
        for one in self._parts():
            lines = [plain(one.heading)] * bool(one.heading) + [table(one.header, one.rows)] * bool(one.rows)
            parts.append("\n".join([*lines, *(f"  {plain(remark)}" for remark in one.remarks)]))
        return "\n".join([*map(plain, self.paragraphs), "\n\n".join(parts)])

    def markdown(self, level: int = 1) -> str:
        """Write it in Markdown; without its title below the first level of headings."""
        lines = [f"# {markdown_cell(self.title)}", ""] if level == 1 and self.title else []
        lines += [line for paragraph in self.paragraphs for line in (paragraph, "")]
        for one in self._parts():
            lines += [f"#{'#' * level} {markdown_cell(one.heading)}", ""] if one.heading else []
            lines += [*markdown(one.header, one.rows, one.best), ""] if one.rows else []
            lines += [*(f"- {remark}" for remark in one.remarks), ""] if one.remarks else []
        return without_tags("\n".join(lines))

    def latex(self) -> str:
        """Write the tables in LaTeX, for the package booktabs."""
        lines = [f"% {plain(text)}" for text in (self.title, *self.paragraphs) if text]
        for one in self._parts():
            if one.rows:
                lines += [f"% {plain(one.heading)}"] if one.heading else []
                lines += [*latex(one.header, one.rows, one.best), *(f"% {plain(remark)}" for remark in one.remarks), ""]
        return "\n".join(lines)

    def html(self, pictures: Mapping[str, Sequence[Path]] | None = None) -> str:
        """Write it in HTML, as a part of a page, with pictures inside."""
        left = dict(pictures or {})
        parts = [f"<p>{escape(text)}</p>" for text in self.paragraphs]
        for one in self.sections:
            parts += [f"<h2>{escape(one.heading)}</h2>"] if one.heading else []
            parts += [page.table(one.header, one.rows, best=one.best, pages=one.pages)] if one.rows else []
            parts += [f"<p>{escape(remark)}</p>" for remark in one.remarks]
            name, shows = one.picture
            if name in left:
                parts.append(page.picture(left.pop(name), one.heading, shows))
        return "\n".join([*map(_marked, parts), *(page.picture(paths, name) for name, paths in left.items())])

    def csv(self) -> str:
        """Write the records; numbers to six digits."""
        text = io.StringIO(newline="")
        rows = ([f"{v:.6g}" if isinstance(v, float) else for_csv(v) for v in row] for row in self.records)
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue()

    def write(self, folder: Path, name: str, brief: "Report | None" = None) -> list[Path]:
        """Write all of it into a folder.

        Args:
            folder: The folder.
            name: Name of the files, which end in .md, .csv, .tex and .html.
            brief: What LaTeX has in its place.

        Returns:
            The files.
        """
        folder.mkdir(parents=True, exist_ok=True)
        pictures = {stem: plot.publish(figures, folder, stem) for stem, figures in self.figures.items() if figures}
        drawn = [path for paths in pictures.values() for path in paths]
        parts = [f"<h1>{escape(self.title)}</h1>", self.html(pictures), _marked(f"<p>{escape(written())}</p>")]
        texts = {
            ".md": "\n".join([self.markdown(), *(f"![]({path.name})\n" for path in drawn), written(), ""]),
            **({".csv": self.csv()} if self.records else {}),
            ".tex": (brief or self).latex() + "\n",
            ".html": page.document(self.title, parts),
        }
        paths = [folder / f"{name}{ending}" for ending in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            files.write(path, text)
        return [*paths, *(each for path in drawn for each in (path, path.with_suffix(".pdf")))]


def _marked(html: str) -> str:
    """Mark in HTML what Markdown marks within a line.

    >>> _marked("<p>`a&lt;b` is **best**&lt;br&gt;of two</p>")
    '<p><code>a&lt;b</code> is <b>best</b><br>of two</p>'
    """
    html = re.sub(r"\*\*([^*<]+)\*\*", r"<b>\1</b>", html.replace("&lt;br&gt;", "<br>"))
    return re.sub(r"`([^`<]+)`", r"<code>\1</code>", html)
