import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.config.recipes import (
    loss_of,
    parse_data,
    parse_losses,
    parse_methods,
    read_recipe,
    recipe_label,
    recipe_layers,
    refuse_disorder,
    shipped_recipes,
)
from ccp_dml.errors import UserError


@pytest.fixture
def own(tmp_path):
    """Writes a recipe of one's own; its path as text."""

    def write(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_what_a_recipe_extends_goes_first(own):
    base = own("base.toml", "[optim]\nlr = 1.0\neps = 2.0\n")
    layers = recipe_layers(own("mine.toml", f'extends = "{base}"\n[optim]\nlr = 3.0\n'))
    assert [layer.origin for layer in layers] == [base, layers[1].origin]
    assert layers[1].tables == {"optim": {"lr": 3.0}}


def test_a_recipe_that_extends_itself_is_refused(own, tmp_path):
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    own("one.toml", f'extends = "{other}"')
    own("other.toml", f'extends = "{one}"')
    with pytest.raises(UserError, match="extends itself"):
        resolve([str(one)])
    own("one.toml", f'extends = "{one}"')
    with pytest.raises(UserError, match="extends itself"):
        resolve([str(one)])


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 6000, "[a", "\x00"])
def test_text_that_is_no_recipe_is_one_sentence(own, text):
    with pytest.raises(UserError, match="not a TOML file that can be read"):
        read_recipe(own("bad.toml", text))


@pytest.mark.parametrize("name", ["x" * 5000, "a\x00b", "c2-cpp"])
def test_a_name_that_is_no_recipe(name):
    with pytest.raises(UserError, match="There is no recipe"):
        read_recipe(name)


def test_a_slip_in_a_name_gets_the_name_meant():
    with pytest.raises(UserError, match="c2-ccp"):
        read_recipe("c2-cpp")


@pytest.mark.parametrize(
    ("method", "loss"),
    [("c2", "c2"), ("ms-ccp-s", "ms"), ("c1-xbm", "c1"), ("c2-profs", "c2"), ("ms-metrix", "ms"), ("soft-triple",) * 2],
)
def test_the_loss_of_a_method(method, loss):
    assert loss_of(method) == loss


def test_names_on_the_command_line(own):
    mine = own("mine.toml", "")
    assert parse_methods(f"c2, {mine}") == ("c2", mine)
    assert recipe_label(f"cub,{mine}") == "cub-mine"
    assert parse_data("cub,frozen") == "cub,frozen"
    assert parse_losses("c2,ms") == ("c2", "ms")


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_methods, "c2,c2-cpp", "no method 'c2-cpp'.*did you mean 'c2-ccp'"),
        (parse_methods, "c2,,ms", "empty name"),
        (parse_methods, "", "empty name"),
        (parse_methods, "c2,ms,c2", "'c2' more than once"),
        (parse_methods, "cub", "no method 'cub'"),
        (parse_methods, "missing.toml", "no method 'missing.toml'"),
        (parse_data, "featurs", "no data set 'featurs'.*did you mean 'features'"),
        (parse_losses, "soft-triple", "soft-triple"),
        (parse_losses, "c2,c2", "'c2' more than once"),
    ],
)
def test_wrong_names_on_the_command_line_are_told(parse, text, message):
    with pytest.raises(UserError, match=message):
        parse(text)


def test_two_files_of_one_name_would_share_a_folder(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.toml").write_text("")
    with pytest.raises(UserError, match="'mine' more than once"):
        parse_methods(f"{tmp_path}/a/mine.toml,{tmp_path}/b/mine.toml")


def test_recipes_of_all_kinds_are_shipped():
    assert {"cub", "frozen", "c2-ccp", "conventional"} <= shipped_recipes().keys()
    assert "cub" not in shipped_recipes("methods")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("photos", "ccp train folder MODE METHOD --set data.root=photos"),
        ("table.csv", "ccp train csv MODE METHOD --set data.path=table.csv"),
        ("vectors.npz", "ccp train features METHOD --set data.path=vectors.npz"),
    ],
)
def test_data_in_place_of_a_recipe_is_told_how_it_is_named(tmp_path, monkeypatch, name, remedy):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for file in ("table.csv", "vectors.npz"):
        (tmp_path / file).write_text("path,label")
    with pytest.raises(UserError) as told:
        read_recipe(name)
    assert str(told.value).endswith(remedy)


def test_a_setting_where_a_recipe_belongs_is_named_with_its_option():
    with pytest.raises(
        UserError, match=r"^data\.root=my photos is a setting, not a recipe; write --set data\.root='my"
    ):
        read_recipe("data.root=my photos")
    with pytest.raises(UserError, match="There is no recipe 'a=b'"):
        read_recipe("a=b")


@pytest.mark.parametrize(
    ("recipes", "words"),
    [
        ("cub c1 c2-ccp", ["c1 and c2-ccp are 2 methods", "leave out"]),
        ("cub,folder c2", ["cub and folder are 2 data sets"]),
        ("frozen cub c2-ccp", ["write cub frozen c2-ccp"]),
        ("cub c2-ccp frozen", ["write cub frozen c2-ccp"]),
        ("c2-ccp-s mine.toml cub", ["write cub mine.toml c2-ccp-s"]),
        ("conventional glyphs c2", ["data set, mode, method, protocol", "write glyphs c2 conventional"]),
        ("cub conventional proxy-anchor", ["write cub proxy-anchor conventional"]),
        ("cub c2 conventional conventional-resnet50", ["are 2 protocols"]),
        ("features frozen c2", ["ready-made vectors have none", "leave out frozen"]),
    ],
)
def test_recipes_that_undo_one_another_are_refused(recipes, words):
    with pytest.raises(UserError) as caught:
        refuse_disorder(recipes.split())
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    "recipes", ["cub frozen c2-ccp", "cub,frozen c2", "cub c2 conventional", "a.toml c2 b.toml", ""]
)
def test_recipes_in_order_pass(recipes):
    refuse_disorder(recipes.split())
