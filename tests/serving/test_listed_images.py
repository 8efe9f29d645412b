"""What commands are told to index: folders, files, patterns, tables."""

import pytest

from ccp_dml.errors import UserError
from ccp_dml.serving.listed_images import list_images


@pytest.fixture
def tree(tmp_path):
    for name in ("wren/1.jpg", "wren/female/2.PNG", "owl/3.jpg", "loose.jpg", "owl/notes.txt", ".hidden/4.jpg"):
        path = tmp_path / "birds" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path / "birds"


def shown(images, root):
    return [(str(image.path.relative_to(root)), image.label, image.attributes) for image in images]


def test_a_folder_gives_labels_and_folders(tree):
    assert shown(list_images([tree]), tree) == [
        ("loose.jpg", None, {}),
        ("owl/3.jpg", "owl", {}),
        ("wren/1.jpg", "wren", {}),
        ("wren/female/2.PNG", "wren", {"folder": "female"}),
    ]


def test_train_and_test_are_no_labels(tmp_path):
    for name in ("train/wren/1.jpg", "test/owl/2.jpg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    assert shown(list_images([tmp_path]), tmp_path) == [
        ("test/owl/2.jpg", "owl", {"split": "test"}),
        ("train/wren/1.jpg", "wren", {"split": "train"}),
    ]


def test_patterns_and_files_have_no_label_but_one_known_from_elsewhere_stays(tree):
    assert shown(list_images([str(tree / "*" / "*.jpg")]), tree) == [("owl/3.jpg", None, {}), ("wren/1.jpg", None, {})]
    both = list_images([tree / "wren" / "1.jpg", tree])
    assert shown(both, tree)[0] == ("wren/1.jpg", "wren", {})
    assert len(both) == 4


def test_what_several_inputs_state_about_an_image_adds_up_and_the_last_wins(tree):
    years, later = tree / "years.csv", tree / "later.csv"
    years.write_text("path,year,folder\nwren/female/2.PNG,2019,Wald\nwren/1.jpg,2020,\n")
    later.write_text("path,year\nwren/1.jpg,2021\n")
    expected = [("wren/1.jpg", "wren", {"year": 2021}), ("wren/female/2.PNG", "wren", {"folder": "Wald", "year": 2019})]
    assert shown(list_images([tree, years, later]), tree)[2:] == expected
    swapped = {image.path.name: image.attributes for image in list_images([later, years, tree])}
    assert (swapped["1.jpg"], swapped["2.PNG"]) == ({"year": 2020}, {"folder": "female", "year": 2019})


def test_a_table_gives_attributes_numbers_where_all_are_numbers(tree):
    table = tree / "list.csv"
    table.write_text(
        "path,label,year,place,mass\nwren/1.jpg,wren,2019,Wald,1.5\nowl/3.jpg,,2020,12,\nloose.jpg,x,,nan,3\n"
    )
    assert shown(list_images([table]), tree) == [
        ("wren/1.jpg", "wren", {"year": 2019, "place": "Wald", "mass": 1.5}),
        ("owl/3.jpg", None, {"year": 2020, "place": "12"}),
        ("loose.jpg", "x", {"place": "nan", "mass": 3}),
    ]
    table.write_text("path;label;mass\nwren/1.jpg;wren;1.5\n")
    assert shown(list_images([table]), tree) == [("wren/1.jpg", "wren", {"mass": 1.5})]


@pytest.mark.parametrize(
    "codes",
    [
        ["1_2", "12"],
        ["00123", "0123"],
        ["12e4", "3"],
        ["12345678901234567890", "12345678901234567891"],
        ["9007199254740992", "9007199254740993"],
        ["+1", "1"],
        ["inf", "1"],
        ["\u0664", "1"],  # a digit elsewhere
    ],
)
def test_codes_stay_as_they_are_written(tree, codes):
    table = tree / "list.csv"
    table.write_text(f"path,code\nwren/1.jpg,{codes[0]}\nowl/3.jpg,{codes[1]}\n", encoding="utf-8")
    assert [image.attributes["code"] for image in list_images([table])] == codes


def test_plain_numbers_are_numbers(tree):
    table = tree / "list.csv"
    table.write_text("path,a,b\nwren/1.jpg,-12,0.50\nowl/3.jpg,9007199254740991,2.0\nloose.jpg,0,\n")
    found = [list(image.attributes.values()) for image in list_images([table])]
    assert found == [[-12, 0.5], [9007199254740991, 2], [0]]


def test_a_table_with_tabs_may_be_called_so(tree):
    table = tree / "list.tsv"
    table.write_text("path\tplace\nwren/1.jpg\tWald, Berge\n")
    assert shown(list_images([table]), tree) == [("wren/1.jpg", None, {"place": "Wald, Berge"})]
    table.write_text("path\nwren, female/2.jpg\nwren/1.jpg\n")
    assert shown(list_images([table]), tree)[0] == ("wren, female/2.jpg", None, {})


def test_a_table_may_name_files_of_the_home_folder_wherever_it_lies(tree, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tree))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.csv").write_text("path\n~/wren/1.jpg\n")
    for table in ("list.csv", tmp_path / "list.csv"):
        assert [image.path for image in list_images([table])] == [tree / "wren" / "1.jpg"]


def test_where_relative_paths_start_is_said_if_none_of_them_leads_anywhere(tree):
    table = tree / "tables" / "list.csv"
    table.parent.mkdir()
    table.write_text("path\nbirds/wren/1.jpg\n")
    with pytest.raises(UserError, match=rf"'birds/wren/1.jpg' in row 2; .* start at its own folder, {table.parent}\."):
        list_images([table])
    table.write_text(f"path\n{tree / 'gone.jpg'}\n")  # it is plain where this one is expected
    assert len(list_images([table])) == 1
    table.write_text("path\ngone.jpg\n../wren/1.jpg\n")  # what is missing here and there is said by who reads it
    assert len(list_images([table])) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,Label\na.jpg,wren\n", "has a column 'Label', but the one with labels is called 'label'; rename it"),
        ("file,label\na.jpg,x\n", "no column 'path'"),
        ("path,year,year\na.jpg,1,2\n", "several columns year"),
        ("path,class\na.jpg,1\n", "column 'class', which means the label"),
        ("path,label\na.jpg,x,y\n", "3 cells in row 2"),
        ("path,label\n,x\n", "empty cell in row 2"),
        ("path,label\n\n\n,x\n", "empty cell in row 4"),
        ("path,label\n\na.jpg,x\n\na.jpg,x,y\n", "3 cells in row 5"),
        ("path,label\n\na.jpg,x\n", "'a.jpg' in row 3"),
        ("label,path\nx,a.jpg\nx\n", "empty cell in row 3, column 'path'"),
        ("path,label\n", "no rows below its header"),
        ('path\n"a\n', "not a proper CSV"),
        ("", "no column 'path'"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path, text, message):
    table = tmp_path / "list.csv"
    table.write_text(text)
    with pytest.raises(UserError, match=message):
        list_images([table])


def test_what_is_not_there_is_refused(tmp_path, tree):
    for given, message in (
        (tmp_path / "nothing.jpg", "no image, folder or CSV file"),
        (tmp_path / "no.csv", "no file"),
    ):
        with pytest.raises(UserError, match=message):
            list_images([given])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no images below it"):
        list_images([tmp_path / "empty"])
    table = tree / "list.csv"
    table.write_text("path,label\nwren/1.jpg,sparrow\n")
    with pytest.raises(UserError, match="named twice, with the labels 'wren' and 'sparrow'"):
        list_images([tree, table])
