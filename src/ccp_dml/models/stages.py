"""Cut a backbone at one of its stages: what lies below is frozen, what lies above learns.

Nothing is known about the backbone's class. A trial run tells which modules have done their work when the stage begins.
Above the cut, these are replaced by identities, so that the backbone takes the stage's input in place of images; that
this gives the same features is tried, too, because a network may do things between its modules.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError, did_you_mean, first_line, listing
from ccp_dml.foundation.modes import inference

TRIAL_SIDE = 64  # pixels of the trial image, for backbones that do not name a size of their own
FeaturePrecision = Literal["half", "single"]
DTYPES: dict[FeaturePrecision, torch.dtype] = {"half": torch.float16, "single": torch.float32}
"""In which the frozen part's features and maps are stored."""

DEEPEST = 2  # names of stages have at most so many parts: "layer3", "blocks.5", "layer3.1"


@dataclass(frozen=True)
class Cut:
    """Where a backbone is cut; names are those of its submodules."""

    stage: str
    below: tuple[str, ...]  # the outermost modules that are through when the stage begins


class Sealed:
    """A hook that hands maps on to a stage without their history, rounded as they are stored."""

    def __init__(self, memory_format: torch.memory_format, precision: FeaturePrecision) -> None:
        self.memory_format = memory_format
        self.precision = precision

    def __call__(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        maps = inputs[0].detach()
        return (as_kept(maps, self.precision).contiguous(memory_format=self.memory_format),)


class _ReachedError(Exception):
    """Carries a stage's input out of the backbone: the rest need not be computed."""

    def __init__(self, maps: Tensor) -> None:
        self.maps = maps


def as_kept(features: Tensor, precision: FeaturePrecision) -> Tensor:
    """Round features or maps as they are stored where they are computed once; their dtype stays."""
    return features.to(DTYPES[precision]).to(features.dtype)


def cut_at(backbone: nn.Module, stage: str, precision: FeaturePrecision = "half") -> Cut:
    """Find the cut at `stage`, freeze what is below it, and seal it: no gradient passes, and maps are rounded."""
    has_weights = next(backbone.parameters(), None) is not None
    calls = _called_modules(backbone) if has_weights else []  # precomputed features, say, have nothing to cut
    stages = _stages(backbone, calls)
    if stage not in stages:
        known = (
            f"{did_you_mean(stage, list(stages))}; its stages are {listing(list(stages), limit=24)}"
            if stages
            else ": it has none; train all of it, or choose another backbone"
        )
        raise UserError(f"`train_from`={stage} is no stage of this backbone{known}")
    cut = Cut(stages[stage], _below(calls, stages[stage]))
    _try_out(backbone, cut, stage)
    for part in parts_below(backbone, cut):
        part.requires_grad_(False)
    sealed = Sealed(getattr(backbone, "memory_format", torch.contiguous_format), precision)
    backbone.get_submodule(cut.stage).register_forward_pre_hook(sealed)
    return cut


def parts_below(backbone: nn.Module, cut: Cut) -> list[nn.Module]:
    return [backbone.get_submodule(name) for name in cut.below]


def maps_at(backbone: nn.Module, cut: Cut, images: Tensor) -> Tensor:
    """Compute the maps (B, C, h, w) that the stage gets; the rest of the backbone does not run."""

    def stop(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        raise _ReachedError(inputs[0])

    handle = backbone.get_submodule(cut.stage).register_forward_pre_hook(stop)
    try:
        backbone(images)
    except _ReachedError as reached:
        return reached.maps
    finally:
        handle.remove()
    raise AssertionError("the stage was not reached")


def keep_above(backbone: nn.Module, cut: Cut) -> None:
    """Remove what is below the cut: from now on the backbone takes the stage's maps in place of images."""
    for name in cut.below:
        parent, _, child = name.rpartition(".")
        setattr(backbone.get_submodule(parent), child, nn.Identity())


def _called_modules(backbone: nn.Module) -> list[tuple[str, str, int]]:
    """Run a trial image, and note when modules begin and end: (name, "begin" or "end", dimensions of the input)."""
    calls: list[tuple[str, str, int]] = []
    handles = []
    for name, module in backbone.named_modules():
        if name:

            def begin(_: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
                is_single = len(inputs) == 1 and isinstance(inputs[0], Tensor)
                calls.append((name, "begin", inputs[0].ndim if is_single else 0))

            def end(_: nn.Module, __: tuple[Tensor, ...], ___: object, name: str = name) -> None:
                calls.append((name, "end", 0))

            handles += [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]
    try:
        with torch.no_grad(), inference(backbone):
            backbone(_trial_image(backbone))
    except Exception as error:  # whatever a network of anybody's says about an image of a size that it does not take
        side = " x ".join(map(str, _trial_size(backbone)))
        raise UserError(
            f"`train_from`: the backbone fails on a trial image of {side} pixels ({first_line(error)}); give it an "
            "attribute native_size, (height, width) of the images that it takes"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _stages(backbone: nn.Module, calls: list[tuple[str, str, int]]) -> dict[str, str]:
    """List the stages in the order of the forward pass: as users call them -> as the backbone does.

    A stage has weights, takes one set of maps, is called once, and has weights below it.
    """
    prefix = "network." if isinstance(getattr(backbone, "network", None), nn.Module) else ""
    begun = [name for name, what, _ in calls if what == "begin"]
    stages: dict[str, str] = {}
    for name, what, dimensions in calls:
        short = name.removeprefix(prefix)
        module = backbone.get_submodule(name)
        if (
            what == "begin"
            and dimensions == 4
            and name.startswith(prefix)
            and short.count(".") < DEEPEST
            and begun.count(name) == 1
            and "Norm" not in type(module).__name__
            and any(True for _ in module.parameters())
            and any(any(True for _ in backbone.get_submodule(below).parameters()) for below in _below(calls, name))
        ):
            stages[short] = name
    return stages


def _below(calls: list[tuple[str, str, int]], stage: str) -> tuple[str, ...]:
    """Name the outermost modules that ended before `stage` began."""
    ended: list[str] = []
    for name, what, _ in calls:
        if what == "begin" and name == stage:
            break
        if what == "end":
            ended.append(name)
    through = set(ended)
    return tuple(name for name in dict.fromkeys(ended) if not through & set(_ancestors(name)))


def _ancestors(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _try_out(backbone: nn.Module, cut: Cut, stage: str) -> None:
    """Raise unless the part above, fed with the maps of the part below, gives the backbone's own features."""
    image, above = _trial_image(backbone), deepcopy(backbone)
    keep_above(above, cut)
    with torch.no_grad(), inference(backbone):
        whole, maps = backbone(image), maps_at(backbone, cut, image)
        above.eval()
        try:
            fits = torch.allclose(above(maps), whole, rtol=1e-3, atol=1e-4)
        except Exception:  # whatever the other half of a network says about maps in place of images
            fits = False
    if not fits:
        raise UserError(
            f"`train_from`={stage}: this backbone cannot be cut there, because it does more than call its modules one "
            "after the other; train all of it, or choose a convolutional network such as resnet50"
        )


def _trial_image(backbone: nn.Module) -> Tensor:
    noise = torch.rand(1, 3, *_trial_size(backbone), generator=torch.Generator().manual_seed(0), device="cpu")
    return (255 * noise).to(next(backbone.parameters()).device)


def _trial_size(backbone: nn.Module) -> tuple[int, int]:
    size: tuple[int, int] = getattr(backbone, "native_size", (TRIAL_SIDE, TRIAL_SIDE))
    return size
