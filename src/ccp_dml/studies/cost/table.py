"""Summarise measured quantities of two trainings: medians with quartiles, and ratios of samples taken side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any


@dataclass(frozen=True)
class Quantity:
    """What was measured again and again; the first value of one training belongs to the first of the other."""

    unit: str
    values: Sequence[float]
    is_part: bool = False  # of the time that a step takes in the mean

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        if len(self.values) == 1:
            return self.values[0], self.values[0], self.values[0]
        low, middle, high = quantiles(self.values, n=4, method="inclusive")
        return low, middle, high

    def ratios_to(self, other: "Quantity") -> list[float]:
        """Divide pair by pair, as far as there are pairs: what disturbed one of a pair has mostly disturbed both."""
        return [own / its for own, its in zip(self.values, other.values, strict=False) if its > 0]

    def ratio_in_words(self, other: "Quantity") -> str:
        """Write "1.08 times as long (half of the ratios between 1.05 and 1.12)"."""
        low, middle, high = Quantity("", self.ratios_to(other)).quartiles
        return f"{middle:.2f} times as long (half of the ratios between {low:.2f} and {high:.2f})"


CostTable = dict[str, dict[str, Quantity]]  # method -> name -> quantity; the first method is what others compare with


def quantity_rows(loss: str, table: CostTable) -> list[dict[str, Any]]:
    """Make lines of results.csv: a quantity of a method, its share of all time, its ratio to the first method's."""
    reference = next(iter(table.values()))
    rows = []
    for method, quantities in table.items():
        total = sum(one.median for one in quantities.values() if one.is_part)
        for name, one in quantities.items():
            low, middle, high = one.quartiles
            ratios = one.ratios_to(reference[name]) if name in reference else []
            ratio_low, ratio, ratio_high = Quantity("", ratios).quartiles if ratios else (None, None, None)
            rows.append(
                {
                    "loss": loss,
                    "method": method,
                    "quantity": name,
                    "unit": one.unit,
                    "median": middle,
                    "lower_quartile": low,
                    "upper_quartile": high,
                    "samples": len(one.values),
                    "share_of_time": middle / total if one.is_part else None,
                    "ratio": ratio,
                    "ratio_lower_quartile": ratio_low,
                    "ratio_upper_quartile": ratio_high,
                }
            )
    return rows
