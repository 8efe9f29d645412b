"""Where trials are kept: in the study's folder, or where several machines reach them."""

import pytest
from support.made_up_trials import carry_out, searcher

from ccp_dml.config.layers import resolve
from ccp_dml.errors import UserError
from ccp_dml.studies.search.storage import TrialStore, search_name


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:////nowhere/at/all/x.db",
        "/nowhere/at/all/x.log",
        "nonsense://x",
        "postgresql://ann:s3cret@127.0.0.1:9/x",
    ],
)
def test_a_storage_that_cannot_be_reached_is_a_user_s_mistake(address, tmp_path):
    with pytest.raises(UserError, match=r"--storage .* cannot be used") as caught:
        TrialStore(tmp_path, address, "search").open()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("place", ["nowhere/x.log", "."])
def test_a_file_that_cannot_be_made_is_refused_before_anything_is_written(place, tmp_path):
    with pytest.raises(UserError, match=r"--storage .* cannot be used"):
        TrialStore(tmp_path / "study", str(tmp_path / place), "search").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["all", "studies", "values"])
def test_damaged_trials_of_its_own_are_named_without_a_storage_that_nobody_gave(damage, tmp_path):
    store = TrialStore(tmp_path, None, "search")
    carry_out(searcher(store.open(), tmp_path / "trials", 3))
    file = tmp_path / "trials.db"
    whole = file.read_bytes()
    first, last = {"all": (0, len(whole)), "studies": (4096, 60_000), "values": (80_000, len(whole))}[damage]
    file.write_bytes(whole[:first] + b"?" * (last - first) + whole[last:])
    with pytest.raises(UserError, match=r"trials\.db, the trials of this search, cannot be used .*--out") as caught:
        store.open()
    assert "--storage" not in str(caught.value)


def test_a_search_whose_recipe_was_changed_is_refused(tmp_path):
    TrialStore(tmp_path, None, "before").open()
    with pytest.raises(UserError, match="holds a search with other settings"):
        TrialStore(tmp_path, None, "after").open()
    address = f"sqlite:///{tmp_path / 'shared.db'}"
    assert [TrialStore(tmp_path, address, name).open().study_name for name in ("one", "two")] == ["one", "two"]


def test_a_search_has_the_name_that_versions_without_the_later_settings_gave_it():
    def named(*settings):
        return search_name("glyphs", "c2-ccp", resolve(["glyphs", "c2-ccp"], list(settings)).config, "contents")

    assert named() == "ccp-search-glyphs-c2-ccp-2a71c77ff568"
    assert named("ccp.pull_to_start=false") != named()


def test_searches_with_different_seeds_have_different_names():
    configs = [resolve(["glyphs", "c2-ccp"], [f"run.seed={seed}"]).config for seed in (0, 7, 8)]
    assert len({search_name("glyphs", "c2-ccp", config, "contents") for config in configs}) == 3
