"""Every setting of a run, with its type, its range and its default. The defaults are the MLRC protocol's."""

from collections.abc import Hashable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from ccp_dml.foundation import own_code

LARGEST_SIDE = 8192  # pixels
LARGEST_WIDTH = 65_536  # numbers in an embedding or a hidden layer
MOST_WORKERS = 256
WITH_PROXIES = ("one-problem", "alternating")
"""Values of `ccp.mode` with which the batch is compared with proxies that k-center chooses."""

MOST_AT_ONCE = 1_000_000  # images in a batch, proxies or pool images of a class: beyond it, a slip of the keyboard

Decay = Annotated[float, Field(ge=0, lt=1)]
Side = Annotated[int, Field(ge=8, le=LARGEST_SIDE)] | Literal["files"]
Share = Annotated[float, Field(gt=0, le=1)]
Neighbours = Annotated[int, Field(ge=1)]

Plain = bool | int | float | str


def _as_pairs(value: Any) -> Any:
    """Turn a table of arguments into pairs, which can be hashed as the rest of a section can."""
    if not isinstance(value, Mapping):
        return value
    return tuple((name, tuple(one) if isinstance(one, list) else one) for name, one in sorted(value.items()))


Arguments = Annotated[
    tuple[tuple[str, Plain | tuple[Plain, ...]], ...], BeforeValidator(_as_pairs), PlainSerializer(dict)
]
"""Arguments of a class of one's own by name; `dict(arguments)` gives them back."""

LoggerName = Literal["none", "tensorboard", "csv", "mlflow", "wandb"]


def _kinds_in(annotation: Any) -> set[Any]:
    """Collect the types that an annotation is made of."""
    return {annotation}.union(*map(_kinds_in, get_args(annotation))) if isinstance(annotation, Hashable) else set()


def _spelt_out(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_spelt_out(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else value


class ConfigSection(BaseModel):
    """A part of the configuration; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, coerce_numbers_to_str=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_number_is_true(cls, value: Any, checked: ValidationInfo) -> Any:
        """Spell true and false out where numbers belong: pydantic would take them for 1 and 0."""
        kinds = _kinds_in(cls.model_fields[str(checked.field_name)].annotation)
        return _spelt_out(value) if kinds & {int, float} and bool not in kinds else value


class DataConfig(ConfigSection):
    name: str = Field("glyphs", description="the data set; see `ccp list datasets`, or FILE.py:NAME of your own")
    args: Arguments = Field((), description="arguments of a data set of your own: data.args.NAME=VALUE")
    root: str | None = Field(None, description="folder of the images")
    path: str | None = Field(None, description="file of the data set: a CSV table, or an .npz of features")
    classes: int | None = Field(None, ge=2, description="only the first so many classes of each half; unset: all")
    resize: Side = Field(256, description="short side of an image before cropping; files: as the images are, 32 to 64")
    crop: Side = Field(227, description="side of the square that the network sees; files: as `resize`")
    augment: Literal["mlrc", "light", "none"] = Field(
        "mlrc", description="how training images are changed at random; true and false stand for mlrc and none"
    )
    crop_area: tuple[Share, Share] | None = Field(
        None, description="smallest and largest part of an image that is cut out at random; unset: as `augment` says"
    )
    flip: float | None = Field(None, ge=0, le=1, description="probability of left for right; unset: as `augment` says")
    turn: float | None = Field(
        None, ge=0, le=180, description="degrees by which images are turned at most; unset: as `augment` says"
    )
    colour: float | None = Field(
        None, ge=0, le=1, description="largest change of brightness, contrast, saturation; unset: as `augment` says"
    )
    views: int = Field(
        8, ge=1, le=1000, description="augmented views of a training image in the feature cache (frozen backbone)"
    )
    cached: bool = Field(False, description="read the image cache that `ccp data prepare --cache SIDE` made")
    reduced_decoding: bool = Field(
        False,
        description="decode JPEGs of at least twice `resize` at a half, quarter or eighth: faster, same to the eye",
    )
    skip_broken: bool = Field(False, description="leave unreadable images out instead of stopping")
    duplicates: Literal["tell", "refuse"] = Field(
        "tell", description="what to do about test images that are copies of training images: say so, or stop"
    )
    drop_small_classes: bool = Field(False, description="leave classes with a single image out instead of stopping")
    test_share: float = Field(
        0.5, ge=0, lt=1, description="part of the sorted classes that tests, the last ones; 0: all train, nothing tests"
    )
    split_column: str = Field("split", min_length=1, description="column of the CSV table that says train or test")

    @property
    def pixels(self) -> tuple[int, int]:
        """Give the sides `resize` and `crop`, which must not be left to files any more (`runs.datasets.with_sizes`)."""
        assert self.resize != "files"
        assert self.crop != "files"
        return self.resize, self.crop

    @field_validator("augment", mode="before")
    @classmethod
    def _on_or_off(cls, augment: Any) -> Any:
        return {True: "mlrc", False: "none"}[augment] if isinstance(augment, bool) else augment

    @field_validator("crop_area")
    @classmethod
    def _is_a_range(cls, area: tuple[float, float] | None) -> tuple[float, float] | None:
        if area is not None and area[0] > area[1]:
            raise PydanticCustomError("crop_area", "write the smaller part first")
        return area


class ModelConfig(ConfigSection):
    backbone: str = Field(
        "bn_inception", description="ours, any name of timm (see `ccp list backbones`), or FILE.py:NAME of your own"
    )
    args: Arguments = Field((), description="arguments of a backbone of your own: model.args.NAME=VALUE")
    weights: str | None = Field(
        None, description="file with the backbone's weights (safetensors or a state dict), or a run's best.safetensors"
    )
    pretrained: bool = Field(False, description="let timm download its weights, unless `weights` names a file")
    input_mean: tuple[float, float, float] | None = Field(None, description="RGB, 0..1; unset: the backbone's own")
    input_std: tuple[float, float, float] | None = Field(None, description="RGB, 0..1; unset: the backbone's own")
    embedding_dim: int = Field(128, ge=1, le=LARGEST_WIDTH, description="numbers in an embedding")
    pooling: Literal["gap", "gap+gmp"] = Field(
        "gap", description="global average pooling, or its sum with global maximum pooling (D21)"
    )
    normalise: Literal["clip", "l2"] = Field("clip", description="v / max(1, ||v||), or true L2 (D20)")
    freeze_batch_norm: bool = Field(True, description="no statistics and no affine updates (D14)")
    freeze_backbone: bool = Field(False, description="train the head only, on features that are computed once")
    train_from: str | None = Field(
        None, description="the stage from which on the backbone is trained, as in blocks.5; unset: all of it"
    )
    cache_features: bool = Field(
        True, description="keep what the frozen part of a backbone gives in the feature cache; see `ccp cache`"
    )
    feature_precision: Literal["half", "single"] = Field(
        "half", description="of what the frozen part gives: half saves disk; single, and ONNX gives the same to 1e-5"
    )
    head_init: Literal["xavier", "pca", "whitened-pca"] = Field(
        "xavier", description="how the last layer starts: at random, or as (whitened) PCA of the training features"
    )
    hidden_dim: int | None = Field(
        None, ge=1, le=LARGEST_WIDTH, description="width of a hidden layer beside the last; unset: none"
    )

    @property
    def is_frozen(self) -> bool:
        """Tell whether some of the backbone rests, so that it gives the same in every step."""
        return (self.freeze_backbone or self.train_from is not None) and self.backbone != "identity"

    @property
    def trains_on_features(self) -> bool:
        """Tell whether the backbone's features, or its lower stages' maps, take the place of images."""
        return self.is_frozen and self.cache_features

    @property
    def without_source(self) -> "ModelConfig":
        """Leave out where first weights come from: nothing is loaded or downloaded for a network that gets others."""
        return self.model_copy(update={"weights": None, "pretrained": False})

    @property
    def has_trained_backbone(self) -> bool:
        """Tell whether the backbone begins with weights that mean something; a user's own may load them by itself."""
        return bool(self.pretrained or self.weights) or own_code.is_own(self.backbone, own_code.BACKBONES)


class LossConfig(BaseModel):
    """The loss by name; every other key is an argument of its constructor, checked against its signature."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    name: str = Field("c2", description="the loss; see `ccp list losses`, or FILE.py:NAME of your own")
    miner: str | None = Field(
        None,
        description="chooses the pairs of a loss of pytorch-metric-learning: pml:NAME, or FILE.py:NAME; unset: all",
    )
    miner_args: Arguments = Field((), description="arguments of the miner: loss.miner_args.NAME=VALUE")

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class TrainConfig(ConfigSection):
    max_steps: int | None = Field(None, ge=1, description="stop here at the latest; unset: patience decides")
    evaluate_every: int = Field(25, ge=1, description="steps between evaluations")
    patience: int = Field(60, ge=1, description="evaluations without improvement that end the run (D3)")
    min_improvement: float = Field(1e-5, ge=0, description="what counts as an improvement of MAP@R, 0..1 scale")
    warm_up_epochs: float = Field(0.0, ge=0, description="passes over the data in which a trained backbone rests")
    classes_per_batch: int = Field(8, ge=2, le=MOST_AT_ONCE, description="different classes in a training step")
    images_per_class: int = Field(4, ge=1, le=MOST_AT_ONCE, description="images of each of these classes")

    @property
    def batch_size(self) -> int:
        """Count the images in a training step."""
        return self.classes_per_batch * self.images_per_class


class OptimConfig(ConfigSection):
    lr: float = Field(1e-5, gt=0, description="learning rate of Adam (D16)")
    proxy_lr_factor: float = Field(1.0, gt=0, description="learning rate of proxies, as a multiple of the network's")
    weight_decay: float = Field(1e-4, ge=0, description="coupled L2, on everything but normalisation layers (D13)")
    decay_proxies: bool = Field(True, description="whether weight_decay is for proxies, too")
    proxies_by_rows: bool = Field(
        False,
        description="visit only proxies that move: the same Adam, faster with many classes; needs decay_proxies=false",
    )
    betas: tuple[Decay, Decay] = Field((0.9, 0.999), description="decay rates of Adam's moments (D16)")
    eps: float = Field(1e-8, gt=0, description="what Adam adds to the denominator (D16)")
    clip_norm: float = Field(10.0, gt=0, description="largest global norm of the gradient (D15)")


class CcpConfig(ConfigSection):
    mode: Literal["off", "one-problem", "alternating", "representatives"] = Field(
        "off", description="no proxies; proxies chosen once; Algorithm 1; PROFS: images represent their classes (D32)"
    )
    weight: float = Field(2e-4, ge=0, description="lambda, the pull towards the previous solution")
    proxies_per_class: int = Field(8, ge=1, le=MOST_AT_ONCE, description="P, the proxies of each class")
    pool_per_class: int = Field(
        12, ge=1, le=MOST_AT_ONCE, description="b, the images of each class that proxies are chosen from (D9)"
    )
    proxies_by_need: bool = Field(
        False, description="more proxies for classes that are spread widely, up to twice as many; same total"
    )
    start_step: int = Field(
        0,
        ge=0,
        description="steps without proxies at first, up to a whole number of evaluations; for networks from scratch",
    )
    pull_to_start: bool = Field(
        True, description="whether the first problem with proxies is pulled to where the start without them ended (D2)"
    )
    until: Literal["stall", "behind", "stale", "steps"] = Field(
        "stall",
        description="what ends a problem: stall (patience), behind (that, or proxies left behind), stale (that, or "
        "stale proxies), steps (their number) (D30)",
    )
    patience: int = Field(3, ge=1, description="evaluations without improvement that end a problem (D3)")
    staleness: float = Field(
        0.75,
        gt=0,
        description="proxies are stale at so many covering radii from their images, or left behind when these have "
        "moved so far; with until = stale or behind",
    )
    check_every: int = Field(
        10, ge=1, description="steps between two looks at the proxies; with until = stale or behind"
    )
    steps_per_problem: Annotated[int, Field(ge=1)] | Literal["epoch"] = Field(
        100, description="with until = steps; epoch: about one pass over the training images"
    )
    pair_weight: Annotated[float, Field(ge=0)] | Literal["balanced"] = Field(
        0.1, description="weight of the loss inside the batch; balanced: it counts in full, see `balance` (D4)"
    )
    balance: float = Field(
        3.0, gt=0, description="with pair_weight = balanced: the batch pulls so many times as hard as the proxies"
    )
    proxy_length: Literal["embedded", "unit"] = Field(
        "embedded", description="how long new proxies are: as the network embeds (D7), or 1 (D31)"
    )
    space: Literal["raw", "normalised"] = Field("raw", description="where k-center measures distances (D6)")
    rewind: bool = Field(False, description="start each problem from the best weights, not the last ones (D10)")
    remembered_problems: int = Field(
        1, ge=1, description="earlier problems whose proxies the selection keeps away from; 1: the paper"
    )
    averaged_solutions: int = Field(
        1, ge=1, description="last solutions whose mean the next problem starts from; 1: the paper"
    )
    corrected_sets: int = Field(
        0, ge=0, description="Dykstra's correction of the pull, as if problems went round so many sets; 0: the paper"
    )
    reset_moments: bool = Field(False, description="forget the proxies' Adam moments at reselection (D12)")

    @property
    def has_proxies(self) -> bool:
        """Tell whether the batch is compared with proxies that are chosen by k-center."""
        return self.mode in WITH_PROXIES

    @property
    def alternates(self) -> bool:
        """Tell whether one problem follows another, each pulled to the solution of the one before."""
        return self.mode in ("alternating", "representatives")


class XbmConfig(ConfigSection):
    enabled: bool = Field(False, description="compare with a memory of past batches, too")
    memory_batches: int = Field(25, ge=1, le=MOST_AT_ONCE, description="batches kept in that memory")
    start_step: int = Field(1000, ge=0, description="steps before the memory is used (D23)")


class MetrixConfig(ConfigSection):
    enabled: bool = Field(False, description="compare with mixtures of positives and negatives, too; for c1 and ms")
    weight: float = Field(0.4, ge=0, description="weight of the loss against mixtures (D33)")
    alpha: float = Field(
        2.0, gt=0, description="of Beta(alpha, alpha), which draws the share of the positive; large: near one half"
    )


class ProtocolConfig(ConfigSection):
    hold_out: Literal["classes", "images", "nothing"] = Field(
        "classes",
        description="what validates: classes that do not train, images of the classes that do, or nothing, so that all "
        "classes train, those of the test half, too (`ccp train --final`)",
    )
    folds: int = Field(4, ge=2, description="contiguous parts of the train half")
    fold: int = Field(0, ge=0, description="the part that validates; the others train")
    select_on: Literal["validation", "test"] = Field(
        "validation", description="what chooses the best evaluation; test: as many published tables do (D28)"
    )
    recall_at: tuple[Neighbours, ...] = Field((1, 2, 4, 8), min_length=1, description="the k of R@k on the test half")

    @field_validator("fold")
    @classmethod
    def _is_a_fold(cls, fold: int, checked: ValidationInfo) -> int:
        folds = checked.data.get("folds")  # missing where it is wrong itself, which is then the error to report
        if folds is not None and fold >= folds:
            raise PydanticCustomError(
                "fold", "choose 0 to {last} for protocol.folds = {folds}", {"last": folds - 1, "folds": folds}
            )
        return fold


class RunConfig(ConfigSection):
    seed: int = Field(0, ge=0, lt=2**63, description="every random choice follows from it; same as --seed")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed", "auto"] = Field(
        "32-true", description="of numbers in training, as Lightning Fabric names it; auto: 32 or bf16, as measured"
    )
    workers: int | None = Field(
        None, ge=0, le=MOST_WORKERS, description="processes that load images; unset: as the data asks for"
    )
    cache: str | None = Field(None, description="folder of the feature cache; unset: in the user's cache folder")
    evaluation_batch: int = Field(128, ge=1, le=MOST_AT_ONCE, description="images embedded at once outside training")
    compile: bool = Field(
        False, description="let torch.compile translate the backbone: minutes at first, faster steps afterwards"
    )
    proxies_on_disk: bool = Field(
        False, description="proxies, their moments and their copies lie in files, not in memory; needs proxies_by_rows"
    )
    proxies_over_processes: bool = Field(
        False,
        description="with --processes, each process holds the proxies of its own part of the classes; for c1, c2, ms, "
        "triplet",
    )
    checkpoint_minutes: float = Field(
        0.0, ge=0, description="least time between two checkpoints; 0: one after every evaluation"
    )
    deterministic: bool = Field(True, description="the same result, bit for bit, on the same machine")
    logger: LoggerName = Field("none", description="where evaluations are logged besides metrics.jsonl")
    map_points: int = Field(
        400, ge=0, le=MOST_AT_ONCE, description="images per side on the map that each problem leaves; 0: no maps"
    )

    @property
    def precision_outside_training(self) -> str:
        """Name the precision of frozen features and scores, which no stopwatch may choose."""
        return "32-true" if self.precision == "auto" else self.precision


class Config(ConfigSection):
    """A run, completely described."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    optim: OptimConfig = OptimConfig()
    ccp: CcpConfig = CcpConfig()
    xbm: XbmConfig = XbmConfig()
    metrix: MetrixConfig = MetrixConfig()
    protocol: ProtocolConfig = ProtocolConfig()
    run: RunConfig = RunConfig()

    def with_values(self, **sections: Mapping[str, Any]) -> "Config":
        """Copy the configuration with other values, as in `with_values(run={"seed": 1})`; they are not checked."""
        return self.model_copy(
            update={name: getattr(self, name).model_copy(update=values) for name, values in sections.items()}
        )

    def as_tables(self) -> dict[str, dict[str, Any]]:
        """Convert to nested plain values for TOML, which has no null: what is unset or empty is left out."""
        tables: dict[str, dict[str, Any]] = self.model_dump(mode="json", exclude_none=True)
        return {
            section: {name: value for name, value in table.items() if value != {}} for section, table in tables.items()
        }


def fields_by_key() -> dict[str, FieldInfo]:
    """List the fields of all sections by their dotted keys."""
    return {f"{name}.{key}": field for name, section in Config() for key, field in type(section).model_fields.items()}
