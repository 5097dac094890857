"""The site builds without a warning, loads nothing from elsewhere, has no broken link, and covers the whole surface."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from dataclasses import dataclass, field, fields
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest
import typer.main

import rpdp
from rpdp.cli.app import app
from rpdp.errors import Reason
from tests.docs.console import DOCS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click

LOADS = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
"""Tags whose attribute makes a browser fetch something."""


@dataclass
class Page(HTMLParser):
    """What a page of the site refers to."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        if tag in LOADS and LOADS[tag] in values:
            self.loads.append(values[LOADS[tag]])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.anchors |= {values[name] for name in ("id", "name") if name in values}


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(source), str(site)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=ROOT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built once; warnings are errors."""
    directory = tmp_path_factory.mktemp("site")
    done = build(DOCS, directory)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Every page of the site, read."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path] = Page()
        found[path].feed(path.read_text(encoding="utf-8"))
    assert len(found) > 25
    return found


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for address in set(page.loads) - {"#"}:
            parts = urlsplit(address)
            assert (parts.scheme, parts.netloc) in {("", ""), ("data", "")}, f"{path.name} loads {address}"
            assert parts.scheme or (path.parent / unquote(parts.path)).is_file(), f"{path.name}: no {address}"
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", text), f"{sheet.name} loads from another host"


def test_no_internal_link_or_anchor_is_broken(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.name}: no page {address}"
            known = next((one.anchors for other, one in pages.items() if other.resolve() == target), None)
            anchor = unquote(parts.fragment)
            assert not anchor or known is None or anchor in known, f"{path.name}: no anchor {address}"


def test_a_broken_link_stops_the_build(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    (source / "conf.py").write_text(
        'extensions = ["myst_parser"]\nmyst_heading_anchors = 4\nsuppress_warnings = ["myst.xref_ambiguous"]\n'
    )
    for link, code in (("index.md#here", 0), ("index.md#there", 1), ("gone.md", 1)):
        (source / "index.md").write_text(f"# Here\n\n[link]({link})\n")
        assert build(source, tmp_path / "site").returncode == code, link


def test_search_works_offline(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(")
    assert "explanation/pitfalls" in index
    assert "withdraw" in index


def test_no_path_of_a_machine_is_on_the_site(site: Path) -> None:
    for path in [*site.rglob("*.html"), site / "searchindex.js"]:
        text = path.read_text(encoding="utf-8")
        assert str(ROOT) not in text
        assert "/root/" not in text
        assert " object at 0x" not in text


def test_the_reference_has_every_public_name(pages: dict[Path, Page], site: Path) -> None:
    anchors = pages[site / "reference" / "python.html"].anchors | pages[site / "reference" / "errors.html"].anchors
    for name in set(rpdp.__all__) - {"__version__"}:
        assert any(anchor.startswith((f"rpdp.{name}", f"module-rpdp.{name}")) for anchor in anchors), name


def test_the_reference_has_every_command_and_option(site: Path) -> None:
    text = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]+>", "", text)
    for path, command in every_command("rpdp", typer.main.get_command(app)):
        assert path in shown
        assert all(option in shown for parameter in command.params for option in parameter.opts if "--" in option)


def every_command(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    children: dict[str, click.Command] = getattr(command, "commands", {})
    for name, child in children.items():
        yield from every_command(f"{path} {name}", child)
    if not children:
        yield path, command


@pytest.mark.parametrize("name", ["study", "silo"])
def test_every_key_of_a_file_is_explained(name: str, site: Path) -> None:
    sections = runpy.run_path(str(DOCS / "_ext" / "generated_pages.py"))[name.upper()]
    shown = re.sub(r"<[^>]+>", "", (site / "reference" / f"{name}-file.html").read_text(encoding="utf-8"))
    for title, section in sections.items():
        assert f"[{title}]" in shown
        assert all(re.search(rf"^{one.name} ", shown, re.MULTILINE) for one in fields(section) if one.init)


def test_every_stored_format_is_listed() -> None:
    listed = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    formats = {found for text in sources for found in re.findall(r'"(rpdp-[a-z-]+/\d+|rpdp-[a-z]{2}\d)"', text)}
    assert len(formats) >= 9
    assert [name for name in sorted(formats) if name not in listed] == []


def test_every_word_of_a_refusal_is_explained() -> None:
    text = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    assert [reason for reason in Reason if f"`{reason}`" not in text] == []
