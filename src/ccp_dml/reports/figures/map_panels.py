"""Maps of embeddings as panels of a figure: images of a few classes, and their proxies."""

from collections.abc import Sequence

from torch import Tensor

from ccp_dml.records.planar_map import PlanarProblem
from ccp_dml.records.problem_map import MapPoints
from ccp_dml.reports.figures.figure import Points, Scatter

IMAGE_SIZE, PROXY_SIZE = 3.5, 8.0


def problem_panels(
    problems: Sequence[PlanarProblem], limits: tuple[float, float], titles: Sequence[str]
) -> list[Scatter]:
    """Make a panel per problem: its training images, its converged proxies (squares) and the next problem's (circles).

    All panels share the `limits` of their axes, and the first one names the classes.
    """
    panels = []
    for place, (problem, title) in enumerate(zip(problems, titles, strict=True)):
        groups = class_points(problem.images, in_legend=place == 0)
        groups += proxy_points(problem.converged, problem.images.class_names, "converged")
        groups += proxy_points(problem.following, problem.images.class_names, "next")
        panels.append(Scatter(title, "", "", groups, equal_axes=True, limits=limits))
    return panels


def class_points(images: MapPoints, in_legend: bool) -> list[Points]:
    """Draw images whose embeddings are places in the plane (n, 2), with a colour per class."""
    groups = []
    for label, name in enumerate(images.class_names):
        own = images.embeddings[images.labels == label]
        groups.append(
            Points(
                name,
                *columns(own),
                style=label,
                size=IMAGE_SIZE,
                texts=[f"class {name}"] * len(own),
                palette="classes",
                in_legend=in_legend,
            )
        )
    return groups


def proxy_points(proxies: Tensor | None, class_names: Sequence[str], kind: str) -> list[Points]:
    """Draw the `proxies` (C, P, 2) of the classes on a map, if there are any."""
    if proxies is None:
        return []
    return [
        Points(
            f"{name}, {kind}",
            *columns(own),
            style=label,
            symbol="square" if kind == "converged" else "circle",
            size=PROXY_SIZE,
            texts=[f"class {name}: {kind} proxy"] * len(own),
            palette="classes",
            is_outlined=True,
            in_legend=False,
        )
        for label, (name, own) in enumerate(zip(class_names, proxies, strict=True))
    ]


def columns(places: Tensor) -> tuple[list[float], list[float]]:
    """Split places (n, 2) into x and y, rounded to what a screen can show."""
    x, y = ([round(value, 4) for value in column.tolist()] for column in places.T)
    return x, y
