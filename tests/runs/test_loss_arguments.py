import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.runs.loss_arguments import complete


def config(*settings, recipes=()):
    return resolve(list(recipes), ["model.embedding_dim=6", *settings]).config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["loss.name=proxy-ancor"], "did you mean 'proxy-anchor'"),
        (["loss.name=pml:CircelLoss"], "did you mean 'pml:CircleLoss'"),
        (["loss.name=pml:VICRegLoss"], "'pml:VICRegLoss' is no loss"),
        (["loss.name=proxy-anchor", "loss.alfa=3"], "loss.alfa is no argument of the loss 'proxy-anchor'.*'alpha'"),
        (["loss.name=pml:CircleLoss", "loss.gama=3"], "loss.gama is no argument .*'gamma'"),
        (["loss.name=pml:CircleLoss", "loss.reducer=mean"], "loss.reducer is no argument .*it takes m, gamma"),
        (["loss.name=pml:CircleLoss", "loss.gamma=much"], "loss.gamma = 'much'"),
        (["loss.name=pml:CircleLoss", "loss.gamma=true"], "loss.gamma = True"),
        (["loss.name=pml:TripletMarginLoss", "loss.swap=1"], "loss.swap = 1"),
        (["loss.name=pml:RankedListLoss"], "loss.margin is not set and has no default"),
        (["loss.name=proxy-anchor", "loss.classes=3"], "loss.classes is no argument"),
        (["loss.name=soft-triple", "loss.centres_per_class=2.5"], "loss.centres_per_class = 2.5"),
    ],
)
def test_wrong_losses_and_arguments(settings, message):
    with pytest.raises(UserError, match=message):
        complete(config(*settings))


def test_a_complete_configuration_spells_out_the_arguments():
    assert complete(config("loss.name=pml:CircleLoss", "loss.gamma=7")).loss.arguments == {"m": 0.4, "gamma": 7}
    assert complete(config("loss.name=proxy-nca++")).loss.arguments == {"temperature": 0.1}
    assert complete(Config()).loss.arguments["negative_margin"] == 0.5
