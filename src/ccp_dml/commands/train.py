"""`ccp train`."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from shlex import quote
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccp_dml.commands.console import (
    Recipes,
    Settings,
    TrustCode,
    err,
    out,
    refuse_stray_bytes,
    take_termination_as_interrupt,
)
from ccp_dml.commands.failures import WAY_ON
from ccp_dml.errors import NonFiniteError, UserError

if TYPE_CHECKING:
    from ccp_dml.foundation.process_group import Processes
    from ccp_dml.runs.datasets import LoadData
    from ccp_dml.runs.start import WantedRun

SECONDS_FOR_LOADERS = 10.0
"""The processes that load images hold a killed run's lock until they notice that they are alone."""

SECONDS_FOR_THE_FIRST = 3.0
"""How long the other processes wait before they report a mistake. Mostly all find the same one: the first process
reports it, and torchrun ends the others meanwhile. A mistake that one of them found alone is reported then."""


def train(
    recipes: Recipes = None,
    settings: Settings = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The run's folder; default runs/DATA-METHOD.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Same as --set run.seed=N.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out where it stopped, with the same result.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="N",
            min=1,
            help="Train one network with N processes: one per GPU, or sharing the cores.",
        ),
    ] = None,
    max_restarts: Annotated[
        int,
        typer.Option("--max-restarts", metavar="N", min=0, help="With --processes: start again after up to N crashes."),
    ] = 0,
    final: Annotated[
        Path | None,
        typer.Option(
            "--final", metavar="RUN", help="Train on all classes with the settings and best length of RUN; no score."
        ),
    ] = None,
    trust_code: TrustCode = False,
) -> None:
    """Train one network, score it on unseen classes, write a report.

    DATA is what to train on: folder (one folder of images per class), csv, features or a published data set. MODE is
    how much of the network learns: frozen, top, finetune or scratch. METHOD is the loss and what it compares images
    with: c2-ccp is a good start.

    Examples:

    - `ccp train glyphs c2-ccp --seed 1 --out runs/first`
    - `ccp train folder frozen c2-ccp --set data.root=photos`
    - `ccp train --resume --out runs/first`
    - `ccp train --final runs/first --out runs/production`
    - `ccp train cub c2-ccp --set data.root=DIR --processes 4 --out runs/four`
    """
    from ccp_dml.foundation.launcher import run_together
    from ccp_dml.foundation.process_group import started_together
    from ccp_dml.runs.datasets import build_data, remember_last
    from ccp_dml.runs.start import wanted_run

    if started_together() > 1 and out_folder is None:
        raise UserError("Several processes need --out DIR, the folder of the run that they train together.")
    if max_restarts and processes is None:
        raise UserError("--max-restarts needs --processes N; torchrun has an option of the same name.")
    if resume and out_folder is None:
        raise UserError("--resume needs --out DIR, the folder of the run to continue.")
    if out_folder is not None:
        refuse_stray_bytes(out_folder)
    load_data = remember_last(build_data)
    is_named = bool(recipes or final) or not resume
    wanted = wanted_run(recipes or [], settings or [], seed, load_data, final) if is_named else None
    folder = out_folder or free_folder([f"{final.name}-final"] if final else recipes or ["run"])
    if processes is None or started_together() > 1:
        changes = [*(settings or []), *([] if seed is None else [f"run.seed={seed}"])]
        return train_in(folder, wanted or changes, resume, load_data, trust_code)
    arguments = [*(recipes or []), *(part for setting in settings or [] for part in ("--set", setting))]
    arguments += ["--out", str(folder), *([] if seed is None else ["--seed", str(seed)])]
    arguments += [] if final is None else ["--final", str(final)]
    arguments += ["--resume"] * resume + ["--trust-code"] * trust_code
    if code := run_together("ccp_dml", ["train", *arguments], processes, max_restarts):
        raise typer.Exit(code)
    return None


def free_folder(recipes: Sequence[str]) -> Path:
    """Choose a folder when the user names none: `runs/glyphs-c2-ccp`, or the first free name after it."""
    from ccp_dml.config.recipes import recipe_label

    name = "-".join(map(recipe_label, recipes))
    candidates = (Path("runs") / (name if turn == 1 else f"{name}-{turn}") for turn in count(1))
    return next(folder for folder in candidates if not folder.exists())


def train_in(
    folder: Path, wanted: "WantedRun | list[str]", resume: bool, load_data: "LoadData", trust_code: bool
) -> None:
    """Train in `folder`, which no other run may use, together with the processes that torchrun has started, if any.

    The first process holds the lock and talks. When torchrun starts all of them again because one has died, they go on
    where the run stopped.
    """
    from ccp_dml.foundation.locks import alone_in
    from ccp_dml.foundation.process_group import join, leave, lost_another, times_restarted
    from ccp_dml.records import layout

    processes = join()
    out.quiet = err.quiet = not processes.is_first
    resume = processes.same(resume or (times_restarted() > 0 and (folder / layout.CONFIG).exists()))
    try:
        with alone_in(folder, SECONDS_FOR_LOADERS) if processes.is_first else nullcontext():
            train_with(processes, folder, wanted, resume, load_data, trust_code)
    except (UserError, NonFiniteError):
        if not processes.is_first:
            sleep(SECONDS_FOR_THE_FIRST)
            err.quiet = False
        raise
    except RuntimeError as error:
        if not lost_another(error):
            raise
        err.print("Another process of this run has ended before its time.", style="red")
        raise typer.Exit(1) from None
    finally:
        leave()  # or threads of the connection could end this process by a signal, and its exit code would be lost


def train_with(
    processes: "Processes",
    folder: Path,
    wanted: "WantedRun | list[str]",
    resume: bool,
    load_data: "LoadData",
    trust_code: bool,
) -> None:
    """Start the run `wanted`, or go on with the one in `folder`, also by settings in place of its own."""
    from ccp_dml.commands.progress import ProgressWatcher
    from ccp_dml.records.code_copies import code_of
    from ccp_dml.records.leftovers import sweep
    from ccp_dml.records.logbook import Logbook
    from ccp_dml.runs.training import train as run

    command = ["ccp", *(word for word in sys.argv[1:] if word != "--resume")]  # repeats the run from its start
    with processes.first_goes_first():
        if processes.is_first:
            sweep(folder)
        if resume:
            logbook = Logbook.reopen(folder)
            if logbook.result is not None and not wanted:
                if logbook.best_is_intact():
                    err.print(f"{folder} is finished already.", soft_wrap=True)
                    return print_result(folder, logbook.result)
                lost = f"{logbook.best_file} is lost or damaged, and is written again."
                err.print(lost, soft_wrap=True)
            if isinstance(wanted, list):
                config = logbook.config_to_resume(wanted, trust_code=trust_code)
            else:
                config = logbook.continue_with(wanted.config, command)
        else:
            assert not isinstance(wanted, list)
            config = wanted.config
            logbook = Logbook.open_new(folder, config, command)
    watcher = ProgressWatcher(err)
    for note in () if isinstance(wanted, list) else wanted.notes:
        watcher.note(note)
    take_termination_as_interrupt()
    way_on = f"ccp train --resume --out {quote(str(folder))}{' --trust-code' if code_of(config) else ''}"
    try:
        result = run(config, logbook, watcher, resume=resume, load_data=load_data)
    except KeyboardInterrupt:
        watcher.close()
        begun = logbook.config_file.exists()
        err.print(f"Interrupted; {f'continue with: {way_on}' if begun else 'the same command goes on'}", soft_wrap=True)
        raise
    except Exception as error:
        if not isinstance(error, UserError | NonFiniteError) and logbook.config_file.exists():
            error.add_note(f"{WAY_ON}{way_on}")
            error.add_note(f"Configuration: {config.as_tables()}")
        raise
    finally:
        watcher.close()
    return print_result(folder, result)


def print_result(folder: Path, result: dict[str, Any]) -> None:
    """Print the scores, where the files are, and what to type next."""
    from ccp_dml.records import layout
    from ccp_dml.records.run_folder import RunFolder
    from ccp_dml.reports.gain import did_harm, help_text
    from ccp_dml.reports.sections.overview import no_score_text
    from ccp_dml.reports.tables import comparison_table
    from ccp_dml.reports.words import counted

    run, problems = RunFolder.read(folder), counted(result["problems"], "problem")
    if (test := result["test"]) is None:
        text = f"{result['steps']:,} steps, {problems}. No score was measured: {no_score_text(run)}"
        out.print(text, soft_wrap=True)
    else:
        out.print(comparison_table([run]))
        out.print(
            f"{test['queries']:,} test queries"
            + (f" ({test['skipped']} more have no true reference and are left out)" if test.get("skipped") else "")
            + f", best evaluation at step {result['best_step']:,} of {result['steps']:,}, {problems}.",
        )
    if (helped := help_text(run)) is not None:
        out.print(helped, style="yellow" if did_harm(run) else None, soft_wrap=True)
    out.print(f"Report: {folder / layout.REPORT}", soft_wrap=True)
    for title, line in zip(("Next:", *[""] * 4), next_commands(folder, run.config), strict=False):
        out.print(f"{title:<8}{line}", soft_wrap=True)


def next_commands(folder: Path, config: dict[str, Any]) -> list[str]:
    """List what to type after training, and what for.

    A network of vectors has no images to index, and one that was trained without test classes cannot be scored.
    """
    named = quote(str(folder))
    of_images = {
        f"ccp index {named} IMAGES --out my.index": "makes your images searchable",
        "ccp serve my.index": "opens them as a search page",
    }
    of_any = {
        f"ccp export {named} --out my-model": "for other machines and programs",
        f"ccp report {named} OTHER_RUN": "compares runs",
    }
    if config["protocol"]["hold_out"] != "nothing" and config["data"]["test_share"] > 0:
        of_any[f"ccp evaluate {named} --json"] = "scores for scripts"
    shown = of_any if config["model"]["backbone"] == "identity" else of_images | of_any
    width = max(map(len, shown))
    return [f"{line:<{width}}   {use}" for line, use in shown.items()]
