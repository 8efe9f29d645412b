"""Maps of embeddings as panels of a figure: images of a few classes, and their proxies."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ccp_dml.functional.planar import Plane, principal_plane
from ccp_dml.records.problem_map import MapPoints, ProblemMap
from ccp_dml.reports.figures.figure import Points, Scatter

UNIT_BALL = (-1.05, 1.05)
"""Where normalised embeddings of two dimensions lie, with a margin."""

IMAGE_SIZE, PROXY_SIZE = 3.5, 8.0


def problem_panels(
    problems: Sequence[ProblemMap], following: Sequence[ProblemMap | None], titles: Sequence[str]
) -> list[Scatter]:
    """A panel per problem: its training images, its converged proxies (squares) and the next problem's (circles).

    `following` are the problems whose proxies were chosen next, None where there is none. All panels share their axes,
    and the first one names the classes.
    """
    plane = principal_plane(torch.cat([part for problem in problems for part in drawn_parts(problem, None)]))
    shown = list(zip(problems, following, strict=True))
    limits = common_limits([plane.project(part) for pair in shown for part in drawn_parts(*pair)], plane)
    panels = []
    for place, ((problem, after), title) in enumerate(zip(shown, titles, strict=True)):
        images = problem.train
        groups = class_points(images, plane.project(images.embeddings), in_legend=place == 0)
        groups += proxy_points(problem.converged, images.class_names, plane, "converged")
        groups += proxy_points(None if after is None else after.selected, images.class_names, plane, "next")
        panels.append(Scatter(title, "", "", groups, equal_axes=True, limits=limits))
    return panels


def drawn_parts(problem: ProblemMap, following: ProblemMap | None) -> list[Tensor]:
    """Everything on a problem's panel, each part (n, D)."""
    parts = (problem.train.embeddings, problem.converged, None if following is None else following.selected)
    return [part.flatten(0, -2) for part in parts if part is not None]


def common_limits(projected: Sequence[Tensor], plane: Plane) -> tuple[float, float]:
    if len(plane.axes) <= 2:
        return UNIT_BALL
    reach = 1.05 * float(torch.cat(list(projected)).abs().max())
    return -reach, reach


def class_points(images: MapPoints, places: Tensor, in_legend: bool = True) -> list[Points]:
    """Images at `places` (n, 2), a colour per class."""
    groups = []
    for label, name in enumerate(images.class_names):
        own = places[images.labels == label]
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


def proxy_points(proxies: Tensor | None, class_names: Sequence[str], plane: Plane, kind: str) -> list[Points]:
    """The `proxies` (C, P, D) of the classes on a map, if there are any."""
    if proxies is None:
        return []
    return [
        Points(
            f"{name}, {kind}",
            *columns(plane.project(own)),
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
    """x and y of places (n, 2), rounded to what a screen can show."""
    x, y = ([round(value, 4) for value in column.tolist()] for column in places.T)
    return x, y
