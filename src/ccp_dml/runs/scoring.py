"""Score networks on the test half: a run at its end, finished runs and their ensemble, a bare backbone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ccp_dml.config.layers import differing, naming_keys, values_of
from ccp_dml.config.readers import reads
from ccp_dml.config.schema import Config, DataConfig, ModelConfig
from ccp_dml.data.labelled import LabelledSet, TestSet
from ccp_dml.data.loading import evaluation_batches, loader_processes
from ccp_dml.errors import UserError, listing
from ccp_dml.evaluation import SCORES, embed, spread
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.functional.distances import clip_normalise
from ccp_dml.functional.retrieval import RetrievalScores, retrieval_scores
from ccp_dml.models.backbones import IDENTITY
from ccp_dml.models.embedder import Embedder
from ccp_dml.records.embeddings import EmbeddedTest
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.setting_groups import WHAT_IS_TESTED, settings_digest
from ccp_dml.reports.comparison import NOT_THE_METHOD
from ccp_dml.runs.build import build_network, start_head, weights_note
from ccp_dml.runs.datasets import build_data, remember_last
from ccp_dml.runs.devices import evaluation_device
from ccp_dml.runs.frozen import FrozenFeatures, trained_part
from ccp_dml.runs.watcher import Watcher

MIXED_SELECTION = (
    "Some of these runs were selected on the test classes themselves and others were not: their mean and ensemble are "
    "of neither kind."
)


def embed_test(config: Config, network: Embedder, test: TestSet, processes: Processes = ALONE) -> EmbeddedTest:
    """Embed the test half, each process a part of it; all get the whole."""
    workers = loader_processes(config.run.workers, test.queries.source, processes.local_count)

    def embedded(part: LabelledSet) -> tuple[Tensor, Tensor]:
        batches = evaluation_batches(part, config.run.evaluation_batch, workers, processes)
        return embed(network, batches, processes=processes)

    return EmbeddedTest(embedded(test.queries), None if test.gallery is None else embedded(test.gallery))


def score_embeddings(test: EmbeddedTest, recall_at: Sequence[int]) -> dict[str, Any]:
    """Score embeddings; the result is the `test` entry of result.json."""
    ref_embeddings, ref_labels = test.references or (None, None)
    scores = retrieval_scores(*test.queries, ref_embeddings, ref_labels, recall_at)
    recalls = {str(k): value for k, value in scores.recall_at.items()}
    return {**as_row(scores), "skipped": scores.skipped, "recall_at": recalls}


def as_row(scores: RetrievalScores) -> dict[str, Any]:
    """Pick the scores that every log, result and table shows."""
    return {**{name: getattr(scores, name) for name in SCORES}, "queries": scores.queries}


@naming_keys("data")
def evaluate_runs(
    folders: Sequence[Path], watcher: Watcher, settings: Sequence[str] = (), *, trust_code: bool = False
) -> dict[str, Any]:
    """Score the best networks of runs on the test half of their common data set; see `Logbook.config_here`."""
    code = ("data.name", "model.backbone")
    books = {str(folder): Logbook.reopen(folder) for folder in folders}
    configs = {name: book.config_here(settings, code, trust_code=trust_code) for name, book in books.items()}
    refuse_different_data({name: config.data for name, config in configs.items()})
    for name, config in configs.items():
        if config.protocol.hold_out == "nothing" or config.data.test_share == 0:
            raise UserError(f"{name} was trained without test classes: no score can be measured on it.")
    load_data = remember_last(build_data)  # runs may see the same images at different sizes
    frozen, embedded = FrozenFeatures(), {}
    incomplete: list[str] = []
    for name, config in configs.items():
        book = books[name]
        book.pin_backbone(frozen.backbone_digest(config))
        halves = load_data(config.data)
        book.pin_data(halves.digest)  # with other classes, learned ones might be in the test half
        incomplete += halves.incomplete
        seen = frozen.test_inputs(config, halves.test, watcher)
        embedded[name] = embed_test(config, load_network(book, config, seen), seen)
        for note in book.notes:
            watcher.note(note)
    recall_at = next(iter(configs.values())).protocol.recall_at
    notes = [*repeated_trainings(configs), *different_methods(configs)]
    notes += [MIXED_SELECTION] if len({config.protocol.select_on for config in configs.values()}) > 1 else []
    for note in notes:
        watcher.note(note)
    scores = {
        name: {**score_embeddings(parts, recall_at), "selected_on": configs[name].protocol.select_on}
        for name, parts in embedded.items()
    }
    known = told_incomplete(incomplete)
    if len(scores) == 1:
        return {"runs": scores, **next(iter(scores.values())), **known}
    return {
        "runs": scores,
        **known,
        "notes": notes,
        "separated": {name: asdict(spread([run[name] for run in scores.values()])) for name in SCORES},
        "concatenated": score_embeddings(concatenate(list(embedded.values())), recall_at),
    }


def concatenate(parts: Sequence[EmbeddedTest]) -> EmbeddedTest:
    """Join models to one ensemble: every model's embedding normalised, side by side, normalised again (D26)."""

    def joined(sides: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        if not all(torch.equal(labels, sides[0][1]) for _, labels in sides):
            raise UserError(
                "The models were scored on different test halves, so that their embeddings cannot stand side by side; "
                "restore the data, and train those again that saw others."
            )
        vectors = torch.cat([clip_normalise(embeddings) for embeddings, _ in sides], dim=1)
        return clip_normalise(vectors), sides[0][1]

    references = [part.references for part in parts if part.references is not None]
    return EmbeddedTest(joined([part.queries for part in parts]), joined(references) if references else None)


def repeated_trainings(runs: Mapping[str, Config]) -> list[str]:
    """Say which runs are one training, copied or repeated: no chance is between them that a mean could tell of."""
    first_of: dict[tuple[str, str | None], str] = {}
    notes = []
    for name, config in runs.items():
        first = first_of.setdefault((settings_digest(config), config.model.weights), name)
        if first != name:
            notes.append(
                f"{name} has the settings, fold and seed of {first}: mean, spread and ensemble count one training more "
                "than once; leave one of them out."
            )
    return notes


def different_methods(runs: Mapping[str, Config]) -> list[str]:
    """Say which runs differ from the first in more than fold and seed: a mean over methods tells of none of them."""
    (first, reference), *others = runs.items()
    notes = []
    for name, config in others:
        differences = differing(values_of(reference), values_of(config), but_for=NOT_THE_METHOD)
        keys = [key for key, *_ in differences if reads(reference, key) or reads(config, key)]
        if keys:
            notes.append(
                f"{name} is not a repeat of {first}: they differ in {listing(keys, 3)}. Their mean is of no one "
                "method; compare them with `ccp report`."
            )
    return notes


def refuse_different_data(runs: Mapping[str, DataConfig]) -> None:
    """Raise if the runs were not tested on the same images."""
    (first, reference), *others = runs.items()
    for name, data in others:
        for key in WHAT_IS_TESTED:
            own, other = (getattr(one, key.removeprefix("data.")) for one in (data, reference))
            if own != other:
                raise UserError(
                    f"{name} has another test half than {first} ({key} = {own!r}, not {other!r}); evaluate runs of one "
                    "data set together."
                )


def load_network(logbook: Logbook, config: Config, test: TestSet) -> Embedder:
    """Load the best network of a run onto the device that its configuration asks for."""
    if not logbook.best_file.exists():
        raise UserError(
            f"{logbook.folder} has no {logbook.best_file.name} yet; finish it with `ccp train --resume --out` first."
        )
    network = build_network(trained_part(config.model).without_source, test.queries, config.run.seed)
    try:
        network.load_state_dict(logbook.best_weights())
    except RuntimeError:
        raise UserError(
            f"{logbook.best_file} does not fit the network that {logbook.config_file} describes: one of the "
            "two was changed after training, or the features have another width now; restore what was changed."
        ) from None
    return network.to(evaluation_device(config))


def score_raw(config: Config, test: TestSet, learned: LabelledSet) -> dict[str, Any]:
    """Score on the test half what a run has to beat; the result is the `raw` entry of result.json.

    That is the backbone without a head, its features L2-normalised, where the backbone was trained before (or the data
    are features); for a network from scratch, the whole network before its first step. `test` and `learned` are given
    as the trained network gets them.
    """
    model = trained_part(config.model)
    if is_pretrained(config.model):
        name, network = f"raw {config.model.backbone}", raw_backbone(model, test, config.run.seed)
        name = "the vectors as they are" if config.model.backbone == IDENTITY else name
    else:
        name, network = f"{config.model.backbone} before training", build_network(model, test.queries, config.run.seed)
        start_head(network, config, learned, loader_processes(config.run.workers, learned.source))
    return {"network": name, **score_network(config, network, test)}


def score_network(config: Config, network: Embedder, test: TestSet) -> dict[str, Any]:
    """Embed the test half with a network, on the device of the run, and score it."""
    network.to(evaluation_device(config))
    return score_embeddings(embed_test(config, network, test), config.protocol.recall_at)


def is_pretrained(model: ModelConfig) -> bool:
    """Tell whether the features mean something before training."""
    return bool(model.pretrained or model.weights or model.freeze_backbone or model.backbone == IDENTITY)


def raw_backbone(model: ModelConfig, test: TestSet, seed: int) -> Embedder:
    """Build a network whose embeddings are the backbone's pooled, L2-normalised features."""
    without_head = {"normalise": "l2", "head_init": "xavier", "hidden_dim": None}
    network = build_network(model.model_copy(update=without_head), test.queries, seed)
    width = network.linear.in_features
    network.linear = nn.utils.skip_init(nn.Linear, width, width, bias=False)
    nn.init.eye_(network.linear.weight)
    return network


@naming_keys("data")
def score_raw_backbone(config: Config) -> dict[str, Any]:
    """Score a backbone's pooled, L2-normalised features on the test half, in the form of `evaluate_runs`."""
    if (note := weights_note(config.model)) is not None:
        raise UserError(f"{note} There is nothing to score otherwise.")
    halves = build_data(config.data)
    scores = score_network(config, raw_backbone(config.model, halves.test, config.run.seed), halves.test)
    return {"runs": {f"raw {config.model.backbone}": scores}, **scores, **told_incomplete(halves.incomplete)}


def told_incomplete(texts: Iterable[str]) -> dict[str, list[str]]:
    """Make the entry of scores that says how their data differ from what was published: every table must say so."""
    return {"incomplete": found} if (found := list(dict.fromkeys(texts))) else {}
