"""`ccp report` as a user calls it."""

from ccp_dml.cli import main


def test_report_compares_runs(trained_runs, tmp_path, capsys):
    page = tmp_path / "page.html"
    capsys.readouterr()
    assert main(["report", *map(str, trained_runs), "--out", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "fold1" in shown  # the table
    assert str(page) in shown
    assert "fold0" in page.read_text()
    assert "fold1" in page.read_text()
