from collections.abc import Callable
from pathlib import Path

from ccp_dml.records.problem_map import ProblemMap
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.sections.embedding_map import embedding_maps

WriteMaps = Callable[..., list[ProblemMap]]


def test_runs_on_the_same_data_share_their_pictures(
    write_run: Callable[..., Path], write_maps: WriteMaps, tmp_path: Path
) -> None:
    folders = [write_run(tmp_path / name) for name in "abcd"]
    for folder in folders:
        write_maps(folder, problems=1)
    section = embedding_maps([RunFolder.read(folder) for folder in folders])
    assert section is not None
    assert len(section.content["sheets"]) == 2  # training and validation
    assert [one["label"] for one in section.content["maps"]] == ["a", "b", "c"]  # no more than MOST_MAPS


def test_a_baseline_has_no_proxies_and_an_old_run_no_map(
    write_run: Callable[..., Path], write_maps: WriteMaps, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run")
    assert embedding_maps([RunFolder.read(run)]) is None
    write_maps(run, problems=1, proxies=0)
    section = embedding_maps([RunFolder.read(run)])
    assert section is not None
    found = section.content["maps"][0]["map"]
    assert found.proxies_per_class == 0
    assert found.frames[0].proxies == {"converged": None, "selected": None}
