import torch

from ccp_dml.foundation.digests import digest, file_digest, tensor_digest


def test_where_a_part_ends_matters():
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")
    assert digest("ä") == digest("ä".encode())


def test_a_file_is_known_by_its_content(tmp_path):
    for name, content in (("a", b"x" * 100_000), ("b", b"x" * 100_000), ("c", b"x" * 99_999 + b"y")):
        (tmp_path / name).write_bytes(content)
    first, second, third = (file_digest(tmp_path / name) for name in "abc")
    assert first == second != third


def test_tensors_are_known_by_name_type_shape_and_values():
    values = torch.arange(6.0)
    same = tensor_digest([("a", values), ("b", values)])
    assert same == tensor_digest([("b", values.clone()), ("a", values)])  # whatever the order
    assert same == tensor_digest([("a", torch.stack([values, values], 1)[:, 0]), ("b", values)])  # or the strides
    others = [("c", values), ("b", values.double()), ("b", values.view(2, 3)), ("b", values + 1)]
    assert same not in {tensor_digest([("a", values), other]) for other in others}


def test_digests_of_tensors_are_those_of_their_bytes_as_names_of_files_in_caches_are():
    named = {"a": torch.arange(3.0), "b": torch.tensor(7), "c": torch.empty(0, 4), "d": torch.tensor([True, False])}
    named["e"] = torch.ones(2, 2, dtype=torch.bfloat16)
    parts = []
    for name, value in named.items():
        parts += [f"{name} {value.dtype} {tuple(value.shape)}", value.flatten().view(torch.uint8).numpy().tobytes()]
    assert tensor_digest(named.items()) == digest(*parts)
