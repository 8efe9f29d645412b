import pytest

from ccp_dml.config.layers import known_keys, naming_keys, parse_settings, resolve
from ccp_dml.config.recipes import shipped_recipes
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError


def write(path, text):
    path.write_text(text)
    return str(path)


def test_later_layers_win_and_the_origin_is_known(tmp_path):
    first = write(tmp_path / "first.toml", "[optim]\nlr = 1e-3\nweight_decay = 0.5\n[train]\nmax_steps = 7\n")
    second = write(tmp_path / "second.toml", "[optim]\nlr = 1e-4\n")
    resolved = resolve([first, second], ["train.max_steps=9"], seed=3)
    assert resolved.config.optim.lr == 1e-4
    assert resolved.config.optim.weight_decay == 0.5
    assert resolved.config.train.max_steps == 9
    assert resolved.config.run.seed == 3
    assert resolved.origins == {
        "optim.lr": second,
        "optim.weight_decay": first,
        "train.max_steps": "--set train.max_steps",
        "run.seed": "--seed",
    }


def test_a_data_set_brings_values_for_the_loss_that_a_method_chooses(tmp_path):
    data = write(
        tmp_path / "data.toml",
        '[losses.c2]\nnegative_margin = 0.3841\n[losses.ms]\nbeta = 75.83\n[losses."proxy-nca++"]\ntemperature = 0.2\n',
    )
    assert resolve([data, "c2"]).config.loss.arguments == {"negative_margin": 0.3841}
    assert resolve([data, "ms-ccp"]).config.loss.arguments == {"beta": 75.83}
    assert resolve([data, "c2"], ["loss.negative_margin=0.9"]).config.loss.arguments == {"negative_margin": 0.9}
    assert resolve([data, "c2"]).origins["loss.negative_margin"] == data


def test_a_data_set_overrides_what_a_shipped_method_asks_for_and_nothing_else(tmp_path):
    wish = "[train]\nclasses_per_batch = 16\n[losses.proxy-anchor]\ntrain.classes_per_batch = 64\n"
    data, later = (
        write(tmp_path / "data.toml", wish),
        write(tmp_path / "later.toml", "[train]\nclasses_per_batch = 48\n"),
    )
    assert resolve(["proxy-anchor"]).config.train.classes_per_batch == 32

    def classes(recipes, settings=()):
        return resolve(recipes, settings).config.train.classes_per_batch

    assert classes([data, "proxy-anchor"]) == 64
    assert classes([data, "c2"]) == 16
    assert classes([data, "proxy-anchor", later]) == 48
    assert classes([data, "proxy-anchor"], ["train.classes_per_batch=7"]) == 7
    assert classes([data, "c2"], ["train.classes_per_batch=7", "loss.name=proxy-anchor"]) == 7
    assert resolve([data, "proxy-anchor"]).origins["train.classes_per_batch"] == data


def test_a_mode_does_not_replace_what_a_file_of_one_s_own_says(tmp_path):
    mine = write(tmp_path / "mine.toml", "[loss]\nmargin = 0.3\n")
    assert resolve(["folder", "frozen", "c1"]).config.loss.arguments["margin"] == 0.2
    assert resolve(["folder", mine, "frozen", "c1"]).config.loss.arguments["margin"] == 0.3
    later = write(tmp_path / "later.toml", "[losses.c1]\nmargin = 0.4\n")
    assert resolve(["folder", mine, "frozen", later, "c1"]).config.loss.arguments["margin"] == 0.4


def test_losses_of_the_library_and_of_one_s_own_have_tables_too(tmp_path):
    text = '[losses."pml:AngularLoss"]\nalpha = 30\n[losses."mine.py:Loss"]\nscale = 2\n'
    assert resolve([write(tmp_path / "data.toml", text), "ms"]).config.loss.name == "ms"


def test_what_is_wished_of_proxies_is_for_methods_that_have_some(tmp_path):
    mode = write(tmp_path / "mode.toml", '[losses.ms]\nccp.until = "stale"\nccp.balance = 7.0\n')
    for method, until in (("ms-ccp", "stale"), ("ms-proxy", "stale"), ("ms-profs", "steps"), ("ms", "stall")):
        ccp = resolve([mode, method]).config.ccp
        assert (ccp.until, ccp.balance == 7.0) == (until, until == "stale")


def test_the_later_of_two_wishes_counts(tmp_path):
    data = write(tmp_path / "data.toml", "[losses.c2]\ntrain.max_steps = 5\n")
    mode = write(tmp_path / "mode.toml", "[losses.c2]\ntrain.max_steps = 6\n")
    assert resolve([data, mode, "c2"]).config.train.max_steps == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[losses.c2]\ntrain.max_step = 5\n", r"Unknown key 'train.max_step'.*did you mean 'train.max_steps'"),
        ("[losses]\nc2 = 5\n", r"losses \(.*\) must hold a table for each loss, as in \[losses.c2\]"),
        ("[losses.c22]\nmargin = 1\n", r"There is no loss 'c22' \(.*\[losses.c22\]\); did you mean 'c2'"),
        ("[losses.c2]\nname = 'ms'\n", r"losses.c2 \(.*\) cannot choose a loss"),
        ("losses = 5\n", r"losses \(.*\) must hold a table for each loss"),
    ],
)
def test_wishes_for_losses_are_checked_whichever_loss_is_chosen(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        resolve([write(tmp_path / "data.toml", text), "ms"])


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("optim.lr=1e-4", ("optim", "lr"), 1e-4),
        ("model.pretrained=true", ("model", "pretrained"), True),
        ("data.root=/some/where = odd", ("data", "root"), "/some/where = odd"),
        ("run.device=2024", ("run", "device"), "2024"),
        ("run.device=2024-05-01", ("run", "device"), "2024-05-01"),
        ("optim.betas=[0.8, 0.99]", ("optim", "betas"), (0.8, 0.99)),
        ('loss.name="c1"', ("loss", "name"), "c1"),
    ],
)
def test_settings_are_read_as_toml_or_plain_text(text, key, value):
    config = resolve([], [text]).config
    assert getattr(getattr(config, key[0]), key[1]) == value


@pytest.mark.parametrize(
    ("text", "value"), [(".2", 0.2), ("-.2", -0.2), ("2.", 2.0), (".2e1", 2.0), ("2.0.1", "2.0.1")]
)
def test_numbers_may_be_typed_as_people_do(text, value):
    assert resolve(["c1"], [f"loss.margin={text}"]).config.loss.arguments["margin"] == value


@pytest.mark.parametrize(
    ("recipes", "settings", "message"),
    [
        (["c2-cpc"], [], r"no recipe 'c2-cpc'.*did you mean 'c2-ccp'"),
        ([], ["data.resize=large"], r"data.resize = 'large'.*: it must be a whole number or 'files'\.$"),
        ([], ["data.resize=1,5"], r"data.resize = '1,5'.*: decimals are written with a point, as in 1\.5\.$"),
        ([], ["optim.betas=[2, 3]"], r"optim.betas = \[2, 3\].*: it must be less than 1\.0\.$"),
        ([], ["optim.lrr=1"], r"Unknown key 'optim.lrr' \(--set optim.lrr\); did you mean 'optim.lr'"),
        ([], ["optimm.lr=1"], r"Unknown key 'optimm.lr'.*did you mean 'optim.lr'"),
        ([], ["max_steps=3"], r"for example --set train\.max_steps=3"),
        ([], ["optim.lr"], r"expected KEY=VALUE"),
        (["photos"], ["data.root"], r"--set data\.root: expected .* for example --set data\.root=VALUE"),
        ([], ["optim.lr=fast"], r"optim\.lr = 'fast' \(--set optim\.lr\): .*number"),
        ([], ["optim.lr=-1"], r"optim\.lr = -1 .*greater than 0"),
        ([], ["optim.lr=nan"], r"optim\.lr = nan .*finite"),
        ([], ["optim.lr=0,1"], r"optim\.lr = '0,1' .*decimals are written with a point, as in 0\.1\."),
        ([], ["train.max_steps=1,000"], r"train\.max_steps = '1,000' .*: write it without separators, as in 1000\.$"),
        ([], ["train.max_steps=1.000.000"], r"train\.max_steps = .*: write it without separators, as in 1000000\.$"),
        ([], ["train.max_steps=1.5"], r"train\.max_steps = 1\.5 .*: it must be a whole number\."),
        ([], ["train.max_steps=0"], r"train\.max_steps = 0 .*: it must be at least 1\."),
        ([], ["protocol.fold=-1"], r"protocol\.fold = -1 .*: it must be at least 0\."),
        ([], ["data.test_share=2"], r"data\.test_share = 2 .*: it must be (at most|less than) "),
        ([], ["train.max_steps=true"], r"train\.max_steps = True .*: it must be a whole number\."),
        ([], ["optim.betas=[0.9]"], r"optim\.betas = \[0\.9\] \(--set .*: it must be a list of 2 numbers\."),
        ([], ["optim.betas=[]"], r"optim\.betas = \[\] .*: it must be a list of 2 numbers\."),
        ([], ["optim.betas=[0, 0, 0]"], r"optim\.betas = .*: it must be a list of 2 numbers, not of 3\."),
        ([], ["optim.betas=0.9"], r"optim\.betas = 0\.9 .*: it must be a list"),
        ([], ["run.compile=maybe"], r"run\.compile = 'maybe' .*: it must be true or false\."),
        ([], ["ccp.mode=sometimes"], r"ccp\.mode = 'sometimes' .*'off'"),
        ([], ["loss.a.b=1"], r"Unknown key 'loss\.a\.b'"),
    ],
)
def test_mistakes_are_named_with_the_nearest_right_name(recipes, settings, message):
    with pytest.raises(UserError, match=message):
        resolve(recipes, settings)


def test_a_broken_file_is_named(tmp_path):
    path = write(tmp_path / "mine.toml", "[optim\n")
    with pytest.raises(UserError, match=r"mine\.toml is not a TOML file"):
        resolve([path])


def test_every_shipped_recipe_resolves_and_says_what_it_is():
    assert len(shipped_recipes()) >= 20
    for name, file in shipped_recipes().items():
        assert isinstance(resolve([name]).config, Config)
        assert file.read_text().startswith("# "), f"{name} has no description in its first line"


def test_keys_of_the_contract_exist():
    contract = """data.name data.root data.path model.backbone model.weights model.pretrained model.embedding_dim
    model.freeze_backbone loss.name train.max_steps train.evaluate_every train.patience train.classes_per_batch
    train.images_per_class optim.lr optim.weight_decay ccp.weight ccp.proxies_per_class ccp.pool_per_class ccp.patience
    ccp.pair_weight xbm.memory_batches xbm.start_step protocol.fold run.seed run.device run.precision"""
    assert set(contract.split()) <= set(known_keys())


def test_tables_round_trip(tmp_path):
    import tomli_w

    config = resolve(["c2-ccp"], ["loss.negative_margin=0.4", "optim.betas=[0.8, 0.9]"]).config
    saved = write(tmp_path / "config.toml", tomli_w.dumps(config.as_tables()))
    assert resolve([saved]).config == config


def test_a_recipe_starts_from_what_it_extends(tmp_path):
    write(tmp_path / "base.toml", "[optim]\nlr = 1e-3\nweight_decay = 0.5\n")
    top = write(tmp_path / "top.toml", f'extends = "{tmp_path / "base.toml"}"\n[optim]\nlr = 1e-4\n')
    resolved = resolve([top])
    assert (resolved.config.optim.lr, resolved.config.optim.weight_decay) == (1e-4, 0.5)
    assert resolved.origins["optim.weight_decay"].endswith("base.toml")


def test_several_recipes_may_stand_for_one(tmp_path):
    first = write(tmp_path / "first.toml", "[optim]\nlr = 1e-3\nweight_decay = 0.5\n")
    second = write(tmp_path / "second.toml", "[optim]\nlr = 1e-4\n")
    assert resolve([f"{first},{second}"]).config == resolve([first, second]).config
    with pytest.raises(UserError, match="'nothing'"):
        resolve([f"{first},nothing"])


def test_features_train_as_a_head_on_a_frozen_backbone_does():
    features, frozen = resolve(["features", "c2-ccp"]).config, resolve(["cub", "frozen", "c2-ccp"]).config
    for section in ("train", "optim", "ccp", "loss"):
        assert getattr(features, section) == getattr(frozen, section)
    assert features.model.head_init == frozen.model.head_init
    assert features.model.backbone == "identity"
    assert frozen.model.freeze_backbone


@pytest.mark.parametrize("mode", ["frozen", "top", "finetune", "scratch"])
def test_a_mode_comes_after_its_data_set_and_before_its_method(mode):
    config = resolve(["folder", mode, "c2-ccp"]).config
    assert config.data.name == "folder"
    assert config.ccp.mode == "alternating"
    trained = (config.model.freeze_backbone, config.model.train_from, config.model.pretrained)
    assert (
        trained
        == {
            "frozen": (True, None, True),
            "top": (False, "blocks.5", True),
            "finetune": (False, None, True),
            "scratch": (False, None, False),
        }[mode]
    )
    assert config.loss.arguments["negative_margin"] == (1.0 if mode == "scratch" else 1.2)


def test_errors_of_parts_name_the_keys_that_set_their_arguments():
    told = r"^set data\.root, or data\.skip_broken=true; `weights` and `ccp x` stay$"
    with pytest.raises(UserError, match=told), naming_keys("data"):
        raise UserError("set `root`, or `skip_broken`=true; `weights` and `ccp x` stay")
    unnamed = UserError("no argument in it")
    with pytest.raises(UserError) as caught, naming_keys("data"):
        raise unnamed
    assert caught.value is unnamed


def test_paths_are_kept_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    settings = ["data.root=photos", "model.weights=~/w.pt", "run.cache=/cache"]
    config = resolve(["folder"], settings).config
    assert config.data.root == str(tmp_path / "photos")
    assert config.model.weights == str(tmp_path / "home" / "w.pt")
    assert config.run.cache == "/cache"
    assert resolve(["folder"], ["data.root="]).config.data.root == ""


@pytest.mark.parametrize("name", ["2024", "1e3", "0x10", "true", "2024-05-01"])
def test_a_folder_may_have_a_number_s_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve(["folder"], [f"data.root={name}"]).config.data.root == str(tmp_path / name)
    (tmp_path / "mine.toml").write_text("[data]\nroot = 2024\n")
    assert resolve(["folder", "mine.toml"]).config.data.root == str(tmp_path / "2024")


def test_of_a_key_that_is_set_twice_the_last_value_counts():
    assert parse_settings(["optim.lr=1", "optim.lr=2"]) == {"optim.lr": 2}
