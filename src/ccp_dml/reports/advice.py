"""Advise on a run from numbers that it has logged: what they mean, and which setting to change.

This is the only place where such rules stand. A running training tells each advice once, as soon as its rule applies;
the page of a run lists them. docs/algorithm.md explains the rules under their names.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccp_dml.pace import KEEPS_UP
from ccp_dml.records.evaluation_log import Row
from ccp_dml.records.run_folder import RunFolder, number

NOTHING = 1e-3
"""A share of active pairs below this is none: a batch of 64 has 2,000 pairs."""
A_FEW = 3
"""Evaluations in a row that make a rule apply: one alone may be chance."""
LONG = 5
"""Evaluations after which something should have happened."""
UNMOVED = 0.005
"""MAP@R, 0..1 scale: what evaluations of the same network on other images would differ by, too."""
UNMOVED_SHARE = 0.1
"""Of MAP@R at step 0: many classes score so low at first that a doubled score is still below `UNMOVED`."""
NEARLY_ALL = 0.98
"""MAP@R above which there is nothing to gain."""
FINE_TUNING_RATE = 1e-4
"""Learning rates of Adam below this fit networks that were trained before."""
LEAST_ENLARGED = 1.25
"""Images that are enlarged by less than this lose nothing that matters."""
FEW_CLASSES = 2
SMALL_SHARE = 0.25
"""Of the classes: fewer that test than the usual half, so that more learn and validate."""
FEW_LEARNED = 4
"""Classes below this lie on opposite sides of the sphere after a few steps, whatever the margin asks for."""

MOST = "train.max_steps"
WATCH_PROXIES = ("behind", "stale")
"""Values of `ccp.until` with which new proxies come as soon as the network has left them behind."""

MARGINS = {
    "c1": ("loss.margin", "lower"),
    "c2": ("loss.negative_margin", "raise"),
    "ms": ("loss.base", "lower"),
    "triplet": ("loss.margin", "raise"),
}
"""Which argument brings negatives back, by loss, and in which direction."""


@dataclass(frozen=True)
class Advice:
    """One line about a run.

    Args:
        id: a name that stays, for documents and scripts.
        text: what was seen, what it means, and what to change.
        setting: the key to change.
    """

    id: str
    text: str
    setting: str


Found = tuple[str, str]
"""What a rule finds where it applies: text and setting of its advice."""


@dataclass(frozen=True)
class Case:
    """What rules look at: settings under dotted keys, evaluations, the network's start, and what the data are like."""

    settings: Mapping[str, Any]
    rows: Sequence[Row] = ()
    start: Row | None = None
    outline: Mapping[str, Any] = field(default_factory=dict)

    def recent(self, key: str, count: int) -> list[float]:
        """List a value of the last `count` evaluations; empty unless all of them have it."""
        values = [number(row.get(key)) for row in self.rows[-count:]]
        known = [value for value in values if value is not None]
        return known if len(known) == count else []

    def data_key(self) -> str:
        """Name the setting that says where the data are."""
        return "data.path" if self.settings.get("data.path") else "data.root"

    def best_gain(self) -> float | None:
        """Compute by how much the best evaluation is above the start; None where one of them is missing."""
        start, scores = score_of(self.start), [score_of(row) for row in self.rows]
        known = [one for one in scores if one is not None]
        return None if start is None or not known else max(known) - start

    def from_scratch(self) -> bool:
        """Tell whether a network starts from random weights; a head on features has none that could."""
        trained_before = self.settings.get("model.pretrained") or self.settings.get("model.weights")
        return not trained_before and self.settings.get("model.backbone") not in (None, "identity")

    def now(self, key: str) -> str:
        """Quote a setting: "optim.lr (now 1e-05)"."""
        return f"{key} (now {self.settings.get(key)})"


def score_of(row: Row | None) -> float | None:
    return None if row is None else number(row.get("map_at_r"))


def advise(case: Case) -> list[Advice]:
    """List the advice that applies to a run, at its beginning, while it trains and afterwards."""
    return [Advice(name, *found) for name, rule in RULES.items() if (found := rule(case)) is not None]


def advise_run(run: RunFolder) -> list[Advice]:
    """List the advice that applies to a run as its folder tells of it."""
    return advise(Case(run.settings(), run.metrics, run.start, run.outline or {}))


def few_validation_classes(case: Case) -> Found | None:
    """Advise more validation classes; images of learned classes are no remedy: they choose too late an evaluation."""
    classes, learned = number(case.outline.get("validation_classes")), number(case.outline.get("learned_classes"))
    if classes is None or classes > FEW_CLASSES or case.settings.get("protocol.hold_out", "classes") != "classes":
        return None
    key, others = case.data_key(), ""
    folds = int(classes + (learned or 0)) // (FEW_CLASSES + 1)
    share = number(case.settings.get("data.test_share"))
    has_given_split = case.outline.get("says_what_tests", case.settings.get("data.name") not in ("folder", "csv"))
    if not has_given_split and share is not None and share > SMALL_SHARE:
        key, others = "data.test_share", f", or let fewer of them test with data.test_share={SMALL_SHARE}"
    elif folds >= 2:
        key, others = "protocol.folds", f", or let more of them validate with protocol.folds={folds}"
    return (
        f"Only {classes:.0f} classes validate: which evaluation is best is half chance. Add classes to "
        f"{case.data_key()}{others}.",
        key,
    )


def enlarged_images(case: Case) -> Found | None:
    """Advise smaller images to networks from scratch; a pretrained one scores better on enlarged images."""
    side, crop = number(case.outline.get("image_side")), number(case.settings.get("data.crop"))
    if side is None or crop is None or crop < LEAST_ENLARGED * side or not case.from_scratch():
        return None
    fitting = 8 * round(side / 8)
    return (
        f"Images of {side:.0f} px are enlarged to {crop:.0f}, which costs time and adds no detail. Set data.crop="
        f"{fitting} and data.resize={round(fitting * 9 / 8)}.",
        "data.crop",
    )


def fine_tuning_rate(case: Case) -> Found | None:
    rate = number(case.settings.get("optim.lr"))
    if rate is None or rate >= FINE_TUNING_RATE or not case.from_scratch():
        return None
    return (
        f"{case.settings['model.backbone']} starts from random weights, and optim.lr={rate:g} is a rate for "
        "fine-tuning: it hardly learns. Set optim.lr=1e-3, or model.pretrained=true for a backbone that has weights.",
        "optim.lr",
    )


def no_proxies(case: Case) -> Found | None:
    start, every = number(case.settings.get("ccp.start_step")), number(case.settings.get("train.evaluate_every"))
    if case.settings.get("ccp.mode") not in ("alternating", "one-problem") or not start or not every:
        return None
    whole_start = math.ceil(start / every) * every
    return _over_before(case, whole_start, "the first proxies, which come", "ccp.start_step")


def no_memory(case: Case) -> Found | None:
    start = number(case.settings.get("xbm.start_step"))
    if not case.settings.get("xbm.enabled") or not start:
        return None
    return _over_before(case, start, "the memory of past batches, which comes", "xbm.start_step")


def _over_before(case: Case, start: float, what: str, key: str) -> Found | None:
    """Advise more steps where training ends before its method begins; a final one may be as short as the run was."""
    steps = number(case.settings.get(MOST))
    if steps is None or steps > start or case.settings.get("protocol.hold_out") == "nothing":
        return None
    return (
        f"{MOST}={steps:.0f} ends the training before {what} after {start:.0f} steps: it is the loss alone. Raise it, "
        f"or lower {case.now(key)}.",
        MOST,
    )


def no_active_negatives(case: Case) -> Found | None:
    """Advise another margin, unless negatives became inactive because the run has learned to tell classes apart."""
    negatives, positives = case.recent("active_negatives", A_FEW), case.recent("active_positives", A_FEW)
    margin = MARGINS.get(str(case.settings.get("loss.name")))
    if not negatives or max(negatives) > NOTHING or margin is None or max(positives, default=0.0) <= NOTHING:
        return None
    gain = case.best_gain()
    if (
        gain is not None
        and gain >= UNMOVED
        and any((number(row.get("active_negatives")) or 0.0) > NOTHING for row in case.rows)
    ):
        return None
    key, direction = margin
    seen = f"No active negatives in the last {A_FEW} evaluations"
    learned = number(case.outline.get("learned_classes"))
    if learned is not None and learned < FEW_LEARNED:
        return (
            f"{seen}: {learned:.0f} classes to learn from are told apart already, and no margin changes that. Add "
            f"classes to {case.now(case.data_key())}.",
            case.data_key(),
        )
    return (
        f"{seen}: the margin is out of reach, so classes contract but are not pushed apart. "
        f"{direction.capitalize()} {case.now(key)}.",
        key,
    )


def no_active_pairs(case: Case) -> Found | None:
    pairs = [case.recent(f"active_{kind}", LONG) for kind in ("positives", "negatives")]
    if not all(pairs) or max(map(max, pairs)) > NOTHING:
        return None
    key, _ = MARGINS.get(str(case.settings.get("loss.name")), ("loss.name", ""))
    return (
        f"No active pair in the last {LONG} evaluations: the loss has nothing more to learn from. Stop here, or let "
        f"the loss ask for more with {case.now(key)}.",
        key,
    )


def collapse(case: Case) -> Found | None:
    positives, negatives = case.recent("active_positives", A_FEW), case.recent("active_negatives", A_FEW)
    in_one_place = positives and negatives and max(positives) < 0.01 and min(negatives) > 0.99
    start, scores = score_of(case.start), case.recent("map_at_r", A_FEW)
    lost = start is not None and scores and start > 0.02 and max(scores) < start / 2
    if not (in_one_place or lost):
        return None
    seen = (
        "All embeddings lie in one place (every negative is active, no positive is)"
        if in_one_place or start is None
        else f"MAP@R fell from {100 * start:.1f} % before training to {100 * scores[-1]:.1f} %"
    )
    return f"{seen}: the embedding has collapsed. Lower {case.now('optim.lr')}.", "optim.lr"


def unmoved(case: Case) -> Found | None:
    start, scores = score_of(case.start), case.recent("map_at_r", LONG)
    if start is None or not scores or start > NEARLY_ALL or no_active_negatives(case) is not None:
        return None  # nothing was left to gain, or another rule knows why
    if any(abs(score - start) >= min(UNMOVED, UNMOVED_SHARE * start) for score in scores):
        return None
    seen = f"MAP@R has not moved since step 0 ({100 * start:.1f} %, now {100 * scores[-1]:.1f} %)"
    if case.settings.get("loss.name") == "c1" and fine_tuning_rate(case) is None:
        # C1 is content with short vectors, whose products stay under the margin
        return (
            f"{seen}: C1 may be content with short vectors. Set model.normalise=l2 and loss.normalise=l2.",
            "model.normalise",
        )
    return f"{seen}: training changes too little. Raise {case.now('optim.lr')}.", "optim.lr"


def best_is_first(case: Case) -> Found | None:
    scores = [score for row in case.rows if (score := score_of(row)) is not None]
    if len(scores) < max(LONG, len(case.rows)) or max(scores[1:]) >= scores[0] or scores[-1] > scores[0] - UNMOVED:
        return None
    return (
        f"The first evaluation (step {case.rows[0]['step']}) is the best of {len(scores)}: training goes too far "
        f"or in the wrong direction. Lower {case.now('optim.lr')} or {case.now('train.evaluate_every')}.",
        "optim.lr",
    )


def proxies_do_not_move(case: Case) -> Found | None:
    embeddings, proxies = case.recent("embedding_drift", A_FEW), case.recent("proxy_drift", A_FEW)
    moved = embeddings and proxies and min(embeddings) > 0.1
    if not moved or any(of_proxies > 0.1 * own for own, of_proxies in zip(embeddings, proxies, strict=True)):
        return None
    chosen_anew = case.settings.get("ccp.mode") == "alternating"
    if chosen_anew and case.settings.get("ccp.until") in WATCH_PROXIES:
        return None
    otherwise = ", or set ccp.until=behind" if chosen_anew else ""
    return (
        f"Proxies do not move while the network does (drift {proxies[-1]:.2f} against {embeddings[-1]:.2f}): they hold "
        f"it back. Raise {case.now('optim.proxy_lr_factor')}{otherwise}.",
        "optim.proxy_lr_factor",
    )


def stale_proxies(case: Case) -> Found | None:
    staleness, radius = case.recent("staleness", LONG), case.recent("covering_radius", LONG)
    embeddings, proxies = case.recent("embedding_drift", LONG), case.recent("proxy_drift", LONG)
    if not (staleness and radius and embeddings and proxies) or case.settings.get("ccp.mode") != "alternating":
        return None
    same_problem = len({row.get("problem") for row in case.rows[-LONG:]}) == 1
    outlived = all(far > 1.5 * covered > 0 for far, covered in zip(staleness, radius, strict=True))
    keep_up = proxies[-1] >= KEEPS_UP * embeddings[-1]  # then they are where training has moved them
    if not (same_problem and outlived) or keep_up or case.settings.get("ccp.until") in WATCH_PROXIES:
        return None
    return (
        f"Proxies are {staleness[-1] / radius[-1]:.1f} covering radii from their images, and the problem does not end: "
        "they describe a network that no longer exists. Set ccp.until=behind.",
        "ccp.until",
    )


RULES: dict[str, Callable[[Case], Found | None]] = {
    "few-validation-classes": few_validation_classes,
    "enlarged-images": enlarged_images,
    "fine-tuning-rate": fine_tuning_rate,
    "no-proxies": no_proxies,
    "no-memory": no_memory,
    "no-active-negatives": no_active_negatives,
    "no-active-pairs": no_active_pairs,
    "collapse": collapse,
    "unmoved": unmoved,
    "best-is-first": best_is_first,
    "proxies-do-not-move": proxies_do_not_move,
    "stale-proxies": stale_proxies,
}
"""In the order in which a run meets them."""
