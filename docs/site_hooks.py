"""Adapts the documentation for MkDocs; mkdocs.yml names this file, and calls its functions by name.

It expands folders in the navigation, redirects links to files of the code, and indents lists:
Python-Markdown wants four spaces before each part of an item, CommonMark as many as its mark has.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(
    r"(?<!!)\[(?P<text>[^]\n]*(?:\n[^]\n]+)*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
)

_ITEM = re.compile(r"(?:[*+-]|\d+\.) +(?=\S)")


def on_config(config: Any) -> Any:
    """Replace each folder in the navigation by its pages."""
    config.nav = expanded(config.nav, Path(config.docs_dir))
    return config


def expanded(entries: list[Any], docs: Path) -> list[Any]:
    """Return the entries of a navigation, with the pages of a folder instead of its name."""
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            found += [{title: expanded(inner, docs)} for title, inner in entry.items()]
        elif entry.endswith("/"):
            pages = sorted((docs / entry).glob("*.md"), key=_by_name)
            found += [page.relative_to(docs).as_posix() for page in pages]
        else:
            found.append(entry)
    return found


def _by_name(page: Path) -> tuple[bool, str]:
    """Return a sort key that puts the folder's own page first."""
    return page.stem not in ("README", "index"), page.stem


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return the page for Python-Markdown, with links that work."""
    del files
    return indented(linked(markdown, page.file.src_uri, config.repo_url or ""))


def linked(markdown: str, page: str, repository: str) -> str:
    """Point links of *page* out of ``docs`` to the *repository*; without one, show file names."""
    folder = posixpath.dirname(page)

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, link["target"]))
        if "://" in link["target"] or target.startswith("docs/"):
            return link[0]
        if repository:
            kind = "tree" if link["target"].endswith("/") else "blob"
            address = f"{repository.rstrip('/')}/{kind}/main/{target}{link['anchor'] or ''}"
            return f"[{link['text']}]({address})"
        plain = link["text"].strip("`")
        return f"`{target}`" if plain == target else f"{link['text']} (`{target}`)"

    return _LINK.sub(moved, markdown)


def indented(markdown: str) -> str:
    """Indent each line by four spaces per list around it, and separate the paragraphs of items."""
    lines, items = list[str](), list[int]()
    fenced, before = False, ""
    for line in markdown.split("\n"):
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        mark = None if fenced else _ITEM.match(text)
        wrapped = bool(before and items and not mark and not fenced and indent < items[-1])
        if not text or wrapped:
            lines.append(line)
        else:
            while items and indent < items[-1]:
                items.pop()
            inner = indent - (items[-1] if items else 0)
            if mark and before and _apart(lines):
                lines.append("")
            lines.append(" " * (4 * len(items) + inner) + text)
            if mark and inner < 4:
                items.append(indent + len(mark[0]))
        fenced ^= text.startswith("```")
        before = text
    return "\n".join(lines)


def _apart(lines: list[str]) -> bool:
    """Tell whether the last paragraph belongs to an item and is not its first."""
    paragraph = next((n for n, line in enumerate(reversed(lines)) if not line), len(lines))
    return bool(paragraph) and not _ITEM.match(lines[-paragraph].lstrip(" "))
