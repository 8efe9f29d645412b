"""The table of costs: shares, medians and ratios."""

from ccp_dml.studies.cost.table import Quantity, quantity_rows


def test_ratios_are_taken_pair_by_pair():
    slow, fast = Quantity("ms", [2.0, 30.0, 4.0]), Quantity("ms", [1.0, 10.0, 4.0])
    assert slow.ratios_to(fast) == [2.0, 3.0, 1.0]
    assert slow.ratio_in_words(fast) == "2.00 times as long (half of the ratios between 1.50 and 2.50)"
    assert Quantity("steps", [7.0]).quartiles == (7.0, 7.0, 7.0)


def test_rows_tell_shares_of_the_time_and_ratios_to_the_first_method():
    table = {
        "c2": {
            "step": Quantity("ms", [5.0]),
            "forward": Quantity("ms", [3.0], is_part=True),
            "loss": Quantity("ms", [1.0], is_part=True),
        },
        "c2-ccp": {
            "forward": Quantity("ms", [6.0], is_part=True),
            "reselection": Quantity("ms", [2.0], is_part=True),
        },
    }
    rows = {(row["method"], row["quantity"]): row for row in quantity_rows("c2", table)}
    assert rows["c2", "forward"]["share_of_time"] == 0.75
    assert rows["c2", "step"]["share_of_time"] is None
    assert rows["c2-ccp", "forward"]["ratio"] == 2.0
    assert rows["c2-ccp", "reselection"]["ratio"] is None
