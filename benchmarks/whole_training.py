"""A whole training, evaluations included, against pytorch-metric-learning's own trainer, tester and calculator.

Both train the same network from the same first weights with the same loss, optimiser, learning rate, number of batches
of the same make-up, and evaluate as often on the same validation images, with MAP@R, P@R and P@1. Images are not
augmented, so that loading is indexing for both. Ours also decays weights, clips gradients, keeps the best weights, and
writes its log and a checkpoint after every evaluation; the peer does none of it. The large network trains in a process
of its own each time: ours keeps freed memory as the command `ccp` does, which holds for a whole process.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from typing import Any

import torch
import tqdm
from pytorch_metric_learning import losses, samplers, testers, trainers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from side_by_side import Claim, compare, in_own_process, main
from torch import Tensor
from torch.utils.data import Dataset

from ccp_dml.config.layers import resolve
from ccp_dml.config.schema import Config
from ccp_dml.data.features import FeatureRows
from ccp_dml.data.labelled import LabelledSet, TestSet
from ccp_dml.foundation.machine import keep_freed_memory
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.arguments import checked_arguments, complete
from ccp_dml.runs.build import build_network
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.training import prepare_torch, train_on_classes
from ccp_dml.runs.watcher import Watcher

GOAL = 10
WHAT_IT_TAKES = (
    "A short training shows what a run does once, and that it writes a log and checkpoints from which it can be "
    "resumed; with thousands of steps the network's own passes decide, which are the same for both."
)
METRICS = ("mean_average_precision_at_r", "r_precision", "precision_at_1")


@dataclass(frozen=True)
class Scene:
    """One training: its settings, the images that train, and those that are evaluated."""

    config: Config
    learned: LabelledSet
    validation: LabelledSet


class Items(Dataset[tuple[Tensor, int]]):
    """All of a set in memory, item by item, as the peer's loader wants it."""

    def __init__(self, data: LabelledSet) -> None:
        self.inputs, self.labels = data.load(torch.arange(len(data))), data.labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.inputs[row], self.labels[row]


def settings_of(steps: int, every: int) -> list[str]:
    return [f"train.max_steps={steps}", f"train.evaluate_every={every}", "run.map_points=0"]


def glyphs(steps: int, every: int) -> Scene:
    """Train the small network of `make demo` on glyphs."""
    config = complete(resolve(["glyphs", "c2"], ["data.augment=none", *settings_of(steps, every)]).config)
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, build_data(config.data))
    return Scene(config, learned, validation.queries)


def features(steps: int, every: int) -> Scene:
    """Train a linear head on features, where the network costs next to nothing."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400).repeat_interleave(20)
    centres = torch.randn(400, 1280, generator=generator)
    vectors = centres[labels] + 3 * torch.randn(len(labels), 1280, generator=generator)
    everything = LabelledSet(FeatureRows(vectors), torch.arange(len(labels)), labels, tuple(map(str, range(400))))
    settings = ["model.head_init=xavier", "train.classes_per_batch=16", "train.images_per_class=4"]
    config = complete(resolve(["features", "c2"], [*settings, *settings_of(steps, every)]).config)
    return Scene(config, everything.of_classes(range(200)), everything.of_classes(range(200, 400)))


def photographs(steps: int, every: int) -> Scene:
    """Train the whole of a large network on images of 112 px: a colour per class, and noise."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64).repeat_interleave(8)
    colours = 40 * torch.randn(64, 3, 1, 1, generator=generator)
    noise = 40 * torch.randn(len(labels), 3, 112, 112, generator=generator)
    images = (128 + colours[labels] + noise).clamp(0, 255).to(torch.uint8)
    everything = LabelledSet(FeatureRows(images), torch.arange(len(labels)), labels, tuple(map(str, range(64))))
    settings = ["model.pretrained=false", "model.head_init=xavier", "optim.lr=1e-4", *settings_of(steps, every)]
    config = complete(resolve(["folder", "finetune", "c2"], settings).config)
    return Scene(config, everything.of_classes(range(32)), everything.of_classes(range(32, 64)))


def seconds_in_own_process(whose: str, steps: int, every: int) -> float:
    return in_own_process(__file__, "--alone", whose, str(steps), str(every))


def train_alone(whose: str, steps: int, every: int) -> float:
    """Train `photographs` in this process: processor seconds."""
    torch.set_num_threads(1)
    if whose == "ours":
        keep_freed_memory()
    scene = photographs(steps, every)
    begun = time.process_time()
    score = our_training(scene) if whose == "ours" else their_training(scene)
    taken = time.process_time() - begun
    assert score > 0.05, score  # chance finds 0.01
    return taken


def our_training(scene: Scene) -> float:
    """Train as `ccp train` does, deterministically, and return the best MAP@R."""
    prepare_torch(scene.config)
    with tempfile.TemporaryDirectory() as scratch:
        logbook = Logbook.open_new(Path(scratch, "run"), scene.config, ["benchmark"])
        _, facts = train_on_classes(
            scene.config, scene.learned, TestSet(scene.validation), logbook, Watcher(), resume=False
        )
    return facts["validation"]["map_at_r"]


def their_training(scene: Scene) -> float:
    """Train as the peer does, with torch as it is by default, and return the best MAP@R."""
    torch.use_deterministic_algorithms(False)
    config, cpu = scene.config, torch.device("cpu")
    margins = checked_arguments(config.loss)
    network = build_network(config.model, scene.learned, config.run.seed)
    batch = config.train.classes_per_batch * config.train.images_per_class
    every = config.train.evaluate_every
    learned, validation = Items(scene.learned), Items(scene.validation)
    tester = testers.GlobalEmbeddingSpaceTester(
        batch_size=config.run.evaluation_batch,
        dataloader_num_workers=0,
        data_device=cpu,
        accuracy_calculator=AccuracyCalculator(include=METRICS, k="max_bin_count", device=cpu),
    )
    found: list[float] = []

    def evaluate(trainer: Any) -> None:
        accuracies = tester.test({"validation": validation}, trainer.epoch, network)
        found.append(next(value for name, value in accuracies["validation"].items() if METRICS[0] in name))

    trainer = trainers.MetricLossOnly(
        models={"trunk": network},
        optimizers={"trunk_optimizer": torch.optim.Adam(network.parameters(), lr=config.optim.lr)},
        batch_size=batch,
        loss_funcs={
            "metric_loss": losses.ContrastiveLoss(
                pos_margin=margins["positive_margin"], neg_margin=margins["negative_margin"]
            )
        },
        dataset=learned,
        sampler=samplers.MPerClassSampler(
            scene.learned.labels, config.train.images_per_class, batch, length_before_new_iter=batch * every
        ),
        iterations_per_epoch=every,
        dataloader_num_workers=0,
        data_device=cpu,
        end_of_epoch_hook=evaluate,
    )
    trainer.epoch = 0
    evaluate(trainer)  # ours looks at the network before the first step, too
    trainer.train(num_epochs=(config.train.max_steps or 0) // every)
    return max(found)


def claim(case: str, scene: Scene, repeats: int) -> Claim:
    scores: dict[str, float] = {}

    def remembering(name: str, training: Callable[[Scene], float]) -> Callable[[], None]:
        return lambda: scores.update({name: training(scene)})

    times = compare(remembering("ours", our_training), remembering("theirs", their_training), repeats, warm_up=False)
    assert abs(scores["ours"] - scores["theirs"]) < 0.03, scores  # batches are drawn differently
    return Claim("A whole training", case, times, at_least=1.0, note=WHAT_IT_TAKES)


def without_progress_bars() -> None:
    tqdm.tqdm.__init__ = partialmethod(tqdm.tqdm.__init__, disable=True)  # the peer need not draw them


def measure(quick: bool) -> list[Claim]:
    without_progress_bars()
    short = 5 if quick else 1
    repeats = 1 if quick else 3
    steps, every = (2, 1) if quick else (12, 4)
    pairs = [(seconds_in_own_process("ours", steps, every), seconds_in_own_process("theirs", steps, every))]
    pairs += [] if quick else [(seconds_in_own_process("ours", 12, 4), seconds_in_own_process("theirs", 12, 4))]
    return [
        Claim(
            "A whole training",
            "256 images of 112 px, EfficientNet-Lite0, C2: 12 steps, 4 evaluations",
            pairs,
            at_least=None if quick else 1.0,
            note=WHAT_IT_TAKES,
        ),
        claim("glyphs, small CNN, C2: 80 steps, 5 evaluations", glyphs(80 // short, 20 // short), repeats),
        claim("glyphs, small CNN, C2: 300 steps, 4 evaluations", glyphs(300 // short, 100 // short), min(repeats, 2)),
        claim(
            "8,000 features of 1,280, linear head, C2: 200 steps, 5 evaluations",
            features(200 // short, 50 // short),
            repeats,
        ),
        claim(
            "8,000 features of 1,280, linear head, C2: 1,000 steps, 5 evaluations",
            features(1_000 // short, 250 // short),
            repeats,
        ),
    ]


if __name__ == "__main__":
    if "--alone" in sys.argv:
        without_progress_bars()
        print(train_alone(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        main(__doc__, measure)
