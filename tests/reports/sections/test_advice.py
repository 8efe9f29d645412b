from dataclasses import replace

from support.made_up_runs import write_run

from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.page import render
from ccp_dml.reports.sections.advice import advice


def test_the_page_lists_advice_where_there_is_some(tmp_path):
    run = RunFolder.read(write_run(tmp_path / "run"))
    assert advice(run) is None
    assert 'id="advice"' not in render([run])
    advised = replace(run, outline={"validation_classes": 2})
    assert [one.id for one in advice(advised).content["advice"]] == ["few-validation-classes"]
    page = render([advised])
    assert 'id="advice-few-validation-classes"' in page
    assert "<code>protocol.hold_out</code>" in page
