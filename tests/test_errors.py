import pytest

from ccp_dml.errors import UserError, did_you_mean, first_line, is_text, listing, without_password


def test_a_users_mistake_is_a_value_error_to_those_who_know_nothing_of_us():
    assert issubclass(UserError, ValueError)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("cubb", "; did you mean 'cub'"),
        ("zzz", ""),
        ("c2-cpp", "; did you mean 'c2-ccp'"),
        ("CUB", "; did you mean 'cub'"),
    ],
)
def test_suggestions_are_the_nearest_names_or_none(name, suggestion):
    assert did_you_mean(name, ["cub", "sop", "c2", "c2-ccp"]) == suggestion


def test_without_a_cutoff_something_is_always_suggested():
    assert did_you_mean("zzz", ["a"], cutoff=0) == "; did you mean 'a'"


def test_a_long_list_is_cut_and_counted():
    assert listing(["a", "b"]) == "a, b"
    assert listing(list("abcdefg"), limit=3) == "a, b, c and 4 more"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("No room.\nStack trace"), "No room"),
        (OSError(), "OSError"),
        (ValueError("\n"), "ValueError"),
        (RuntimeError("x" * 301), "x" * 300 + "..."),
    ],
)
def test_an_error_is_quoted_by_its_first_line_or_named(error, line):
    assert first_line(error) == line


def test_names_of_files_may_be_no_text():
    assert is_text("größe 10 ✓")
    assert not is_text("gr\udcf6\udcdfe")


def test_passwords_of_addresses_are_hidden():
    assert without_password("postgresql://ann:s3cret@host:5432/db") == "postgresql://ann:***@host:5432/db"
    assert without_password("sqlite:///x.db") == "sqlite:///x.db"
    assert without_password("http://host:19530#birds") == "http://host:19530#birds"
