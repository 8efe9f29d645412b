"""Certify a run: embed training, validation and test images, measure their distances, and write certificate.json."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import Tensor, nn

from ccp_dml.certificate import constraint as constraints
from ccp_dml.certificate.constraint import Constraint
from ccp_dml.certificate.sampling import draw_images
from ccp_dml.certificate.set_certificate import EmbeddedSet, Threshold, certify_set, choose_threshold
from ccp_dml.config.layers import naming_keys
from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import LabelledSet, Parts, TestSet
from ccp_dml.data.loading import load_rows, loader_processes
from ccp_dml.errors import UserError
from ccp_dml.evaluation import embed
from ccp_dml.foundation.files import as_json
from ccp_dml.foundation.randomness import generator
from ccp_dml.functional.distances import NORMALISERS
from ccp_dml.models.embedder import Embedder
from ccp_dml.records import layout
from ccp_dml.records.code_copies import GROUPS
from ccp_dml.records.documents import replace_document
from ccp_dml.records.embeddings import EmbeddedTest, load_embedded
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.problem_map import read_problem
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.runs.arguments import LossContext, checked_arguments
from ccp_dml.runs.build import build_loss
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.frozen import FrozenFeatures
from ccp_dml.runs.scoring import load_network
from ccp_dml.runs.watcher import Watcher


@dataclass(frozen=True)
class CertificateOptions:
    """What a user may ask of a certificate; the defaults are those of `ccp train`."""

    beta: float | None = None  # None: as the loss has it
    alpha: float | None = None
    false_match_rate: float = 0.01
    pairs: int = 2000  # independent pairs of each kind in a set, at most: so large that a certificate takes seconds
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.false_match_rate < 1:
            raise UserError(
                f"A false-match rate lies between 0 and 1, as 0.01 does; {self.false_match_rate:g} does not."
            )
        if not 0.5 < self.confidence < 1:
            raise UserError(
                f"A confidence of {self.confidence:g} is out of range: give one between 0.5 and 1, such as 0.95."
            )
        if self.pairs < 1:
            raise UserError(f"{self.pairs} pairs leave nothing to measure: ask for at least 1.")


def write_certificate(
    config: Config,
    logbook: Logbook,
    network: Embedder,
    parts: Parts,
    test: EmbeddedTest | None,
    best_step: int,
    options: CertificateOptions,
) -> dict[str, Any] | None:
    """Certify `network`, the best one of the run, found at `best_step`; return what was written into the run's folder.

    `test` is the test half as the network embeds it, if that is known already. Returns None, and writes nothing, if
    neither options nor loss nor validation pairs say what to measure.
    """
    known = {} if test is None else {"test": [vectors for vectors, _ in test.sides()]}
    embedded = {
        name: embed_part(config, network, sides, name, options, known.get(name))
        for name, sides in parts.sides().items()
    }
    loss = build_loss(config.loss, LossContext(len(parts.learned.class_names), config.model.embedding_dim))
    threshold = choose_threshold(embedded["validation"], options.false_match_rate, options.confidence)
    constraint = settle_constraint(loss, options, threshold)
    if constraint is None:
        return None
    best_problem = next(row["problem"] for row in logbook.rows() if row["step"] == best_step)
    proxies = {"training": proxies_of_problem(logbook.folder, best_problem)}
    certificate = {
        "terms": asdict(options),
        "constraint": asdict(constraint),
        "threshold": None if threshold is None else asdict(threshold),
        "hold_out": config.protocol.hold_out,
        "selected_on": config.protocol.select_on,
        "sets": {
            name: asdict(certify_set(part, constraint, threshold, options.confidence, proxies.get(name)))
            for name, part in embedded.items()
        },
    }
    replace_document(logbook.folder / layout.CERTIFICATE, as_json(certificate))
    return certificate


def embed_part(
    config: Config,
    network: Embedder,
    sides: Sequence[LabelledSet],
    name: str,
    options: CertificateOptions,
    known: Sequence[Tensor] | None = None,
) -> EmbeddedSet:
    """Embed as many images of the set `name` as the wanted pairs take, normalised as the loss normalises them.

    Queries and gallery are one set here: a pair's distance does not depend on which of the two is the query. `known`
    are the embeddings (n, D) of all images of each side, where they need not be made once more.
    """
    all_labels = torch.cat([side.labels for side in sides])
    rows = draw_images(all_labels, 2 * options.pairs, generator(options.seed, "certificate images", name))
    embeddings, start = [], 0
    for number, side in enumerate(sides):
        own = rows[(rows >= start) & (rows < start + len(side))] - start
        if known is not None:
            embeddings.append(known[number][own.to(known[number].device)])
        elif len(own):
            workers = loader_processes(config.run.workers, side.source)
            embeddings.append(embed(network, load_rows(side, own, None, config.run.evaluation_batch, workers))[0])
        start += len(side)
    normalise = NORMALISERS[checked_arguments(config.loss).get("normalise", "none")]  # most have nothing left to do
    return EmbeddedSet.make(
        normalise(torch.cat(embeddings)),
        all_labels[rows],
        sides[0].class_names,
        generator(options.seed, "certificate pairs", name),
        of_images=len(all_labels),
        of_classes=len(torch.unique(all_labels)),
    )


def settle_constraint(loss: nn.Module, options: CertificateOptions, threshold: Threshold | None) -> Constraint | None:
    """Choose the chance constraint to measure: as given, else as the loss states it, else at the chosen threshold."""
    constraint = constraints.with_given(constraints.of_loss(loss), options.beta, options.alpha)
    if constraint is not None or threshold is None:
        return constraint
    chosen = constraints.at_threshold(threshold.beta, options.false_match_rate)
    return chosen if options.alpha is None else constraints.with_alpha(chosen, options.alpha)


def proxies_of_problem(folder: Path, problem: int) -> Mapping[str, Tensor]:
    """Read the converged proxies (P, D) by class name, of the classes on the problem's map; none without a map."""
    file = layout.map_file(folder, problem)
    if not file.exists():
        return {}
    problem_map = read_problem(file)
    if problem_map.converged is None:
        return {}
    return dict(zip(problem_map.train.class_names, problem_map.converged, strict=True))


def stored_test(folder: Path, test: TestSet) -> EmbeddedTest | None:
    """Read how the run embedded its test half, unless the file is gone or its labels are others than `test` has."""
    if not (folder / layout.TEST_EMBEDDINGS).exists():
        return None
    stored = load_embedded(folder)
    found, wanted = stored.sides(), test.sides()
    same = len(found) == len(wanted) and all(
        torch.equal(labels, side.labels) for (_, labels), side in zip(found, wanted, strict=True)
    )
    return stored if same else None


@naming_keys("data")
def certify_run(
    folder: Path,
    options: CertificateOptions,
    watcher: Watcher,
    settings: Sequence[str] = (),
    *,
    trust_code: bool = False,
) -> dict[str, Any]:
    """Write the certificate of the run in `folder`, in place of an earlier one; see `Logbook.config_here`."""
    run = RunFolder.read(folder)
    best = run.best_evaluation()
    if not run.finished or best is None:
        raise UserError(
            f"{folder} is not finished; continue it with `ccp train --resume --out {quote(str(folder))}` first."
        )
    logbook = Logbook.reopen(folder)
    config = logbook.config_here(settings, tuple(GROUPS), trust_code=trust_code)
    frozen = FrozenFeatures()
    logbook.pin_backbone(frozen.backbone_digest(config))
    halves = build_data(config.data)
    logbook.pin_data(halves.digest)  # with other classes, learned ones might be in the test half
    if config.protocol.hold_out == "nothing" or not len(halves.test.queries):
        raise UserError(
            f"{folder} was trained without test classes, so that nothing can be certified about unseen ones; certify "
            "the run that it was made from."
        )
    inputs = frozen.training_inputs(config, halves, watcher)
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, inputs)
    test = frozen.test_inputs(config, halves.test, watcher)
    network = load_network(logbook, config, test)
    parts = Parts(learned, validation, test)
    try:
        certificate = write_certificate(
            config, logbook, network, parts, None if settings else stored_test(folder, test), best["step"], options
        )
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror or error}); copy the run elsewhere.") from None
    if certificate is None:
        raise UserError(
            f"The loss {config.loss.name!r} of {folder} has no threshold of its own, and the validation images that "
            "were drawn are all of one class, so that none can be chosen: give one with --beta, or more --pairs."
        )
    return certificate
