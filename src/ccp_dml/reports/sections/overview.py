"""The sections about a run as a whole: summary, advice, comparison, scores, settings, environment, reproduction."""

import shlex
from collections.abc import Sequence
from typing import Any

from ccp_dml.config.layers import flatten
from ccp_dml.evaluation import SCORE_TITLES
from ccp_dml.records import layout
from ccp_dml.records.run_folder import RunFolder, number
from ccp_dml.reports.advice import advise_run
from ccp_dml.reports.comparison import compare, different_data, differing_settings, group_by_method, verdicts, winner
from ccp_dml.reports.gain import did_harm, help_text, progress_text, raw_name
from ccp_dml.reports.sections.section import Section
from ccp_dml.reports.words import data_text, method_text, tested_on, validated_on


def summary(run: RunFolder) -> Section:
    """Show what was trained, on what, and how good it is on unseen classes."""
    best = run.best_evaluation() or {}
    scores = {
        title: (run.score("test", key) if run.finished else number(best.get(key)), run.score("validation", key))
        for key, title in SCORE_TITLES.items()
    }
    content = {
        "run": run,
        "scores": scores,
        "method": method_text(run.settings()),
        "data": data_text(run.settings()),
        "helped": help_text(run),
        "did_harm": did_harm(run),
        "progress": None if run.settings().get("protocol.hold_out") == "nothing" else progress_text(run),
        "without_test": no_score_text(run),
        "tested_on": tested_on([run]),
        "validated_on": validated_on(run),
        "outline": (run.outline or {}).get("sentence"),
        "network": network_text(run),
        "resume": shlex.join(["ccp", "train", "--resume", "--out", str(run.path)]),
    }
    return Section("summary", "Summary", "section_summary.html", content)


def advice(run: RunFolder) -> Section | None:
    """List the advice that a run's numbers give; None where there is none."""
    found = advise_run(run)
    return Section("advice", "Advice", "section_advice.html", {"advice": found}) if found else None


def comparison(runs: Sequence[RunFolder]) -> Section:
    """Show the scores of all runs beside each other, and the settings that differ."""
    rows = compare(runs)
    best = [row for row in rows if row.scores["map_at_r"].is_best]
    is_of_runs = len(group_by_method(runs)) == len(runs)  # the luckiest of several folds and seeds says nothing
    is_of_one_kind = len({row.is_marked for row in rows}) == 1  # the test classes chose all of them, or none
    won = winner(runs)
    return Section(
        "comparison",
        "Comparison",
        "section_comparison.html",
        {
            "rows": rows,
            "best": best[0] if best and is_of_runs and is_of_one_kind else None,
            "verdicts": [*([] if won is None else [won]), *verdicts(runs)],
            "scores": SCORE_TITLES,
            "settings": differing_settings(runs),
            "different_data": different_data(runs),
            "tested_on": tested_on(runs),
            "incomplete": list(dict.fromkeys(text for run in runs for text in run.incomplete())),
        },
    )


def scores(run: RunFolder) -> Section | None:
    """Show scores before and after training, on validation and test classes, with the number of queries."""
    if run.result is None:
        return None
    recalls = (run.result.get("test") or {}).get("recall_at") or {}
    raw, has_start = raw_name(run), run.result.get("start") is not None
    halves = {
        "start": "validation, before training" if has_start else None,
        "validation": "validation",
        "raw": None if raw is None else f"test, {raw}",
        "test": "test",
    }
    rows = [
        {
            "half": title,
            "scores": [run.score(half, key) for key in SCORE_TITLES],
            "recalls": [number(((run.result.get(half) or {}).get("recall_at") or {}).get(k)) for k in recalls],
            "queries": (run.result.get(half) or {}).get("queries"),
        }
        for half, title in halves.items()
        if title is not None
    ]
    titles = [*SCORE_TITLES.values(), *(f"R@{k}" for k in recalls)]
    return Section("scores", "Scores", "section_scores.html", {"rows": rows, "titles": titles})


def configuration(run: RunFolder) -> Section:
    """Show the resolved configuration, one block per table of it."""
    blocks: dict[str, dict[str, Any]] = {}
    for key, value in run.settings().items():
        block, _, name = key.rpartition(".")
        blocks.setdefault(block or "general", {})[name] = value
    content = {"blocks": blocks, "noun": "settings"}
    return Section("configuration", "Configuration", "section_configuration.html", content)


def environment(run: RunFolder) -> Section | None:
    """Show the software and the machine of the run; None where they were not recorded."""
    if not run.environment:
        return None
    content = {"blocks": {"Machine and versions": dict(flatten(run.environment))}, "noun": "entries"}
    return Section("environment", "Environment", "section_configuration.html", content)


def reproduction(run: RunFolder) -> Section:
    """Show the one command that repeats the run."""
    command = run.environment.get("command")
    if isinstance(command, list):
        command = shlex.join(map(str, command))
    if not command:  # the resolved configuration is itself a recipe
        again = run.path.with_name(run.name + "-again")
        command = shlex.join(["ccp", "train", str(run.path / layout.CONFIG), "--out", str(again)])
    return Section("reproduce", "How to reproduce", "section_reproduction.html", {"command": command})


def no_score_text(run: RunFolder) -> str | None:
    """Say why a run has no score of unseen classes; None if it has one, or may still get one."""
    if run.settings().get("protocol.hold_out") == "nothing":
        return (
            "Every class was trained on, those of the test half included, so that none is left to measure a score on. "
            "The run that this one was made from tells how good its settings are. Curves show classes that train."
        )
    if run.result is not None and run.result.get("test") is None:
        return "No class was left to test on (data.test_share=0)."
    return None


def network_text(run: RunFolder) -> str:
    settings = run.settings()
    dim = settings.get("model.embedding_dim")
    return str(settings.get("model.backbone", "unknown network")) + ("" if dim is None else f", {dim}-D embedding")
