"""Backbones that are cut at a stage, of classes that know nothing about it."""

import pytest
import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError
from ccp_dml.models.backbones import create_backbone
from ccp_dml.models.stages import Cut, cut_at, keep_above, maps_at, parts_below


class Chain(nn.Module):
    """Stem, three stages, and a layer of its own."""

    num_features = 6

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU())
        self.stages = nn.Sequential(*[nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)])
        self.last = nn.Conv2d(4, 6, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.stages(self.stem(images)))


class Tangled(Chain):
    """Does something between its modules that no module tells."""

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.stages(self.stem(images)).relu() - 1)


class Repeated(Chain):
    """Calls a module twice, so that it is neither below nor above."""

    def forward(self, images: Tensor) -> Tensor:
        maps = self.stages[0](self.stages[0](self.stem(images)))
        return self.last(self.stages[2](self.stages[1](maps)))


@pytest.fixture
def images() -> Tensor:
    return torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1)) * 255


def test_a_cut_separates_what_is_through_when_the_stage_begins() -> None:
    assert cut_at(Chain(), "stages.1") == Cut("stages.1", ("stem", "stages.0"))
    assert cut_at(Chain(), "last") == Cut("last", ("stem", "stages"))


def test_a_program_may_make_any_device_the_default() -> None:
    backbone = Chain()
    with torch.device("meta"):  # stands for a GPU: whatever is made there by mistake fits nothing here
        assert cut_at(backbone, "stages.1") == Cut("stages.1", ("stem", "stages.0"))


@pytest.mark.parametrize(("name", "stage"), [("test_efficientnet", "blocks.3"), ("test_resnet", "layer3")])
def test_both_parts_together_are_the_backbone(name: str, stage: str) -> None:
    backbone = create_backbone(name, seed=1).eval()
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 255
    whole = backbone(images)
    cut = cut_at(backbone, stage)
    assert cut.below[0] == "input_normalisation"
    assert not torch.equal(backbone(images), whole), "maps must be rounded where they are not stored, too"
    torch.testing.assert_close(backbone(images), whole, rtol=1e-2, atol=1e-2)
    sealed, maps = backbone(images), maps_at(backbone, cut, images)
    assert torch.equal(maps, maps.half().float())
    kept = {name for name in backbone.state_dict() if not name.startswith(tuple(f"{part}." for part in cut.below))}
    keep_above(backbone, cut)
    assert torch.equal(backbone(maps.contiguous()), sealed), "the layout in memory must not matter"
    assert backbone.state_dict().keys() == kept, "what was trained is saved under the same names"


def test_no_gradient_passes_the_cut(images: Tensor) -> None:
    backbone = Chain()
    cut = cut_at(backbone, "stages.2")
    backbone.stem[0].weight.requires_grad_(True)  # by a careless optimiser set-up
    backbone(images).sum().backward()
    assert backbone.stem[0].weight.grad is None
    assert backbone.stages[2].weight.grad.abs().sum() > 0
    assert not any(value.requires_grad for part in parts_below(backbone, cut)[1:] for value in part.parameters())


def test_finding_a_cut_changes_no_mode_and_no_statistics() -> None:
    backbone = Chain()
    backbone.stages.eval()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    cut_at(backbone, "stages.1")
    assert backbone.stem.training
    assert not backbone.stages[0].training
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())


def test_another_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        UserError, match=r"did you mean 'stages\.1'.*stages are stages, stages\.0, stages\.1, stages\.2, last"
    ):
        cut_at(Chain(), "stage.1")
    with pytest.raises(UserError, match=r"blocks\.3, blocks\.4, conv_head"):
        cut_at(create_backbone("test_efficientnet"), "layer3")
    with pytest.raises(UserError, match="it has none"):
        cut_at(nn.Sequential(nn.Conv2d(3, 4, 3)), "blocks.5")
    with pytest.raises(UserError, match="it has none"):
        cut_at(create_backbone("identity", feature_dim=4), "blocks.5")


def test_a_module_that_is_called_twice_is_no_stage() -> None:
    with pytest.raises(UserError, match=r"its stages are stages\.1, stages\.2, last$"):
        cut_at(Repeated(), "stages.0")


def test_a_network_that_is_no_chain_of_modules_is_not_cut_wrongly() -> None:
    cut_at(Tangled(), "stages.1")
    with pytest.raises(UserError, match="cannot be cut there"):
        cut_at(Tangled(), "last")
    with pytest.raises(UserError, match="cannot be cut there"):
        cut_at(create_backbone("small_cnn"), "layers.7")


def test_a_network_that_takes_another_size_than_the_trial_image_is_told_how_to_say_so() -> None:
    class OfOneSize(nn.Sequential):
        num_features = 4

        def __init__(self) -> None:
            super().__init__(*(nn.Conv2d(channels, 4, 3) for channels in (3, 4, 4)), nn.Flatten(), nn.Linear(16, 4))

    backbone = OfOneSize()
    with pytest.raises(
        UserError, match=r"fails on a trial image of 64 x 64 pixels \(.*give it an attribute native_size"
    ):
        cut_at(backbone, "1")
    assert all(part.training for part in backbone.modules())
    backbone.native_size = (8, 8)
    assert cut_at(backbone, "1").below == ("0",)
