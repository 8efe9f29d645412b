import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from ccp_dml.errors import UserError
from ccp_dml.records.run_folder import read_runs
from ccp_dml.reports import page as page_module
from ccp_dml.reports.page import page_file, sections_of_many, sections_of_one, write_report

ATTACK = "<script>alert('x')</script>"


def report(runs: list[Path], tmp_path: Path) -> str:
    return write_report(runs, tmp_path / "out" / "report.html").read_text()


def section(page: str, name: str) -> str:
    """The text of one section without its tags."""
    match = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    assert match, f"no section {name}"
    return " ".join(re.sub(r"<[^>]+>", " ", match[0]).split())


def test_one_run_tells_what_was_trained_and_how_good_it_is(two_runs: list[Path], tmp_path: Path) -> None:
    page = report(two_runs[1:], tmp_path)
    summary = section(page, "summary")
    assert "C2 with CCP, 8 proxies per class , trained on glyphs" in summary
    assert "MAP@R 41.1 validation 43.1 P@R 50.1 validation 52.1 P@1 76.1 validation 78.1" in summary
    assert "Best step 1,950 of 2,000 Problems 5 Training time 2 min 48 s Seed 7" in summary
    assert "Unfinished" not in summary
    assert "test 41.15 50.15 76.15 75.00 80.00 4,800" in section(page, "scores")
    assert "ccp train glyphs c2 --out c2-ccp" in section(page, "reproduce")
    assert "negative_margin 0.5" in section(page, "configuration")
    assert "torch 2.15.0" in section(page, "environment")


def test_sections_come_in_a_reader_s_order(two_runs: list[Path]) -> None:
    baseline, ccp = read_runs(two_runs)
    common = ["gallery", "certificate", "scores", "cost", "configuration", "environment", "reproduce"]
    assert [part.id for part in sections_of_one(ccp)] == ["summary", "curves", "projections", "problems", *common]
    assert [part.id for part in sections_of_one(baseline)] == ["summary", "curves", *common]
    several = [part.id for part in sections_of_many([baseline, ccp])]
    assert several == ["comparison", "curves", "projections", "gallery", "cost", "run-1", "run-2"]


def test_a_run_with_everything_has_every_section(illustrated_runs: list[Path]) -> None:
    baseline, ccp = read_runs(illustrated_runs)
    ids = [part.id for part in sections_of_one(ccp)]
    assert [name for name in ids if name in ("problems", "map", "gallery", "confusion", "scores", "cost")] == [
        "problems",
        "map",
        "gallery",
        "confusion",
        "scores",
        "cost",
    ]
    several = sections_of_many([baseline, ccp])
    assert [part.id for part in several][2:5] == ["projections", "map", "gallery"]
    details = [part.id for part in several[-1].content["sections"]]
    assert "run-2-confusion" in details


def test_the_summary_says_what_training_gained(two_runs: list[Path], tmp_path: Path) -> None:
    summary = section(report(two_runs[1:], tmp_path), "summary")
    assert (
        "MAP@R went from 3.1 % at the first evaluation (step 50) to 43.1 % at the best (step 1,950): +40.0" in summary
    )
    first = (two_runs[1] / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (two_runs[1] / "metrics.jsonl").write_text(first)
    (two_runs[1] / "result.json").unlink()
    assert "went from" not in section(report(two_runs[1:], tmp_path), "summary")


def test_spread_radius_and_pull_have_charts_with_the_switches(two_runs: list[Path], tmp_path: Path) -> None:
    page = report(two_runs, tmp_path)
    projections = re.search(r'<section id="projections".*?</section>', page, re.DOTALL)
    assert projections
    assert re.findall(r"<figcaption><strong>(.*?)</strong>", projections[0]) == [
        "Staleness",
        "Covering radius",
        "Spread of proxies",
        "Pull",
    ]
    assert len(re.findall(r'<line class="mark s1"', projections[0])) == 12  # four switches in three charts, of CCP


def test_active_pairs_have_charts_in_percent(two_runs: list[Path], tmp_path: Path) -> None:
    found = re.search(r'<section id="curves".*?</section>', report(two_runs[1:], tmp_path), re.DOTALL)
    assert found
    charts = dict(re.findall(r"<figcaption><strong>(Active \w+)</strong>(.*?)</figure>", found[0], re.DOTALL))
    assert set(charts) == {"Active positives", "Active negatives"}
    assert "96.5" in charts["Active positives"]  # 1 - 0.5 * 0.07 at the first evaluation
    assert "18.6" in charts["Active negatives"]
    assert charts["Active negatives"].count('class="mark ') == 4  # as in the other charts over the steps


def test_confused_classes_are_named_and_shown(illustrated_runs: list[Path], tmp_path: Path) -> None:
    confusion = json.loads((illustrated_runs[1] / "confusion.json").read_text())
    page = report(illustrated_runs[1:], tmp_path)
    text = section(page, "confusion")
    first = confusion["pairs"][0]
    assert f"{first['items'][0]['class']} {first['items'][1]['class']} {100 * first['shares'][0]:.1f} %" in text
    found = re.search(r'<section id="confusion".*?</section>', page, re.DOTALL)
    assert found
    assert found[0].count("<img") == 2 * len(confusion["pairs"])
    assert found[0].count('class="own"') == len(confusion["classes"])
    assert "--heat:100.0%" in found[0]  # the worst cell has the full colour


def test_problem_switches_and_the_best_evaluation_are_in_the_curves(two_runs: list[Path], tmp_path: Path) -> None:
    curves = re.search(r'<section id="curves".*?</figure>', report(two_runs[1:], tmp_path), re.DOTALL)
    assert curves
    assert len(re.findall(r'<line class="mark "', curves[0])) == 4  # five problems, four switches
    assert len(re.findall(r'class="dot best', curves[0])) == 1
    assert "43.1 at the best step, 1,950" in curves[0]
    assert '<th scope="row">450 (problem 2)</th>' in curves[0]


def test_each_problem_has_its_line(two_runs: list[Path], tmp_path: Path) -> None:
    problems = section(report(two_runs[1:], tmp_path), "problems")
    assert "1 400 8 " in problems
    assert re.search(r"5 400 8 43\.1 0\.399 0\.320 0\.00800", problems)


def test_several_runs_are_compared_first(two_runs: list[Path], tmp_path: Path) -> None:
    page = report(two_runs, tmp_path)
    comparison = section(page, "comparison")
    assert "c2-ccp has the highest MAP@R on unseen classes: 41.1 % , +10.4 points (+33.6 %) over c2." in comparison
    assert "c2-ccp 41.1 +10.4 +33.6 % 50.1 +10.4 +26.0 % 76.1 +10.4 +15.7 %" in comparison
    assert "ccp.mode off alternating" in comparison
    assert "tells nothing about chance" in page
    assert not re.search(r"<b>41\.1</b>", page)  # bold needs more than one pair
    assert not re.search(r"<b>30\.8</b>", page)


def test_shared_queries_stand_side_by_side_and_only_there(two_runs: list[Path], tmp_path: Path) -> None:
    galleries = [json.loads((run / "gallery.json").read_text())["queries"] for run in two_runs]
    shared = {query["name"] for query in galleries[0]} & {query["name"] for query in galleries[1]}
    assert len(shared) >= 4  # the random ones
    page = report(two_runs, tmp_path)
    compared = re.search(r'<section id="gallery".*?</section>', page, re.DOTALL)
    assert compared
    assert compared[0].count('<article class="query">') == len(shared)
    assert compared[0].count('<ol class="neighbours">') == 2 * len(shared)
    assert page.count('<ol class="neighbours">') == 24


def test_an_unfinished_run_is_reported_and_marked(write_run: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_run(tmp_path / "my run", finished=False)
    summary = section(report([folder], tmp_path), "summary")
    assert "Unfinished." in summary
    assert f"ccp train --resume --out &#39;{folder}&#39;" in summary
    assert "MAP@R 43.1 P@R" in summary
    (folder / "metrics.jsonl").unlink()
    assert "MAP@R – P@R –" in section(report([folder], tmp_path), "summary")  # noqa: RUF001


def test_selection_on_test_classes_is_said(two_runs: list[Path], tmp_path: Path) -> None:
    config = (two_runs[0] / "config.toml").read_text().replace("[protocol]", '[protocol]\nselect_on = "test"')
    (two_runs[0] / "config.toml").write_text(config)
    assert "Selected on test classes." in section(report(two_runs[:1], tmp_path), "summary")
    assert "selected on the test classes themselves" in section(report(two_runs, tmp_path), "comparison")
    assert "Selected on test classes." not in report(two_runs[1:], tmp_path)


def test_runs_on_other_data_are_not_quietly_compared(two_runs: list[Path], tmp_path: Path) -> None:
    assert "Different data." not in report(two_runs, tmp_path)
    config = (two_runs[0] / "config.toml").read_text().replace('name = "glyphs"', 'name = "cub"')
    (two_runs[0] / "config.toml").write_text(config)
    assert "tested on cub; glyphs" in section(report(two_runs, tmp_path), "comparison")
    for run, file in zip(two_runs, ("a.npz", "b.npz"), strict=True):
        (run / "config.toml").write_text(f'[data]\nname = "features"\npath = "/data/{file}"\n')
    compared = section(report(two_runs, tmp_path), "comparison")
    assert "tested on features (a.npz); features (b.npz)" in compared
    assert "has the highest MAP@R" not in compared


def test_without_a_recorded_command_the_configuration_is_the_recipe(two_runs: list[Path], tmp_path: Path) -> None:
    (two_runs[0] / "environment.json").unlink()
    assert f"ccp train {two_runs[0] / 'config.toml'} --out {two_runs[0]}-again" in report(two_runs[:1], tmp_path)


def test_user_strings_are_text(
    write_run: Callable[..., Path], made_up_gallery: Callable[..., dict], tmp_path: Path
) -> None:
    gallery = made_up_gallery(0.5, names=tuple(ATTACK + str(label) for label in range(10)))
    runs = [write_run(tmp_path / name / 'a"><img src=x onerror=alert(1)>', gallery=gallery) for name in ("x", "y")]
    for run in runs:
        (run / "config.toml").write_text(tomli_w.dumps({"data": {"name": ATTACK}, ATTACK: {ATTACK: ATTACK}}))
        (run / "environment.json").write_text(json.dumps({"command": ATTACK, ATTACK: [ATTACK]}))
    for page in (report(runs[:1], tmp_path), report(runs, tmp_path)):
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert page.count("<script>") == 1
        assert "&lt;script&gt;alert" in page


def test_a_picture_from_elsewhere_is_not_fetched(two_runs: list[Path], tmp_path: Path) -> None:
    gallery = json.loads((two_runs[0] / "gallery.json").read_text())
    gallery["queries"][0]["picture"] = "https://example.org/spy.png"
    (two_runs[0] / "gallery.json").write_text(json.dumps(gallery))
    assert "example.org" not in report(two_runs[:1], tmp_path)


def test_features_have_text_cards(
    write_run: Callable[..., Path], made_up_gallery: Callable[..., dict], tmp_path: Path
) -> None:
    page = report([write_run(tmp_path / "run", gallery=made_up_gallery(0.5, has_pictures=False))], tmp_path)
    assert "<img" not in page
    assert 'class="textface" title="item 1' in page


def test_a_run_without_a_gallery_has_none(write_run: Callable[..., Path], tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b")]
    assert 'id="gallery"' not in report(runs[:1], tmp_path)
    assert 'id="gallery"' not in report(runs, tmp_path)


def test_many_long_runs_stay_far_below_ten_megabytes(
    write_run: Callable[..., Path], made_up_gallery: Callable[..., dict], tmp_path: Path
) -> None:
    gallery = made_up_gallery(0.5)
    runs = [write_run(tmp_path / f"run-{number}", gallery=gallery) for number in range(12)]
    for run in runs:
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        long = [row | {"step": 2000 * repeat + row["step"]} for repeat in range(50) for row in rows]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in long))
    page = report(runs, tmp_path)
    assert len(page) < 5_000_000
    assert "12 runs" in page


def test_pictures_that_cannot_be_compressed_stay_below_ten_megabytes(
    write_run: Callable[..., Path],
    write_maps: Callable[..., list],
    write_confusion: Callable[..., None],
    made_up_gallery: Callable[..., dict],
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "run-0", gallery=made_up_gallery(0.5, is_noise=True))
    write_confusion(run, is_noise=True)
    write_maps(run, per_class=101, problems=41, proxies=8, is_noise=True)
    for number in range(1, 6):
        copy = shutil.copytree(run, tmp_path / f"run-{number}")
        pictures = (run / "map.json").read_text().replace("image/webp;", f"image/webp;number={number};")
        (copy / "map.json").write_text(pictures)  # other pictures, so that the page cannot share them
    page = report(sorted(tmp_path.glob("run-*")), tmp_path)
    assert page.count('<figure class="map">') == 3
    assert page.count("number=1") == 2
    assert 4_000_000 < len(page) < 10_000_000


def test_the_report_replaces_an_older_one_whole_or_not_at_all(
    two_runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new" / "report.html"
    assert write_report(two_runs, out) == out
    before = out.read_text()

    def fail(_: object) -> str:
        raise RuntimeError("no page")

    monkeypatch.setattr(page_module, "render", fail)
    with pytest.raises(RuntimeError):
        write_report(two_runs, out)
    assert out.read_text() == before
    assert [file.name for file in out.parent.iterdir()] == ["report.html"]


def test_a_page_replaces_nothing_but_pages(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(UserError, match="--force"):
        page_file(file)
    assert page_file(file, force=True) == file
    (tmp_path / "link.html").symlink_to(file)
    with pytest.raises(UserError, match="is a link"):
        page_file(tmp_path / "link.html", force=True)
    with pytest.raises(UserError, match="no regular file"):
        page_file(Path("/dev/null"), force=True)
    with pytest.raises(UserError, match="is a folder; give --html the file that the page is to be written to"):
        page_file(tmp_path, option="--html")
    file.write_text(page_module.fill("title", "kind", []))
    assert page_file(file) == file
