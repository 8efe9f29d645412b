"""What a published data set is: its numbers, where its files come from, and how to read what is there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ccp_dml.data.files.images import ImageReading, find_broken
from ccp_dml.data.labelled import DataHalves
from ccp_dml.data.published.downloads import RemoteFile
from ccp_dml.data.published.image_cache import through_cache
from ccp_dml.data.published.inventory import Inventory, SplitSize, describe_missing, describe_short, divide_by_entries
from ccp_dml.errors import UserError, listing


@dataclass(frozen=True)
class Survey:
    """What was found of a data set, and in which folder. `paths` are its image files, those missing included."""

    base: Path
    sizes: Mapping[str, SplitSize]
    paths: tuple[Path, ...] = ()
    missing: tuple[Path, ...] = ()
    short: str = ""  # which classes have missing images, where lists or published counts tell


@dataclass(frozen=True)
class Published:
    """One data set.

    Args:
        name: as in `ccp data prepare NAME`.
        title: as people call it.
        page: where a person finds it.
        sizes: the published numbers of each split.
        files: what it is published as; `prepare` fetches, checks and unpacks them.
        folder: what the data set's folder is called when its files bring no name of their own.
        layout: the folders and files that are understood, for messages.
        survey: what is there; raises UserError if nothing is.
        read: the images one by one; None for a data set that is not kept as image files.
        behind_a_form: the files cannot be fetched without a person.
    """

    name: str
    title: str
    page: str
    sizes: Mapping[str, SplitSize]
    files: tuple[RemoteFile, ...]
    folder: str
    layout: str
    survey: Callable[[Path], Survey]
    read: Callable[[Path], Inventory] | None = None
    behind_a_form: bool = False


def survey_of(read: Callable[[Path], Inventory]) -> Callable[[Path], Survey]:
    """Make the survey of a data set that is kept as image files."""

    def survey(root: Path) -> Survey:
        inventory = read(root)
        paths = tuple(entry.path for entry in inventory.entries)
        return Survey(inventory.base, inventory.sizes(), paths, tuple(inventory.missing), describe_short(inventory))

    return survey


def not_found(root: Path, title: str, layout: str) -> UserError:
    """Make the error that nothing looks like the data set."""
    if not root.is_dir():
        return UserError(f"there is no folder {root}: expected {title} there, {layout}")
    there = listing(sorted(entry.name for entry in root.iterdir())) or "nothing"
    return UserError(f"{root} holds no {title} (found: {there}): expected {layout}")


def load_published(
    published: Published, root: str | Path, reading: ImageReading, cached_side: int | None = None
) -> DataHalves:
    """Load the halves of a data set of image files.

    With `cached_side`, images come from the smallest cache below `root` that keeps at least that short side.
    """
    if published.read is None:
        raise TypeError(f"{published.name} is not a data set of image files")
    root = Path(root).expanduser()
    inventory = published.read(root)
    if cached_side is not None:
        inventory = through_cache(inventory, root, cached_side)
    notes = [f"not {published.title} as published: {text}" for text in differences(inventory.sizes(), published.sizes)]
    return replace(divide_by_entries(inventory, reading, notes), incomplete=tuple(notes))


def differences(found: Mapping[str, SplitSize], published: Mapping[str, SplitSize]) -> list[str]:
    """Write a phrase for each split whose numbers are not the published ones."""
    nothing = SplitSize(0, 0)
    return [
        f"{split} has {there.images:,} images of {there.classes:,} classes instead of {size.images:,} of "
        f"{size.classes:,}"
        for split, size in published.items()
        if (there := found.get(split, nothing)) != size
    ]


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
