"""Links between documentation pages lead to existing files and headings."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def text_of(page: Path) -> str:
    """Return the page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub generates them.

    >>> sorted(anchors(ROOT / "docs" / "index.md"))[0]
    'documentation'
    """
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_has_a_target(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.name}: {link} does not exist"
            assert not anchor or anchor in anchors(target), f"{page.name}: {link} has no such heading"


def test_broken_link_is_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for link in ("missing.md", "#missing"):
        page.write_text(f"# Title\n\n[link]({link})\n")
        with pytest.raises(AssertionError):
            test_every_link_has_a_target(page)
