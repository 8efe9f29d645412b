import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.made_up_certificates import certificate_of

from ccp_dml.errors import UserError
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports import certificate_words
from ccp_dml.reports.page import write_report
from ccp_dml.reports.sections.certificate import trade_off_charts

ATTACK = "<script>alert('x')</script>"


@pytest.fixture
def certified(write_run: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    def make(certificate: dict[str, Any] | None, **changes: Any) -> Path:
        run = write_run(tmp_path / "run", **changes)
        if certificate is not None:
            (run / "certificate.json").write_text(json.dumps(certificate))
        return run

    return make


def section(run: Path) -> tuple[str, str]:
    """The section as HTML and as text."""
    page = write_report([run], run / "report.html").read_text()
    match = re.search(r'<section id="certificate".*?</section>', page, re.DOTALL)
    assert match
    return match[0], " ".join(re.sub(r"<[^>]+>", " ", match[0]).split())


def test_the_page_says_what_the_certificate_says(certified: Callable[..., Path]) -> None:
    certificate = certificate_of(0.4)
    page, text = section(certified(certificate))
    threshold = certificate["threshold"]
    assert f"up to the distance {threshold['beta']:.4g} (at most {threshold['interval']['high']:.4g} with 90 %" in text
    assert "Two images of one class should be closer than beta = 0.6" in text
    for row in certificate_words.violation_rows(certificate):
        cells = (row.group, row.kind, row.estimate, row.of_images, row.image_pairs, row.of_classes, row.class_pairs)
        assert " ".join(cells) in text
    assert certificate["sets"]["test"]["covering"]["worst"][0]["name"] in text
    assert "Of the 720 images in 12 test classes, 240 in 12 were drawn" in text
    assert "of the 240" not in text.lower()  # the training set was looked at as a whole
    assert page.count("<polyline") == 6  # three sets, found and missed


def test_a_run_from_before_says_how_to_get_one(certified: Callable[..., Path]) -> None:
    run = certified(None)
    _, text = section(run)
    assert f"ccp certify {run}" in text


def test_an_unfinished_run_has_no_certificate(certified: Callable[..., Path]) -> None:
    run = certified(None, finished=False)
    assert 'id="certificate"' not in write_report([run], run / "report.html").read_text()


def test_class_names_are_text(certified: Callable[..., Path]) -> None:
    page, _ = section(certified(certificate_of(0.4, names=tuple(f"{ATTACK} {label}" for label in range(12)))))
    assert "<script>" not in page
    assert "&lt;script&gt;alert" in page


def test_a_damaged_certificate_is_named(certified: Callable[..., Path]) -> None:
    run = certified({"sets": None})
    with pytest.raises(UserError, match=r"certificate\.json certifies no sets; delete it"):
        RunFolder.read(run)


def test_each_run_of_several_has_its_own(write_run: Callable[..., Path], tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / "certificate.json").write_text(json.dumps(certificate_of(0.4)))
    page = write_report(runs, tmp_path / "page.html").read_text()
    assert 'id="run-1-certificate"' in page
    assert 'id="run-2-certificate"' in page
    assert page.count("Missed (DET)</strong>") == 1


def curve(*points: tuple[float, float]) -> list[dict[str, Any]]:
    return [{"wanted": x, "reached": {"beta": 1.0, "false_match_rate": x, "miss_rate": y}} for x, y in points]


def test_decades_are_equally_wide() -> None:
    found, missed = trade_off_charts({"test": curve((0.001, 0.5), (0.01, 0.1), (0.1, 0.01), (1.0, 0.0))})
    assert [(tick.at, tick.text) for tick in found.x_ticks] == [
        (0, "0.10"),
        (pytest.approx(33.33), "1.00"),
        (pytest.approx(66.67), "10.0"),
        (100, "100"),
    ]
    assert found.lines == ["0.0,50.0 33.33,10.0 66.67,1.0 100.0,0.0"]
    assert [(tick.at, tick.text) for tick in missed.y_ticks] == [(0, "1.00"), (50, "10.0"), (100, "100")]
    assert missed.lines[0].split()[1:] == ["50.0,50.0", "100.0,100.0"]  # no misses cannot be drawn


def test_sets_share_the_rows_of_the_table() -> None:
    found, _ = trade_off_charts({"a": curve((0.01, 0.2), (0.1, 0.1)), "b": curve((0.1, 0.3)), "none": []})
    assert [curve.label for curve in found.chart.curves] == ["a", "b"]
    assert [row.text for row in found.rows] == ["1.00", "10.0"]
    assert found.rows[0].points[1] is None
    assert [point.text for point in found.rows[1].points if point] == ["90.0", "70.0"]


def test_nothing_to_draw_is_no_chart_and_nothing_missed_only_one() -> None:
    assert trade_off_charts({"test": []}) == []
    assert len(trade_off_charts({"test": curve((0.1, 0.0))})) == 1
