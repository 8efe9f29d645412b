"""Hold what is there of a data set against its published numbers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccp_dml.data.files.images import find_broken
from ccp_dml.data.published.inventory import SplitSize, describe_missing
from ccp_dml.data.published.published_set import Published, Survey, differences
from ccp_dml.errors import UserError, listing


@dataclass(frozen=True)
class Verification:
    """What was found, and every way in which it is not the published data set."""

    published: Published
    survey: Survey
    problems: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        nothing = SplitSize(0, 0)
        return {
            "name": self.published.name,
            "folder": str(self.survey.base),
            "complete": not self.problems,
            "splits": {
                split: {
                    "classes": self.survey.sizes.get(split, nothing).classes,
                    "images": self.survey.sizes.get(split, nothing).images,
                    "published_classes": size.classes,
                    "published_images": size.images,
                }
                for split, size in self.published.sizes.items()
            },
            "missing": [str(path) for path in self.survey.missing],
            "problems": list(self.problems),
        }


def verify(published: Published, root: Path, deep: bool = False) -> Verification:
    """Count classes and images per split; with `deep`, decode every image. Raises UserError if nothing is there."""
    survey = published.survey(root)
    problems = []
    if survey.missing:
        problems.append(describe_missing(list(survey.missing), len(survey.paths), survey.base))
    differing = differences(survey.sizes, published.sizes)
    if survey.short and (survey.missing or differing):
        problems.append(survey.short)
    problems += differing
    if deep:
        there = sorted(set(survey.paths) - set(survey.missing))
        if broken := find_broken(there):
            names = listing([f"{there[index]} ({reason})" for index, reason in broken.items()])
            problems.append(f"{len(broken):,} of {len(there):,} images cannot be read: {names}")
    return Verification(published, survey, tuple(problems))


def refuse_incomplete(verification: Verification, what: str, way_on: str = "") -> None:
    """Raise one sentence for everything that is wrong with `what`; `way_on` says how to go on in spite of it."""
    if verification.problems:
        problems = "; ".join(verification.problems)
        raise UserError(f"{what} is not {verification.published.title} as published: {problems}{way_on}")
