"""The folder of a run is opened once, and gone on with as it began."""

import shutil

import pytest
import torch

from ccp_dml.config.layers import resolve
from ccp_dml.errors import UserError
from ccp_dml.records.logbook import Logbook

CONFIG = resolve(["glyphs", "c2"], ["train.max_steps=4"]).config
CPU = torch.device("cpu")


def begun(folder, data):
    book = Logbook.open_new(folder, CONFIG, ["ccp", "train", "glyphs", "c2"])
    book.pin_data(data)
    book.begin()
    return book


@pytest.fixture
def book(tmp_path):
    return begun(tmp_path / "run", "these")


def test_a_folder_stays_untouched_until_its_run_begins(tmp_path):
    Logbook.open_new(tmp_path / "run", CONFIG, ["ccp"])
    assert not (tmp_path / "run").exists()


def test_a_new_run_takes_no_place_that_holds_something(book, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    places = {book.folder: "add --resume", tmp_path: "holds no run", tmp_path / "notes.txt": "is a file"}
    for place, told in places.items():
        with pytest.raises(UserError, match=told):
            Logbook.open_new(place, CONFIG, ["ccp"])


def test_a_resumed_run_may_be_longer_but_not_another(book):
    again = Logbook.reopen(book.folder)
    assert again.config_to_resume(["train.max_steps=8"]).train.max_steps == 8
    with pytest.raises(UserError, match=r"was started with optim\.lr"):
        again.config_to_resume(["optim.lr=1"])
    again.pin_data("these")
    with pytest.raises(UserError, match=r"The data .* are not those"):
        again.pin_data("others")


def test_of_a_damaged_checkpoint_the_one_before_is_taken(book):
    for step in (1, 2):
        book.save({"step": step})
    content = bytearray(book.checkpoint_file.read_bytes())
    content[len(content) // 2] ^= 1
    book.checkpoint_file.write_bytes(content)
    assert book.last_state(CPU) == {"step": 1}
    assert "The checkpoint before it is taken" in book.notes[0]


def test_the_checkpoint_of_another_run_is_refused(book, tmp_path):
    other = begun(tmp_path / "other", "others")
    other.save({"step": 1})
    shutil.copy(other.checkpoint_file, book.checkpoint_file)
    with pytest.raises(UserError, match="belongs to another run"):
        book.last_state(CPU)
