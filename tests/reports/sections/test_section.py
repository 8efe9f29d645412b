from ccp_dml.reports.sections.section import Section, present


def test_sections_without_anything_to_show_are_left_out():
    one, other = (Section(name, name.capitalize(), f"section_{name}.html", {}) for name in ("cost", "map"))
    assert present(None, one, None, other) == [one, other]
    assert present(None) == []
