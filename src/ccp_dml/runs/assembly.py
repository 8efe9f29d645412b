"""One run: its parts, the loop over them, and the state that a checkpoint keeps of them."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from time import monotonic
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from ccp_dml.config.layers import values_of
from ccp_dml.config.schema import CcpConfig, Config
from ccp_dml.data.labelled import LabelledSet, TestSet
from ccp_dml.data.loading import Batch, TrainingBatches, evaluation_batches, load_rows, loader_processes
from ccp_dml.data.representatives import Representatives
from ccp_dml.data.sampler import ClassBalancedBatches, epoch_length
from ccp_dml.errors import NonFiniteError, UserError
from ccp_dml.evaluation import embed, score
from ccp_dml.foundation.checkpoint import random_states, restore_random_states
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.foundation.randomness import derive_seed
from ccp_dml.foundation.stopwatch import Stopwatch
from ccp_dml.functional.retrieval import RetrievalScores
from ccp_dml.models.backbones import PrecomputedFeatures
from ccp_dml.models.embedder import Embedder
from ccp_dml.pace import Pace
from ccp_dml.projections import IterativeProjections, ProximalPull
from ccp_dml.proxies import NUMBERS_OF_A_CHUNK, classes_at_once, pool_size
from ccp_dml.records.logbook import Logbook
from ccp_dml.reports.advice import Advice, Case, advise
from ccp_dml.runs.build import build_objective, build_optimizer, compile_backbone, refuse_odd_loss
from ccp_dml.runs.devices import refuse_or_synchronise_batch_norm
from ccp_dml.runs.illustrations.problem_recorder import ProblemRecorder
from ccp_dml.runs.many_proxies import divided_state, files_for_proxies
from ccp_dml.runs.pool import TrainingPool
from ccp_dml.runs.scoring import as_row
from ccp_dml.runs.watcher import Watcher
from ccp_dml.trainer import Evaluation, Trainer, decaying_parameters


class TrainingRun:
    """The parts of one run, and the loop over them.

    Args:
        config: the whole run.
        fabric: brings device and precision.
        network: the embedder with its first weights; it is trained in place.
        learned: the classes that train.
        validation: chooses the best evaluation; it has a gallery only where it is a test half itself.
        logbook: gets a line and a checkpoint per evaluation.
        watcher: is told how the run goes.
        processes: those that train together. All hold the same network and objective, but for proxies that they share;
            the first one alone writes.
    """

    def __init__(
        self,
        config: Config,
        fabric: Fabric,
        network: Embedder,
        learned: LabelledSet,
        validation: TestSet,
        logbook: Logbook,
        watcher: Watcher,
        processes: Processes = ALONE,
    ) -> None:
        network = refuse_or_synchronise_batch_norm(network, fabric, processes)
        self.config, self.network, self.learned, self.validation = config, network, learned, validation
        self.logbook, self.watcher, self.processes = logbook, watcher, processes
        self.saved = monotonic()  # when the last checkpoint was written
        self.advice_told: set[str] = set()
        self.workers = loader_processes(config.run.workers, learned.source, processes.local_count)
        seed, ccp, train = config.run.seed, config.ccp, config.train
        is_final = config.protocol.hold_out == "nothing"
        epoch = epoch_length(len(learned), train.batch_size)

        sampler = ClassBalancedBatches(
            learned.labels,
            train.classes_per_batch,
            train.images_per_class,
            derive_seed(seed, "sampler"),
            processes.rank,
            processes.count,
            representatives_of(config, learned, epoch),
        )
        if sampler.small_classes:
            watcher.note(
                f"{len(sampler.small_classes)} training classes have fewer than {train.images_per_class} images; "
                "their images repeat within a batch."
            )
        self.batches = TrainingBatches(
            learned, sampler, derive_seed(seed, "batches"), self.workers, pin_memory=fabric.device.type == "cuda"
        )
        objective, self.proxies = build_objective(config, len(learned.class_names), epoch, processes)
        refuse_odd_loss(config, len(learned.class_names), epoch, fabric.device)
        files = files_for_proxies(config, fabric.device, logbook.folder)
        self.optimizer = build_optimizer(config, network, objective, files)
        self.divided = divided_state(self.proxies, self.optimizer)
        objective.to(fabric.device, torch.float64 if config.run.precision == "64-true" else None)
        if files is not None and self.proxies is not None:
            self.proxies.lie_in(files)
        if config.run.compile and isinstance(network.backbone, PrecomputedFeatures):
            watcher.note("run.compile has no effect: no backbone runs while a head on features trains.")
        elif config.run.compile:
            compile_backbone(network, fabric.device)
        self.wrapped_network, wrapped_optimizer = fabric.setup(network, self.optimizer)
        self.wrapped_network.mark_forward_method("raw")
        pull = ProximalPull(network, ccp.weight, corrected_sets=ccp.corrected_sets) if ccp.alternates else None
        self.pool = TrainingPool(
            learned,
            pool_size(ccp.pool_per_class, ccp.proxies_per_class),
            seed,
            config.run.evaluation_batch,
            self.workers,
            processes,
        )
        self.maps = ProblemRecorder(config, logbook.folder, learned, validation.queries, self.embed_rows)

        self.trainer = Trainer(
            fabric,
            self.wrapped_network,
            objective,
            wrapped_optimizer,
            self.batches,
            self.evaluate,
            pull=pull,
            evaluate_every=train.evaluate_every,
            max_steps=train.max_steps,
            weight_decay=config.optim.weight_decay,
            decayed=decaying_parameters(*([network, objective] if config.optim.decay_proxies else [network])),
            clip_norm=config.optim.clip_norm,
            warm_up_steps=round(train.warm_up_epochs * epoch) if config.model.has_trained_backbone else 0,
            resting=list(network.backbone.parameters()),
            processes=processes,
            divided=[] if self.divided is None else [self.divided.proxies.vectors],
            after_step=watcher.step,
            after_evaluation=self.record_evaluation,
        )
        self.projections = IterativeProjections(
            network,
            self.trainer.solve,
            proxies=self.proxies,
            pull=pull,
            embed_pool=self.embed_pool if self.proxies is not None else None,
            embed_origins=partial(self.pool.embed_origins, self.wrapped_network) if self.proxies is not None else None,
            pace=pace_of(config, len(learned.class_names), epoch) if ccp.alternates else None,
            patience=ccp.patience if ccp.alternates and ccp.until != "steps" and not is_final else None,
            run_patience=None if is_final else train.patience,
            keep_last=is_final,
            max_evaluations=evaluations_left(self.trainer),
            start_evaluations=math.ceil(ccp.start_step / train.evaluate_every),
            pull_to_start=ccp.pull_to_start,
            min_improvement=train.min_improvement,
            rewind=ccp.rewind,
            remembered=ccp.remembered_problems,
            averaged=ccp.averaged_solutions,
            space=ccp.space,
            seed=derive_seed(seed, "selection"),
            processes=processes,
            after_reselection=self.reset_moments_of_proxies if ccp.reset_moments else None,
            after_problem=self.map_problem if config.run.map_points else None,
        )

    def record_start(self) -> None:
        """Score the network on validation before its first step, and log it: what training gains is counted from there.

        Nothing else depends on it: neither patience nor the choice of the best evaluation sees this score, random
        states stay as they were, and its time is not counted as the training's.
        """
        if self.trainer.step > 0:
            if self.processes.is_first:
                self.advice_told = {advice.id for advice in self.advice()}  # before the run was interrupted
            return
        if self.processes.same(self.logbook.start() is not None):  # the run was killed before its first checkpoint
            return
        clock, states = Stopwatch(), random_states()
        with clock:
            scores = self.evaluate()
        restore_random_states(states)
        self.trainer.started = monotonic()
        if not self.processes.is_first:
            return
        row = {"step": 0, "problem": 0, **as_row(scores), "loss": None, "seconds": 0.0}
        row["evaluation_seconds"] = round(clock.seconds, 3)
        self.logbook.record(row)
        self.watcher.before_training(row)
        self.tell_advice()

    def run(self) -> None:
        """Train to the end, and leave the weights of the best evaluation in the network."""
        self.seed_other_processes()
        try:
            best = self.projections.run()
        except NonFiniteError as error:
            raise NonFiniteError(
                f"{error} Try a smaller optim.lr or run.precision=32-true in another run, and look for broken inputs; "
                "--resume would come to the same step again."
            ) from None
        finally:
            self.batches.close()
        self.network.load_state_dict(best)

    def embed_pool(self, problem: int) -> Tensor | Iterator[Tensor]:
        """Embed freshly drawn, augmented images of every class, un-normalised (D8, D9), in chunks (c, b, D) of classes.

        Processes that share the proxies each need chunks of their own classes; others that share the work, all at once.
        """
        assert self.proxies is not None
        if self.processes.count > 1 and self.divided is None:
            return self.pool.embed(self.wrapped_network, problem)
        dim, batch_size = self.config.model.embedding_dim, self.config.run.evaluation_batch
        at_once = classes_at_once(NUMBERS_OF_A_CHUNK, self.pool.size, dim, batch_size)
        return self.pool.embed_in_chunks(self.wrapped_network, problem, at_once, self.proxies.own)

    def embed_rows(self, data: LabelledSet, rows: Tensor) -> Tensor:
        """Embed the images in `rows` (n,) of `data` as evaluations see them, normalised: (n, D)."""
        batches = load_rows(data, rows, None, self.config.run.evaluation_batch, self.workers)
        return embed(self.wrapped_network, batches)[0]

    def evaluate(self) -> RetrievalScores:
        """Score the network on the validation set.

        All processes have computed the same weights. On GPUs that add up in random order the last digits may differ,
        which must not grow from evaluation to evaluation: all go on with the first one's. Divided proxies are each
        process's own.
        """
        modules = (self.network,) if self.divided is not None else (self.network, self.trainer.objective)
        self.processes.share([*self.trainer.trained, *(value for module in modules for value in module.buffers())])
        gallery = self.validation.gallery
        references = None if gallery is None else self.batches_of(gallery)
        queries = self.batches_of(self.validation.queries)
        return score(self.wrapped_network, queries, references, processes=self.processes)

    def batches_of(self, data: LabelledSet) -> Iterator[Batch]:
        """Load this process's part of `data` in order, as evaluations see it."""
        return evaluation_batches(data, self.config.run.evaluation_batch, self.workers, self.processes)

    def record_evaluation(self, evaluation: Evaluation) -> None:
        """Write an evaluation's line, the best weights, then a checkpoint: a kill in between loses nothing.

        Where `run.checkpoint_minutes` spares some checkpoints, a killed run repeats the steps since the last one.
        """
        self.seed_other_processes()
        row = log_row(evaluation, self.projections)  # in all processes: they may have to measure together
        if self.processes.is_first:
            self.logbook.record(row)
            self.watcher.evaluation(row, self.projections.run_patience.best)
            self.tell_advice()
            if evaluation.is_best:
                self.logbook.save_best(self.projections.best_of_run)
        is_due = self.projections.finished or monotonic() - self.saved >= 60 * self.config.run.checkpoint_minutes
        if self.processes.same(is_due):
            self.save_checkpoint()
            self.saved = monotonic()

    def save_checkpoint(self) -> None:
        """Write down how to go on; the first process does, with what the others have of it."""
        state = self.state_dict()
        state = state if self.divided is None else self.divided.joined(state)
        if self.processes.is_first:
            self.logbook.save(state)

    def seed_other_processes(self) -> None:
        """Let layers that draw while they train, dropout for instance, draw differently in each process.

        A checkpoint keeps the state of the first process's generator. The others' follow from the step of the last
        evaluation, so that a resumed run draws what the undisturbed one would have drawn.
        """
        if not self.processes.is_first:
            purpose = ("layers that draw while they train", self.processes.rank, self.trainer.step)
            torch.manual_seed(derive_seed(self.config.run.seed, *purpose))

    def advice(self) -> list[Advice]:
        """List the advice that the numbers so far give."""
        book = self.logbook
        return advise(Case(values_of(self.config), book.rows(), book.start(), book.outline))

    def tell_advice(self) -> None:
        """Tell advice that has not been told before."""
        for advice in self.advice():
            if advice.id not in self.advice_told:
                self.watcher.note(f"Advice: {advice.text}")
                self.advice_told.add(advice.id)

    def reset_moments_of_proxies(self) -> None:
        """Forget what Adam remembers of the proxies, which have just been moved (D12)."""
        if self.proxies is not None:
            self.optimizer.state.pop(self.proxies.vectors, None)

    def map_problem(self) -> None:
        """Leave a map of the problem that has just ended in the run's folder."""
        drawn = self.maps.proxies(self.projections)  # in all processes, which may have some each
        if self.processes.is_first:
            self.maps.record(self.projections, *drawn)

    def state_dict(self) -> dict[str, Any]:
        """Collect everything that decides how the run goes on."""
        return {
            "network": self.network.state_dict(),
            "objective": self.trainer.objective.state_dict(),
            "projections": self.projections.state_dict(),
            "trainer": self.trainer.state_dict(),
            "random": random_states(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a checkpoint was written."""
        refuse_other_version(state, self.state_dict())
        if self.divided is not None:
            state = self.divided.own_part(state, self.divided.proxies.vectors.device)
        try:
            self.network.load_state_dict(state["network"])
        except RuntimeError as error:
            raise UserError(
                "The checkpoint does not fit the network, probably because the features have another width than those "
                "the run began with; restore the data, or start another run "
                f"({str(error).splitlines()[-1].strip()})."
            ) from None
        self.trainer.objective.load_state_dict(state["objective"])
        self.projections.load_state_dict(state["projections"])
        self.trainer.load_state_dict(state["trainer"])
        step, max_steps = self.trainer.step, self.trainer.max_steps
        if max_steps is not None and max_steps < step:
            raise UserError(
                f"train.max_steps={max_steps} is less than the {step} steps that the run has taken already."
            )
        every = self.trainer.evaluate_every
        if step % every and step != max_steps:
            self.watcher.note(
                f"Step {step} is no multiple of train.evaluate_every={every}: from here on, evaluations come at other "
                "steps than in a run that was to be as long from its start, and the result may differ from that one's."
            )
        left = evaluations_left(self.trainer)  # from here: max_steps may have grown since a window that it cut short
        self.projections.max_evaluations = None if left is None else self.projections.evaluations + left
        restore_random_states(state["random"])


def evaluations_left(trainer: Trainer) -> int | None:
    """Count the evaluations up to `trainer.max_steps`; the last one may come after fewer steps than the others."""
    if trainer.max_steps is None:
        return None
    return math.ceil(max(0, trainer.max_steps - trainer.step) / trainer.evaluate_every)


def representatives_of(config: Config, learned: LabelledSet, epoch: int) -> Representatives | None:
    """Let images represent their classes (PROFS); None for other methods.

    Their problems and those of the loop are the same steps: both begin with the first one and are equally long (D32).
    """
    if config.ccp.mode != "representatives":
        return None
    return Representatives(
        learned.labels, problem_length(config.ccp, epoch), derive_seed(config.run.seed, "representatives")
    )


def problem_length(ccp: CcpConfig, epoch: int) -> int:
    """Count the steps of a problem that ends after a fixed number of them; an `epoch` has so many."""
    return epoch if ccp.steps_per_problem == "epoch" else ccp.steps_per_problem


def pace_of(config: Config, classes: int, epoch: int) -> Pace:
    """Choose what ends a problem besides a stall of the validation scores (D30).

    However stale its proxies are, a problem trains on half as many images as its pool held: a step takes about three
    times as long per image as embedding a pool, and with thousands of classes new proxies every few steps would cost
    more than the steps.
    """
    ccp, train = config.ccp, config.train
    pool = classes * pool_size(ccp.pool_per_class, ccp.proxies_per_class)
    return Pace(
        steps=problem_length(ccp, epoch) if ccp.until == "steps" else None,
        staleness=ccp.staleness if ccp.until == "stale" else None,
        behind=ccp.staleness if ccp.until == "behind" else None,
        at_least=math.ceil(pool / (2 * train.batch_size)),
        check_every=ccp.check_every,
    )


def log_row(evaluation: Evaluation, projections: IterativeProjections) -> dict[str, Any]:
    """Make the line of metrics.jsonl that tells of one evaluation."""
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
    if projections.drift is not None:
        row["staleness"] = projections.drift.staleness
        row["embedding_drift"] = projections.drift.of_embeddings
        row["proxy_drift"] = projections.drift.of_proxies
    if projections.pull is not None:
        row["pull_norm"] = float(projections.pull.norm())
        begun = [start for start in projections.starts if evaluation.previous_step <= start.step < evaluation.step]
        row["problems_begun"] = [asdict(start) for start in begun]
    return row


def refuse_other_version(state: dict[str, Any], own: dict[str, Any]) -> None:
    """Raise if a checkpoint lacks entries of this version, or has others: the resumed run would not be the same."""
    for part in ("", "projections", "trainer"):
        found, expected = (state, own) if part == "" else (state[part], own[part])
        if differing := sorted(found.keys() ^ expected.keys()):
            raise UserError(
                f"The checkpoint was written by another version of ccp-dml (they differ in {', '.join(differing)}); "
                "resume the run with the version in its environment.json, or start another run."
            )
