"""What the descriptions of figures compute themselves."""

import pytest

from ccp_dml.reports.figures.figure import Histogram


@pytest.mark.parametrize(
    ("values", "width", "edges"),
    [
        ([50, 75, 75, 125], 25, [50, 75, 100, 125, 150]),  # a value on an edge belongs to the bin above
        ([1, 9], 4, [0, 4, 8, 12]),
        ([-1], 4, [-4, 0]),
        ([3], 4, [0, 4]),
    ],
)
def test_bins_are_whole_multiples_of_their_width(values, width, edges):
    panel = Histogram("t", "x", "y", values, width)
    assert panel.bin_edges() == edges
