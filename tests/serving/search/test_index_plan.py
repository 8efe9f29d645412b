"""Planning what to do about images: by their content, not by their names, and each only once."""

import os
import shutil

import pytest
from support.pictures import write_picture

from ccp_dml.serving.listed_images import ListedImage
from ccp_dml.serving.search.index_plan import Changes, plan_addition, stored_items
from ccp_dml.serving.search.index_store import read_manifest


@pytest.fixture
def stored(index_folder):
    return stored_items(index_folder, read_manifest(index_folder))


def planned(stored, *images):
    changes = Changes()
    return plan_addition(
        stored, [image if isinstance(image, ListedImage) else ListedImage(image) for image in images], changes
    ), changes


def test_what_is_known_needs_nothing(stored, pictures):
    plan, changes = planned(stored, *(item.image for item in stored.values()))
    assert not plan.changes_anything()
    assert changes == Changes(unchanged=24)
    os.utime(pictures / "red" / "1.png", (1, 1))
    plan, changes = planned(stored, pictures / "red" / "1.png")
    (touched,) = plan.amend
    assert (touched.id, touched.file.mtime_ns) == (stored[str(pictures / "red" / "1.png")].id, 10**9)
    assert (changes.unchanged, changes.relabelled) == (1, 0)


def test_a_moved_file_keeps_its_id_and_takes_what_is_stated_anew(stored, pictures):
    old, new = pictures / "red" / "0.png", pictures / "moved.png"
    shutil.move(old, new)
    plan, changes = planned(stored, ListedImage(new, "crimson", {"year": 2020}))
    (amended,) = plan.amend
    assert (amended.id, amended.image) == (stored[str(old)].id, ListedImage(new, "crimson", {"year": 2020}))
    assert (plan.embed, changes.moved, changes.relabelled) == ([], 1, 1)


def test_one_file_that_is_gone_cannot_have_moved_to_two_places(stored, pictures):
    old, places = pictures / "red" / "0.png", [pictures / "a.png", pictures / "b.png"]
    for place in places:
        shutil.copy(old, place)
    old.unlink()
    plan, changes = planned(stored, *places)
    assert [item.image.path for item in plan.amend] == [places[0]]
    assert [new.image.path for new in plan.embed] == [places[1]]
    assert changes.moved == 1


def test_changed_missing_and_badly_named_files_are_told_apart(stored, pictures):
    changed = write_picture(pictures / "red" / "0.png", (20, 190, 30), 8)
    missing, badly_named = pictures / "nothing.png", pictures / "\udcff.png"
    plan, changes = planned(stored, changed, missing, badly_named)
    (new,) = plan.embed
    assert (new.image.label, new.replaces) == ("red", stored[str(changed)].id)
    assert changes.missing == [str(missing)]
    assert changes.broken == [(ascii(str(badly_named)), "its name is not text in UTF-8")]
