import pytest
import torch

from ccp_dml.functional.labels import refuse_labels_out_of_range


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_labels_are_numbers_of_classes(dtype):
    labels = torch.tensor([4, 0, 2], dtype=dtype)
    refuse_labels_out_of_range(labels, 5)
    refuse_labels_out_of_range(labels, 300)  # more than a byte can count
    refuse_labels_out_of_range(labels[:0], 1)
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.3, as there are vectors of 4 classes; got 0 to 4\."):
        refuse_labels_out_of_range(labels, 4)
    with pytest.raises(ValueError, match="got -1 to 3"):
        refuse_labels_out_of_range(labels.int() - 1, 5)


def test_a_device_without_values_is_not_asked_for_any():
    refuse_labels_out_of_range(torch.empty(3, dtype=torch.int64, device="meta"), 2)
