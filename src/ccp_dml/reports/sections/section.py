"""What a section of a page is.

To add one, write a function beside this file that returns a `Section` (or None where a run has nothing to show), write
its `section_*.html`, and name the function in `page.py`.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """One part of a page: the file `template` shows `content`."""

    id: str
    title: str
    template: str
    content: dict[str, Any]


def present(*parts: Section | None) -> list[Section]:
    """Keep the sections that have something to show."""
    return [part for part in parts if part is not None]
