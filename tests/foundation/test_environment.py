"""What a run was started with can be read afterwards."""

from ccp_dml.foundation.environment import PACKAGES, environment, installed


def test_the_command_can_be_typed_again_and_every_package_has_its_version():
    described = environment(["ccp", "train", "my recipe.toml"])
    assert described["command"] == "ccp train 'my recipe.toml'"
    assert described["packages"].keys() == set(PACKAGES)
    assert described["packages"]["torch"]


def test_a_package_that_is_not_there_has_no_version():
    assert installed("no-such-package") is None
