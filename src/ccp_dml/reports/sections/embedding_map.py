"""The section with the map of the embedding: of one run, or of a few side by side."""

import hashlib
from collections.abc import Sequence
from typing import Any

from ccp_dml.records.planar_map import EmbeddingMap, embedding_map
from ccp_dml.records.run_folder import RunFolder, run_labels
from ccp_dml.reports.sections.section import Section

MOST_MAPS = 3  # further runs are compared by numbers only, so that the page stays light
SIDES = {"train": "Training classes", "validation": "Validation classes"}
PROXIES = {"converged": "converged", "selected": "chosen for the next problem"}


def embedding_maps(runs: Sequence[RunFolder]) -> Section | None:
    """Show the maps of the first runs that left some; None where none did."""
    maps: list[dict[str, Any]] = []
    labels = run_labels(runs)
    for style, run in enumerate(runs):
        found = embedding_map(run) if len(maps) < MOST_MAPS else None
        if found is not None:
            label = labels[style] if len(runs) > 1 else None
            maps.append({"map": found, "label": label, "style": style, "data": _script_data(found)})
    if not maps:
        return None
    sheets = {
        sheet_id(side.sheet): side.sheet["uri"]
        for one in maps
        for side in one["map"].sides.values()
        if side.sheet is not None
    }
    drawn = [one["map"] for one in maps]
    content = {
        "maps": maps,
        "sheets": sheets,
        "sides": SIDES,
        "proxies": PROXIES,
        "moves": any(len(one.frames) > 1 for one in drawn),
        "has_proxies": any(one.proxies_per_class for one in drawn),
    }
    return Section("map", "Map of the embedding", "section_map.html", content)


def sheet_id(sheet: dict[str, Any]) -> str:
    """Name a sheet by its content: runs on the same data share it on the page."""
    return "sheet-" + hashlib.sha256(sheet["uri"].encode()).hexdigest()[:16]


def _script_data(found: EmbeddingMap) -> dict[str, Any]:
    """Collect what map.js needs to move points and to show images."""
    rows = {row["problem"]: row for row in found.run.problem_rows()}
    return {
        "sides": {
            name: {
                "classes": side.classes,
                "labels": side.labels,
                "names": side.names,
                "cells": side.cells,
                "sheet": side.sheet
                and {"id": sheet_id(side.sheet), "columns": side.sheet["columns"], "rows": side.sheet["rows"]},
            }
            for name, side in found.sides.items()
        },
        "frames": [
            {
                "problem": frame.problem,
                "places": {**frame.points, **frame.proxies},
                "map_at_r": rows.get(frame.problem, {}).get("map_at_r"),
                "covering_radius": rows.get(frame.problem, {}).get("covering_radius"),
            }
            for frame in found.frames
        ],
    }
