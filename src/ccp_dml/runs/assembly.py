"""Loss, proxies, pull, optimiser, batches and loops put together for one run, and the state they add up to."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lightning_fabric import Fabric
from torch import Tensor

from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import LabelledSet, TestSet
from ccp_dml.data.loading import TrainingBatches, evaluation_batches, load_rows
from ccp_dml.data.sampler import ClassBalancedBatches
from ccp_dml.errors import UserError
from ccp_dml.evaluation import embed, score
from ccp_dml.foundation.checkpoint import random_states, restore_random_states
from ccp_dml.foundation.randomness import derive_seed, generator
from ccp_dml.functional.retrieval import RetrievalScores
from ccp_dml.models.embedder import Embedder
from ccp_dml.projections import IterativeProjections, ProximalPull
from ccp_dml.proxies import draw_pool, pool_size
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.build import build_objective, build_optimizer
from ccp_dml.runs.illustrations.problem_recorder import ProblemRecorder
from ccp_dml.runs.scoring import as_row
from ccp_dml.runs.watcher import Watcher
from ccp_dml.trainer import Evaluation, Trainer, decaying_parameters


@dataclass(frozen=True)
class Setting:
    """The parts of a run that are put together once and then only used."""

    config: Config
    fabric: Fabric
    train: LabelledSet
    validation: TestSet  # chooses the best evaluation; with a gallery only where it is a test half itself
    workers: int


def assemble(
    setting: Setting, network: Embedder, logbook: Logbook, watcher: Watcher
) -> tuple[IterativeProjections, Trainer]:
    """Put loss, proxies, pull, optimiser, batches and loops together."""
    config, fabric, part = setting.config, setting.fabric, setting.train
    seed, ccp = config.run.seed, config.ccp
    sampler = ClassBalancedBatches(
        part.labels, config.train.classes_per_batch, config.train.images_per_class, derive_seed(seed, "sampler")
    )
    objective, proxies = build_objective(config, len(part.class_names), steps_per_epoch=len(sampler))
    optimizer = build_optimizer(config.optim, network, objective)
    objective.to(fabric.device)
    wrapped_network, wrapped_optimizer = fabric.setup(network, optimizer)
    wrapped_network.mark_forward_method("raw")
    if sampler.small_classes:
        watcher.note(
            f"{len(sampler.small_classes)} training classes have fewer than {config.train.images_per_class} images; "
            "their images repeat within a batch."
        )
    pull = ProximalPull(network, ccp.weight) if ccp.mode == "alternating" else None

    def embed_pool(problem: int) -> Tensor:
        """Un-normalised embeddings (C, b, D) of freshly drawn, augmented training images (D8, D9)."""
        size = pool_size(ccp.pool_per_class, ccp.proxies_per_class)
        rows = draw_pool(part.labels, size, generator(seed, "pool", problem))
        augmentation = derive_seed(seed, "pool augmentation", problem)
        batches = load_rows(part, rows.flatten(), augmentation, config.run.evaluation_batch, setting.workers)
        return embed(wrapped_network, batches, raw=True)[0].unflatten(0, rows.shape)

    def embed_rows(data: LabelledSet, rows: Tensor) -> Tensor:
        """Normalised embeddings (n, D) of the given images as they are evaluated."""
        return embed(wrapped_network, load_rows(data, rows, None, config.run.evaluation_batch, setting.workers))[0]

    def reset_moments() -> None:
        if proxies is not None:
            optimizer.state.pop(proxies.vectors, None)

    def validation_batches(part: LabelledSet) -> Iterator[tuple[Tensor, Tensor]]:
        return evaluation_batches(part, config.run.evaluation_batch, setting.workers)

    def evaluate() -> RetrievalScores:
        queries, gallery = setting.validation.queries, setting.validation.gallery
        references = None if gallery is None else validation_batches(gallery)
        return score(wrapped_network, validation_batches(queries), references)

    def after_evaluation(evaluation: Evaluation) -> None:
        row = log_row(evaluation, projections)
        logbook.record(row)
        watcher.evaluation(row, projections.run_patience.best)
        if evaluation.is_best:
            logbook.save_best(projections.best_of_run)
        logbook.save(collect_state(network, projections, trainer))

    trainer = Trainer(
        fabric,
        wrapped_network,
        objective,
        wrapped_optimizer,
        TrainingBatches(
            part, sampler, derive_seed(seed, "batches"), setting.workers, pin_memory=fabric.device.type == "cuda"
        ),
        evaluate,
        pull=pull,
        evaluate_every=config.train.evaluate_every,
        max_steps=config.train.max_steps,
        weight_decay=config.optim.weight_decay,
        decayed=decaying_parameters(network, objective),
        clip_norm=config.optim.clip_norm,
        warm_up_steps=round(config.train.warm_up_epochs * len(sampler)),
        resting=list(network.backbone.parameters()),
        after_step=watcher.step,
        after_evaluation=after_evaluation,
    )
    recorder = ProblemRecorder(config, logbook.folder, part, setting.validation.queries, embed_rows)
    projections = IterativeProjections(
        network,
        trainer.solve,
        proxies=proxies,
        pull=pull,
        embed_pool=embed_pool if proxies is not None else None,
        patience=ccp.patience if ccp.mode == "alternating" else None,
        run_patience=config.train.patience,
        max_evaluations=evaluations_left(trainer),
        start_evaluations=math.ceil(ccp.start_step / config.train.evaluate_every),
        min_improvement=config.train.min_improvement,
        rewind=ccp.rewind,
        space=ccp.space,
        seed=derive_seed(seed, "selection"),
        after_reselection=reset_moments if ccp.reset_moments else None,
        after_problem=(lambda: recorder.record(projections)) if config.run.map_points else None,
    )
    return projections, trainer


def evaluations_left(trainer: Trainer) -> int | None:
    """How many evaluations there are up to `train.max_steps`, the last of them after a shorter window perhaps."""
    if trainer.max_steps is None:
        return None
    return math.ceil(max(0, trainer.max_steps - trainer.step) / trainer.evaluate_every)


def log_row(evaluation: Evaluation, projections: IterativeProjections) -> dict[str, Any]:
    """One line of metrics.jsonl."""
    row: dict[str, Any] = {
        "step": evaluation.step,
        "problem": projections.problem,
        **as_row(evaluation.scores),
        "loss": evaluation.loss,
        "gradient_norm": evaluation.gradient_norm,
        "seconds": round(evaluation.seconds, 3),
        "evaluation_seconds": round(evaluation.evaluation_seconds, 3),
        "reselection_seconds": round(projections.reselection_clock.seconds, 3),
    }
    if evaluation.activity is not None:
        row["active_positives"] = evaluation.activity.positives
        row["active_negatives"] = evaluation.activity.negatives
    if projections.covering_radius is not None:
        row["covering_radius"] = projections.covering_radius
    if projections.proxies is not None and projections.proxies.placed and projections.proxies.per_class > 1:
        row["proxy_spread"] = projections.proxies.spread()
    if projections.pull is not None:
        row["pull_norm"] = float(projections.pull.norm())
    return row


def collect_state(network: Embedder, projections: IterativeProjections, trainer: Trainer) -> dict[str, Any]:
    """Everything that decides how the run goes on."""
    return {
        "network": network.state_dict(),
        "objective": trainer.objective.state_dict(),
        "projections": projections.state_dict(),
        "trainer": trainer.state_dict(),
        "random": random_states(),
    }


def restore(state: dict[str, Any], network: Embedder, projections: IterativeProjections, trainer: Trainer) -> None:
    refuse_other_version(state, collect_state(network, projections, trainer))
    try:
        network.load_state_dict(state["network"])
    except RuntimeError as error:
        raise UserError(
            "The checkpoint does not fit the network, probably because the features have another width than those the "
            f"run began with; restore the data, or start another run ({str(error).splitlines()[-1].strip()})."
        ) from None
    trainer.objective.load_state_dict(state["objective"])
    projections.load_state_dict(state["projections"])
    trainer.load_state_dict(state["trainer"])
    if trainer.max_steps is not None and trainer.max_steps < trainer.step:
        raise UserError(
            f"train.max_steps={trainer.max_steps} is less than the {trainer.step} steps that the run has taken already."
        )
    left = evaluations_left(trainer)  # counted from here: max_steps may have grown since a window that it cut short
    projections.max_evaluations = None if left is None else projections.evaluations + left
    restore_random_states(state["random"])


def refuse_other_version(state: dict[str, Any], own: dict[str, Any]) -> None:
    """Raise where a checkpoint does not hold what this version would write: half a state goes on to another result."""
    for part in ("", "projections", "trainer"):
        found, expected = (state, own) if part == "" else (state[part], own[part])
        if differing := sorted(found.keys() ^ expected.keys()):
            raise UserError(
                f"The checkpoint was written by another version of ccp-dml (they differ in {', '.join(differing)}); "
                "resume the run with the version in its environment.json, or start another run."
            )
