import pytest
from pydantic import ValidationError

from ccp_dml.config.layers import known_keys, resolve
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError


def test_every_key_says_what_it_means():
    for name, section in Config.model_fields.items():
        for key, field in section.annotation.model_fields.items():
            assert field.description, f"{name}.{key} has no description"


def test_an_unknown_key_is_an_error_in_every_section_but_the_loss():
    for name, section in Config.model_fields.items():
        if name != "loss":
            with pytest.raises(ValidationError, match="Extra inputs"):
                section.annotation.model_validate({"no_such_key": 1})


@pytest.mark.parametrize(
    "setting",
    [
        "protocol.recall_at=[0]",
        "protocol.recall_at=[]",
        "optim.betas=[1, 1]",
        "optim.betas=[-0.1, 0.9]",
        "optim.lr=nan",
        "optim.lr=inf",
        "optim.lr=true",
        "data.resize=true",
        "protocol.recall_at=[1, true]",
        "model.hidden_dim=false",
        "train.patience=-1",
        "ccp.patience=0",
        "run.workers=12345678901",
        "model.embedding_dim=1000000000000",
        "ccp.proxies_per_class=99999999999",
        "train.classes_per_batch=99999999999",
        "run.seed=-1",
        f"run.seed={2**63}",
        f"data.resize={'9' * 5000}",
        "data.augment=strong",
        "data.crop_area=[0.9, 0.5]",
        "data.crop_area=[0, 1]",
        "data.flip=2",
    ],
)
def test_values_that_would_end_a_run_late_are_refused_at_once(setting):
    with pytest.raises(UserError, match=setting.split("=")[0]):
        resolve(["glyphs", "c2"], [setting])


def test_true_and_false_are_taken_where_they_belong():
    config = resolve(["glyphs", "c2"], ["data.augment=false", "run.compile=true", "model.args.deep=true"]).config
    assert (config.data.augment, config.run.compile, dict(config.model.args)) == ("none", True, {"deep": True})


def test_plain_tables_give_the_same_configuration_again():
    config = resolve(["cub", "c2-ccp"], ["run.seed=3"]).config
    assert Config.model_validate(config.as_tables()) == config
    assert None not in config.as_tables()["data"].values()


def test_known_keys_are_all_the_keys_of_a_default_configuration():
    tables = Config().as_tables()
    assert {f"{section}.{key}" for section, table in tables.items() for key in table} <= set(known_keys())


def test_a_copy_with_other_values_leaves_the_rest_and_the_original_alone():
    config = Config()
    copy = config.with_values(run={"seed": 3, "workers": 0}, model={"embedding_dim": 5})
    assert (copy.run.seed, copy.run.workers, copy.model.embedding_dim) == (3, 0, 5)
    assert copy.model_copy(update={"run": config.run, "model": config.model}) == config == Config()
