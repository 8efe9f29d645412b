"""Train on every class with what an earlier run has found: for production, when there is nothing more to measure."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from ccp_dml.config.layers import SETTING, flatten, parse_setting, resolve
from ccp_dml.config.readers import refuse_unread
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.records import layout
from ccp_dml.records.evaluation_log import Row
from ccp_dml.records.run_folder import RunFolder

SAME = ("data.name", "loss.name", "ccp.mode", "model.backbone")
"""What recipes beside `--final RUN` must not choose otherwise than the run did."""


def final_config(run: Path, recipes: Sequence[str], settings: Sequence[str], seed: int | None) -> Config:
    """Take the configuration of `run` for a training on every class; recipes may name what it was, and nothing else."""
    found = final_settings(run)
    config = resolve([str(run / layout.CONFIG)], [*found, *settings], seed).config
    values, named = dict(flatten(config.as_tables())), resolve(recipes)
    for key in SAME:
        other = dict(flatten(named.config.as_tables())).get(key)
        if key in named.origins and other != values.get(key):
            raise UserError(
                f"--final {run}: the run has {key} = {values.get(key)!r}, not {other!r} ({named.origins[key]}); leave "
                "the recipes out."
            )
    keys = [key for text in settings for key, _ in flatten(parse_setting(text).tables)]
    refuse_unread([config], {key: f"{SETTING}{key}" for key in keys})
    return config


def final_settings(folder: Path) -> list[str]:
    """List the settings, beyond its configuration, with which the run in `folder` is trained again on every class.

    It trains as many steps as the best network had behind it, and ends as many problems of CCP on the way; the problems
    of PROFS keep the length that is set.
    """
    run = RunFolder.read(folder)
    best = run.best_evaluation()
    if not run.finished or best is None:
        raise UserError(
            f"--final {folder}: the run is not finished, so that it does not tell how long to train; continue it with "
            f"`ccp train --resume --out {quote(str(folder))}`."
        )
    settings = run.settings()
    if settings.get("protocol.hold_out") == "nothing":
        raise UserError(f"--final {folder}: the run was trained on every class itself; name the run it was made from.")
    without_proxies, with_proxies = lengths_of_problems(run, best)
    steps = sum(without_proxies) + sum(with_proxies)
    found = ["protocol.hold_out=nothing", "protocol.select_on=validation", f"train.max_steps={steps}"]
    if settings.get("ccp.mode") == "alternating" and settings.get("ccp.until") != "stale":
        # Problems end after as many steps as they took on the average; or there were none, and there will be none.
        length = max(1, round(sum(with_proxies) / len(with_proxies))) if with_proxies else steps
        found += ["ccp.until=steps", f"ccp.steps_per_problem={length}", f"ccp.start_step={sum(without_proxies)}"]
    return found


def lengths_of_problems(run: RunFolder, best: Row) -> tuple[list[int], list[int]]:
    """Count the steps that each problem contributed to the best network: those without proxies, those with them.

    Where each problem started from the best weights of the one before (`ccp.rewind`), the steps after its best
    evaluation were thrown away, and do not count.
    """
    starts = [start for start in run.problem_starts() if start["step"] < best["step"]]
    ends = [*(start["step"] for start in starts[1:]), best["step"]]
    settings = run.settings()
    if settings.get("ccp.rewind") and settings.get("ccp.until") == "stall":
        for number, start in enumerate(starts[:-1]):
            scored = [row for row in run.metrics if row.get("problem") == start["problem"]]
            ends[number] = max(scored, key=lambda row: row["map_at_r"])["step"]
    lengths: tuple[list[int], list[int]] = ([], [])
    for start, end in zip(starts, ends, strict=True):
        lengths[start["covering_radius"] is not None].append(end - start["step"])
    return lengths
