"""The report's sections: each function turns runs into what one template shows.

To add a section, write a function that returns a `Section` (or None where a run has nothing to show), write its
`section_*.html`, and name the function in `page.py`.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ccp_dml.reports.charts import Chart, DrawnChart, Highlight, Mark, Series, draw
from ccp_dml.reports.comparison import SCORES, compare, differing_settings
from ccp_dml.reports.run_folder import RunFolder, number, run_labels

STEP = "step"


@dataclass(frozen=True)
class Section:
    """One part of the page; `template` shows `content`."""

    id: str
    title: str
    template: str
    content: dict[str, Any]


def summary(run: RunFolder) -> Section:
    """What was trained, on what, and how good it is on unseen classes."""
    best = run.best_evaluation() or {}
    half = "test" if run.finished else "validation"
    scores = {
        title: (run.score("test", key) if run.finished else number(best.get(key)), number(best.get(key)))
        for key, title in SCORES.items()
    }
    facts = {"Trained": method_text(run), "Data": data_text(run), "Network": network_text(run)}
    return Section(
        "summary", "Summary", "section_summary.html", {"run": run, "half": half, "scores": scores, "facts": facts}
    )


def comparison(runs: Sequence[RunFolder]) -> Section:
    """Scores of all runs beside each other, and what was set differently."""
    return Section(
        "comparison",
        "Comparison",
        "section_comparison.html",
        {
            "rows": compare(runs),
            "scores": SCORES,
            "settings": differing_settings(runs),
            "data": sorted({data_text(run) for run in runs}),
        },
    )


def curves(runs: Sequence[RunFolder]) -> Section | None:
    """Validation scores and loss over the steps, with the switches of problems."""
    charts = [draw(_all_scores_chart(runs[0]))] if len(runs) == 1 else [draw(_score_chart(runs, key)) for key in SCORES]
    charts.append(draw(_run_chart(runs, "loss", "Training loss", "mean loss since the previous evaluation", 4)))
    return _chart_section("curves", "Score curves", charts)


def projections(runs: Sequence[RunFolder]) -> Section | None:
    """Covering radius over problems and the pull towards the previous solution; None for baselines."""
    labels = run_labels(runs)
    radius = [
        Series(
            label,
            [
                (row["problem"], row["covering_radius"])
                for row in problem_rows(run)
                if row["covering_radius"] is not None
            ],
            style,
        )
        for style, (run, label) in enumerate(zip(runs, labels, strict=True))
    ]
    radius_chart = Chart(
        title="Covering radius",
        x_label="problem",
        y_label="largest distance from a pool image to the nearest proxy of its class",
        series=[line for line in radius if line.points],
        decimals=3,
    )
    pull_label = "length of the pull's gradient, lambda times the distance to the previous solution"
    charts = [draw(radius_chart), draw(_run_chart(runs, "pull_norm", "Pull", pull_label, 5))]
    return _chart_section("projections", "Problems and projections", charts)


def problems(run: RunFolder) -> Section | None:
    """One line per problem; None where there was only one."""
    rows = problem_rows(run)
    if len(rows) < 2:
        return None
    return Section("problems", "Problem by problem", "section_problems.html", {"rows": rows})


def scores(run: RunFolder) -> Section | None:
    """Validation and test scores with the number of queries."""
    if run.result is None:
        return None
    halves = {half: run.result.get(half) or {} for half in ("validation", "test")}
    return Section("scores", "Scores", "section_scores.html", {"halves": halves, "scores": SCORES, "run": run})


def configuration(run: RunFolder) -> Section:
    """The resolved configuration, one block per section."""
    blocks: dict[str, dict[str, Any]] = {}
    for key, value in run.settings().items():
        block, _, name = key.rpartition(".")
        blocks.setdefault(block or "general", {})[name] = value
    return Section("configuration", "Configuration", "section_configuration.html", {"blocks": blocks})


def environment(run: RunFolder) -> Section | None:
    if not run.environment:
        return None
    return Section("environment", "Environment", "section_environment.html", {"environment": run.environment})


def reproduction(run: RunFolder) -> Section:
    """The one command that does it again."""
    command = run.environment.get("command")
    if isinstance(command, list):
        command = shlex.join(map(str, command))
    if not command:  # the resolved configuration is itself a recipe
        again = run.path.with_name(run.name + "-again")
        command = shlex.join(["ccp", "train", str(run.path / "config.toml"), "--out", str(again)])
    return Section("reproduce", "How to reproduce", "section_reproduction.html", {"command": command})


def method_text(run: RunFolder) -> str:
    """For example "C2 with CCP, 8 proxies per class"."""
    settings = run.settings()
    loss = str(settings.get("loss.name", "unknown loss"))
    text = loss.upper() if len(loss) <= 2 else loss
    mode, count = settings.get("ccp.mode", "off"), settings.get("ccp.proxies_per_class")
    if mode != "off":
        text += " with CCP" if mode == "alternating" else " with proxies chosen once"
        text += f", {count} {'proxy' if count == 1 else 'proxies'} per class"
    if settings.get("xbm.memory_batches"):
        text += f", memory of {settings['xbm.memory_batches']} batches"
    return text


def data_text(run: RunFolder) -> str:
    settings = run.settings()
    return str(settings.get("data.name") or settings.get("data.path") or "unknown data")


def network_text(run: RunFolder) -> str:
    settings = run.settings()
    dim = settings.get("model.embedding_dim")
    return str(settings.get("model.backbone", "unknown network")) + ("" if dim is None else f", {dim}-D embedding")


def problem_rows(run: RunFolder) -> list[dict[str, Any]]:
    """What happened in each problem, in order."""
    grouped: dict[int, list[dict[str, Any]]] = {}
    for row in run.metrics:
        grouped.setdefault(row.get("problem", 1), []).append(row)
    rows, last_step = [], 0
    for problem, evaluations in grouped.items():
        known = [score for row in evaluations if (score := number(row.get("map_at_r"))) is not None]
        rows.append(
            {
                "problem": problem,
                "steps": evaluations[-1]["step"] - last_step,
                "evaluations": len(evaluations),
                "map_at_r": max(known, default=None),
                "covering_radius": number(evaluations[-1].get("covering_radius")),
                "pull_norm": number(evaluations[-1].get("pull_norm")),
            }
        )
        last_step = evaluations[-1]["step"]
    return rows


def _chart_section(name: str, title: str, charts: Sequence[DrawnChart | None]) -> Section | None:
    drawn = [chart for chart in charts if chart is not None]
    return Section(name, title, "section_charts.html", {"charts": drawn}) if drawn else None


def _all_scores_chart(run: RunFolder) -> Chart:
    lines = [Series(title, _points(run, key), style) for style, (key, title) in enumerate(SCORES.items())]
    return Chart(
        title="Validation scores",
        x_label=STEP,
        y_label="score in %, on classes held out for validation",
        series=[line for line in lines if line.points],
        marks=_problem_starts(run, 0),
        marks_label="a new problem starts",
        highlights=_best(run, "map_at_r", "best evaluation", 0),
        notes={row["step"]: f"problem {row['problem']}" for row in run.metrics if "problem" in row},
        percent=True,
    )


def _score_chart(runs: Sequence[RunFolder], key: str) -> Chart:
    labels = run_labels(runs)
    numbered = list(enumerate(zip(runs, labels, strict=True)))
    lines = [Series(label, _points(run, key), style) for style, (run, label) in numbered]
    return Chart(
        title=f"Validation {SCORES[key]}",
        x_label=STEP,
        y_label="score in %, on classes held out for validation",
        series=[line for line in lines if line.points],
        marks=[mark for style, (run, _) in numbered for mark in _problem_starts(run, style)],
        marks_label="a new problem starts",
        highlights=[
            spot for style, (run, label) in numbered for spot in _best(run, key, f"{label}, best evaluation", style)
        ],
        percent=True,
    )


def _run_chart(runs: Sequence[RunFolder], key: str, title: str, y_label: str, decimals: int) -> Chart:
    numbered = list(enumerate(zip(runs, run_labels(runs), strict=True)))
    lines = [Series(label, _points(run, key), style) for style, (run, label) in numbered]
    marks = [mark for style, (run, _) in numbered if _points(run, key) for mark in _problem_starts(run, style)]
    return Chart(
        title=title,
        x_label=STEP,
        y_label=y_label,
        series=[line for line in lines if line.points],
        marks=marks,
        marks_label="a new problem starts",
        decimals=decimals,
    )


def _points(run: RunFolder, key: str) -> list[tuple[float, float]]:
    return [(row["step"], value) for row in run.metrics if (value := number(row.get(key))) is not None]


def _problem_starts(run: RunFolder, style: int) -> list[Mark]:
    """Where each problem but the first starts: at the last evaluation of the one before."""
    pairs = zip(run.metrics, run.metrics[1:], strict=False)
    return [Mark(a["step"], str(b["problem"]), style) for a, b in pairs if a.get("problem") != b.get("problem")]


def _best(run: RunFolder, key: str, label: str, style: int) -> list[Highlight]:
    row = run.best_evaluation()
    value = number(row.get(key)) if row else None
    if row is None or value is None:
        return []
    return [Highlight(row["step"], value, f"{label}: {100 * value:.1f} at step {row['step']:,}", style)]
