"""Labels as numbers of classes."""

import torch
from torch import Tensor


def refuse_labels_out_of_range(labels: Tensor, classes: int) -> None:
    """Raise unless all labels (B,) are in 0..classes-1: samples of other classes would be negatives of everything.

    Labels on a processor are looked at in every step. A GPU is not waited for: it stops the program at one of the next
    steps, with "device-side assert triggered" and the sentence below among its output.
    """
    labels = labels.to(torch.int64)  # 256 is no number for a narrower type to be compared with
    range_of_classes = f"labels must lie in 0..{classes - 1}, as there are vectors of {classes} classes"
    if labels.device.type != "cpu" or torch.compiler.is_compiling():
        torch._assert_async(((labels >= 0) & (labels < classes)).all(), range_of_classes)
    elif len(labels):
        lowest, highest = map(int, labels.aminmax())
        if lowest < 0 or highest >= classes:
            raise ValueError(
                f"{range_of_classes}; got {lowest} to {highest}. Number the labels of all training data at once: "
                "labels = torch.unique(labels, return_inverse=True)[1]"
            )
