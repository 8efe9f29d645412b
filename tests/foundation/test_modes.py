import logging
from contextlib import suppress

from torch import nn

from ccp_dml.foundation.modes import inference, quiet


def test_every_layer_gets_its_own_mode_back_also_after_an_error():
    network = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1), nn.Dropout()).train()
    network[1].eval()  # frozen, as batch norm often is
    with suppress(ZeroDivisionError), inference(network):
        assert not any(layer.training for layer in network.modules())
        raise ZeroDivisionError
    assert [layer.training for layer in network.modules()] == [True, True, False, True]


def test_loggers_and_those_below_them_get_their_levels_back(caplog):
    part, other = logging.getLogger("some_library.part"), logging.getLogger("some_library_of_others")
    part.setLevel(logging.DEBUG)
    with quiet("some_library"):
        logging.getLogger("some_library").warning("not heard")
        part.warning("not heard, either")
        other.warning("of others")
    part.debug("heard again")
    assert caplog.messages == ["of others", "heard again"]
    assert logging.getLogger("some_library").level == logging.NOTSET
