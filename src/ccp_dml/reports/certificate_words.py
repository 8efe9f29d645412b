"""Say a certificate in sentences and rows, for the page, and print them as tables on the terminal."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ccp_dml.reports.words import MISSING, rate

Certificate = dict[str, Any]  # certificate.json
NARROW: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": (0, 0, 0, 1), "pad_edge": False}
"""How tables look that fit a terminal of 80 columns."""
KINDS = {"misses": "same class, too far", "false_matches": "different classes, too close"}


@dataclass(frozen=True)
class ViolationRow:
    """One set's pairs of one kind; every number as text, rates in percent."""

    group: str  # whose pairs
    kind: str
    estimate: str
    of_images: str  # the interval for further images of these classes
    image_pairs: str
    of_classes: str  # the interval for further classes like these
    class_pairs: str
    bound: str
    looseness: str


@dataclass(frozen=True)
class CoveringRow:
    """The radii that cover the classes of one set, as text."""

    group: str
    centres: str  # what covers
    classes: str
    mean: str
    worst: tuple[str, ...]  # the classes with the largest radii, each with its own


def set_names(certificate: Certificate) -> dict[str, str]:
    """Name the three sets for a reader, by their key in the certificate."""
    held_out_images = certificate["hold_out"] == "images"
    validation = "held-out images" if held_out_images else "validation classes"
    return {"training": "training classes", "validation": validation, "test": "test classes"}


def constraint_text(certificate: Certificate) -> str:
    """Say which chance constraint was measured."""
    own = certificate["constraint"]
    text = f"Two images of one class should be closer than beta = {own['beta']:.4g}, all others farther. "
    text += f"This beta is {own['origin']}" if own["origin"] == "as given" else f"Beta is {own['origin']}"
    if own["alpha"] is None:
        return f"{text}; there is no alpha, and so no Markov bound (give one with --alpha)."
    scale = "" if own["scale"] == "distance" else " on half the squared distance"
    return f"{text}; alpha = {own['alpha']:.4g}{scale}."


def threshold_text(certificate: Certificate) -> str:
    """Say which threshold to use, and what it did on classes that it was not chosen on."""
    threshold = certificate["threshold"]
    if threshold is None:
        part = certificate["sets"]["validation"]
        if part["images"] < part["of_images"]:
            return (
                f"No threshold could be chosen, as the {part['images']:,} of {part['of_images']:,} validation images "
                "that were drawn are all of one class; ask for more --pairs."
            )
        return "No threshold could be chosen, as the validation images are all of one class."
    interval = threshold["interval"]
    text = (
        f"To match at most {100 * threshold['wanted']:g} % of different images falsely, call two images a match up to "
        f"the distance {threshold['beta']:.4g} "
        f"({distance_interval_text(interval, confidence_text(certificate))}), as measured on "
        f"{set_names(certificate)['validation']}."
    )
    if interval["low"] is not None:
        text += " Up to the low end of the interval the rate is kept with confidence."
    measured = certificate["sets"]["test"]["at_threshold"]
    false, missed = (measured[kind]["by_images"] for kind in ("false_matches", "misses"))
    return (
        f"{text} On test classes the same distance matches {rate(false['estimate'])} % falsely "
        f"({interval_text(false)}) and misses {rate(missed['estimate'])} % ({interval_text(missed)})."
    )


def violation_rows(certificate: Certificate) -> Iterator[ViolationRow]:
    """List the pairs on the wrong side of beta, by set and kind."""
    names = set_names(certificate)
    for key, part in certificate["sets"].items():
        for kind, kind_name in KINDS.items():
            violation = part[kind]
            images, classes = violation["by_images"], violation["by_classes"]
            loose = violation["looseness"]
            yield ViolationRow(
                names[key],
                kind_name,
                rate(images["estimate"]),
                interval_text(images),
                f"{images['pairs']:,}",
                interval_text(classes),
                f"{classes['pairs']:,}",
                rate(violation["bound"]),
                MISSING if loose is None else f"{loose:,.3g} ×",  # noqa: RUF001
            )


def covering_rows(certificate: Certificate) -> Iterator[CoveringRow]:
    """List the radii that cover the classes of each set."""
    names = set_names(certificate)
    centres = {"covering": "k of its own images, mean over k", "covering_by_proxies": "its proxies"}
    for key, part in certificate["sets"].items():
        for field, what in centres.items():
            covering = part[field]
            if covering is not None:
                worst = tuple(f"{one['name']} ({one['radius']:.3f})" for one in covering["worst"])
                yield CoveringRow(names[key], what, f"{len(covering['radii']):,}", f"{covering['mean']:.3f}", worst)


def notes(certificate: Certificate) -> list[str]:
    """Say what a reader must know to understand the numbers."""
    said = [
        f"Estimates are from all pairs, intervals ({confidence_text(certificate)}, exact) from pairs that share no "
        "image, for further images of the same classes, or no class, for further classes like these.",
        "The network has learned from the training images: their lines describe, they promise nothing about new ones.",
    ]
    if certificate["selected_on"] == "test":
        said.append(
            "The network was selected on the test classes, and the threshold chosen on them: no line is about unseen "
            "classes."
        )
    if any((part[kind]["bound"] or 0) > 1 for part in certificate["sets"].values() for kind in KINDS):
        said.append("A Markov bound above 100 % promises nothing: the loss is still too large for it.")
    names = set_names(certificate)
    for key, part in certificate["sets"].items():
        if part["images"] < part["of_images"]:
            said.append(
                f"Of the {part['of_images']:,} images in {part['of_classes']:,} {names[key]}, {part['images']:,} in "
                f"{part['classes']:,} were drawn; --pairs sets how many."
            )
    if certificate["constraint"]["scale"] != "distance" and certificate["sets"]["test"]["unit_length"] < 1:
        said.append(
            f"{rate(certificate['sets']['test']['unit_length'])} % of the test embeddings have unit length, where "
            "half the squared distance is 1 minus the similarity that the loss saw; the bound holds for the rest, too."
        )
    return said


def confidence_text(certificate: Certificate) -> str:
    """Write the confidence of all intervals, for example "95 %"."""
    return f"{100 * certificate['terms']['confidence']:g} %"


def distance_interval_text(interval: dict[str, float | None], sure: str) -> str:
    """Write the interval of a distance, for example "95 % interval 0.81 to 0.86", and which end is unknown."""
    low, high = (None if interval[end] is None else f"{interval[end]:.4g}" for end in ("low", "high"))
    if low and high:
        return f"{sure} interval {low} to {high}"
    if low or high:
        known = f"at least {low}" if low else f"at most {high}"
        return f"{known} with {sure} confidence; the pairs are too few for the other end"
    return "the pairs are too few for an interval"


def interval_text(measured: dict[str, Any]) -> str:
    """Write the interval of a rate, for example "0.8 to 1.6"; there is none without pairs."""
    return f"{rate(measured['low'])} to {rate(measured['high'])}" if measured["pairs"] else MISSING


def certificate_tables(certificate: Certificate) -> Iterator[RenderableType]:
    """List sentences and tables for the terminal, in the order in which to print them."""
    yield Text(constraint_text(certificate))
    yield _violations(certificate)
    yield Text(threshold_text(certificate))
    yield _covering(certificate)
    for note in notes(certificate):
        yield Text(f"- {note}")


def _violations(certificate: Certificate) -> Table:
    table = Table(title="Pairs on the wrong side of beta (%)", **NARROW)
    table.add_column("pairs of", no_wrap=True)
    for title in ("estimate", "further\nimages", "further\nclasses", "Markov\nbound", "loose\nby"):
        table.add_column(title, justify="right", no_wrap=True)
    for group, rows in groupby(violation_rows(certificate), lambda row: row.group):
        table.add_section()
        table.add_row(Text(group, style="bold"))
        for row in rows:
            images, classes = f"{row.of_images}\n{row.image_pairs} pairs", f"{row.of_classes}\n{row.class_pairs} pairs"
            table.add_row(row.kind.replace(", ", ",\n"), row.estimate, images, classes, row.bound, row.looseness)
    return table


def _covering(certificate: Certificate) -> Table:
    table = Table(title="Radius that covers a class", **NARROW)
    for title in ("classes", "covered by", "n", "mean", "largest"):
        table.add_column(title, justify="right" if title in ("n", "mean") else "left")
    for row in covering_rows(certificate):
        largest = Text(row.worst[0] if row.worst else MISSING)  # a name is text, not markup; the page lists more
        table.add_row(row.group, row.centres, row.classes, row.mean, largest)
    return table
