"""The adapter to pytorch-metric-learning: names, arguments, references, state."""

import inspect

import pytest
import torch
from pytorch_metric_learning import losses as library
from pytorch_metric_learning import miners

from ccp_dml.errors import UserError
from ccp_dml.losses import PmlLoss, wrap
from ccp_dml.losses.pml import describe, pml_losses, pml_miners, settable_arguments
from ccp_dml.objectives import ProxyObjective
from ccp_dml.proxies import ClassProxies

CLASSES, DIM = 5, 6
SIZES = {"classes": CLASSES, "dim": DIM}

WITH_REFERENCES = (
    "CircleLoss",
    "ContrastiveLoss",
    "GeneralizedLiftedStructureLoss",
    "LiftedStructureLoss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NTXentLoss",
    "SupConLoss",
    "TripletMarginLoss",
)
IN_THE_BATCH_ONLY = ("FastAPLoss", "HistogramLoss", "NPairsLoss", "SmoothAPLoss", "ThresholdConsistentMarginLoss")
WITH_CLASS_VECTORS = (
    "ArcFaceLoss",
    "CosFaceLoss",
    "LargeMarginSoftmaxLoss",
    "NormalizedSoftmaxLoss",
    "P2SGradLoss",
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "SoftTripleLoss",
    "SphereFaceLoss",
    "SubCenterArcFaceLoss",
)


def make(name, **arguments):
    return PmlLoss.named(name, arguments, classes=CLASSES, dim=DIM, seed=1)


@pytest.fixture
def samples():
    draw = torch.Generator().manual_seed(0)
    batch, references = torch.randn(8, DIM, generator=draw), torch.randn(15, DIM, generator=draw)
    return batch, torch.arange(8) % 4, references, torch.arange(CLASSES).repeat_interleave(3)


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_pair_losses_are_the_library_s_own(name, samples):
    batch, labels, references, ref_labels = samples
    theirs, ours = getattr(library, name)(), make(name)
    ours.rehearse(references=True, **SIZES)
    assert torch.equal(ours(batch, labels), theirs(batch, labels))
    against = ours(batch, labels, references.requires_grad_(), ref_labels)
    assert torch.equal(against, theirs(batch, labels, ref_emb=references, ref_labels=ref_labels))
    against.backward()
    assert references.grad.abs().sum() > 0


def test_a_reference_equal_to_a_sample_is_no_self_pair(samples):
    batch, labels = samples[0][:2], samples[1][:2]  # of two classes: no positive in the batch
    loss = make("ContrastiveLoss", pos_margin=-0.5, neg_margin=0)
    assert loss(batch, labels) == 0
    # As proxies, even as the very same tensors, they are positives at distance zero, each half a unit too far.
    assert loss(batch, labels, batch, labels).item() == pytest.approx(0.5, abs=1e-3)
    assert loss(batch, labels, batch.clone(), labels.clone()).item() == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("name", IN_THE_BATCH_ONLY)
def test_losses_that_take_no_references_say_so_before_training(name):
    loss = make(name)
    loss.rehearse(references=False, **SIZES)
    with pytest.raises(ValueError, match=f"{name} cannot be measured against references such as proxies or a memory"):
        loss.rehearse(references=True, **SIZES)


def test_a_loss_that_only_survives_one_step_is_refused():
    with pytest.raises(ValueError, match=r"DynamicSoftMarginLoss does not work: .*second time"):
        make("DynamicSoftMarginLoss").rehearse(references=False, **SIZES)


@pytest.mark.parametrize("name", WITH_CLASS_VECTORS)
def test_class_vectors_are_trainable_seeded_and_of_the_right_size(name, samples):
    loss = make(name)
    (vectors,) = loss.parameters()
    assert vectors.requires_grad
    assert DIM in vectors.shape
    assert vectors.numel() % (CLASSES * DIM) == 0
    assert torch.equal(vectors, next(make(name).parameters()))
    loss(*samples[:2]).backward()
    assert vectors.grad.abs().sum() > 0


def test_every_loss_of_the_library_is_used_or_left_out_for_a_reason():
    base = library.BaseMetricLossFunction
    theirs = {name for name, c in vars(library).items() if inspect.isclass(c) and issubclass(c, base)}
    assert theirs - set(pml_losses()) == {"BaseMetricLossFunction", "GenericPairLoss", "ManifoldLoss", "VICRegLoss"}
    assert {*WITH_REFERENCES, *IN_THE_BATCH_ONLY, *WITH_CLASS_VECTORS} <= set(pml_losses())


def test_arguments_are_gathered_over_the_base_classes():
    nca = settable_arguments(pml_losses()["ProxyNCALoss"]).parameters  # softmax_scale belongs to its base class
    assert list(nca) == ["softmax_scale"]
    assert list(settable_arguments(pml_losses()["CosFaceLoss"]).parameters) == ["margin", "scale"]
    circle = settable_arguments(pml_losses()["CircleLoss"]).parameters
    assert {name: value.default for name, value in circle.items()} == {"m": 0.4, "gamma": 80}
    triplet = settable_arguments(pml_losses()["TripletMarginLoss"]).parameters
    assert triplet["swap"].annotation is bool
    assert triplet["margin"].annotation == int | float
    assert "learn_beta" in settable_arguments(pml_losses()["MarginLoss"]).parameters
    assert "num_classes" not in settable_arguments(pml_losses()["MarginLoss"]).parameters


def test_arguments_arrive(samples):
    theirs = library.CircleLoss(m=0.1, gamma=3)
    assert torch.equal(make("CircleLoss", m=0.1, gamma=3)(*samples[:2]), theirs(*samples[:2]))
    assert not torch.equal(make("CircleLoss")(*samples[:2]), theirs(*samples[:2]))


def test_a_learnt_margin_is_a_parameter():
    assert [name for name, _ in make("MarginLoss", learn_beta=True).named_parameters()] == ["loss.beta"]


def test_arguments_that_the_library_refuses():
    with pytest.raises(ValueError, match=r"SoftTripleLoss refuses its arguments: .*division by zero"):
        make("SoftTripleLoss", gamma=0)
    with pytest.raises(ValueError, match="TripletMarginLoss does not work"):
        make("TripletMarginLoss", triplets_per_anchor="few").rehearse(references=False, **SIZES)


def test_a_rehearsal_leaves_no_trace():
    loss, state = make("MarginLoss", learn_beta=True, triplets_per_anchor=2), torch.get_rng_state()
    loss.rehearse(references=True, **SIZES)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(value.grad is None for value in loss.parameters())


def test_plain_attributes_of_the_library_are_part_of_the_state():
    first, second = make("DynamicSoftMarginLoss"), make("DynamicSoftMarginLoss")
    with torch.no_grad():
        first(torch.randn(6, DIM, generator=torch.Generator().manual_seed(0)), torch.arange(6) // 2)
    assert not torch.equal(first.loss.hist_, second.loss.hist_)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.loss.hist_, second.loss.hist_)


def test_half_precision_is_computed_in_float32(samples):
    batch, labels, references, ref_labels = samples
    loss = make("MultiSimilarityLoss")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(batch.bfloat16(), labels, references.bfloat16(), ref_labels)
    assert torch.equal(value, loss(batch.bfloat16().float(), labels, references.bfloat16().float(), ref_labels))


def test_descriptions_tell_what_a_loss_can_be_used_for():
    assert "against proxies (CCP)" in describe("CircleLoss")
    assert "inside the batch only" in describe("FastAPLoss")
    assert "class vectors of its own" in describe("ArcFaceLoss")
    assert "needs loss.margin and loss.Tn" in describe("RankedListLoss")
    assert "cannot be trained" in describe("DynamicSoftMarginLoss")


def test_a_constructed_loss_is_wrapped_with_its_miner(samples):
    batch, labels, references, ref_labels = samples
    theirs, miner = library.TripletMarginLoss(margin=0.3), miners.TripletMarginMiner(margin=0.1)
    ours = wrap(theirs, miner=miner)
    assert torch.equal(ours(batch, labels), theirs(batch, labels, miner(batch, labels)))
    mined = miner(batch, labels, references, ref_labels)
    expected = theirs(batch, labels, mined, ref_emb=references, ref_labels=ref_labels)
    assert torch.equal(ours(batch, labels, references, ref_labels), expected)
    assert not torch.equal(ours(batch, labels), wrap(theirs)(batch, labels))


def test_a_miner_of_one_s_own_is_called_with_the_references(samples):
    batch, labels, references, ref_labels = samples
    calls = []

    def first_triplet(*given):
        calls.append(len(given))
        return torch.tensor([0]), torch.tensor([0]), torch.tensor([5])

    loss = wrap(library.TripletMarginLoss(margin=3.0), first_triplet)
    loss(batch, labels)
    value = loss(batch, labels, references, ref_labels)
    assert (calls[0], calls[-1]) == (2, 4)
    a, p, n = (torch.nn.functional.normalize(v, dim=0) for v in (batch[0], references[0], references[5]))
    assert value.item() == pytest.approx(float((a - p).norm() - (a - n).norm() + 3.0), abs=1e-5)


def test_class_vectors_of_a_wrapped_loss_are_parameters_and_take_no_references(samples):
    loss = wrap(library.ProxyAnchorLoss(num_classes=CLASSES, embedding_size=DIM))
    assert [tuple(value.shape) for value in loss.parameters()] == [(CLASSES, DIM)]
    loss(*samples[:2]).backward()
    with pytest.raises(ValueError, match="ProxyAnchorLoss compares samples with class vectors of its own"):
        loss(*samples)


def test_a_wrapped_loss_for_batches_only_says_so_when_it_meets_references(samples):
    loss = wrap(library.NPairsLoss())
    loss(*samples[:2])
    with pytest.raises(ValueError, match="NPairsLoss cannot be measured against references"):
        loss(*samples)
    with pytest.raises(ValueError, match="give both"):
        loss(*samples[:2], samples[2])


@pytest.mark.parametrize(
    ("loss", "miner", "message"),
    [
        (library.TripletMarginLoss, None, r"not the class TripletMarginLoss: write TripletMarginLoss\(\.\.\.\)"),
        (torch.nn.MSELoss(), None, "MSELoss is no loss of pytorch-metric-learning"),
        (library.VICRegLoss(), None, "VICRegLoss is no loss .* that learns from labels alone"),
        (
            library.CrossBatchMemory(library.ContrastiveLoss(), 4),
            None,
            r"keeps references of its own: wrap the loss inside it, and put the result into ccp\.losses",
        ),
        (library.ContrastiveLoss(), miners.PairMarginMiner, r"not the class PairMarginMiner: write PairMarginMiner"),
        (library.ContrastiveLoss(), 3, "int cannot be"),
    ],
)
def test_what_cannot_be_wrapped_is_told_apart(loss, miner, message):
    with pytest.raises(UserError, match=message):
        wrap(loss, miner)


def test_wrapped_losses_go_into_the_objectives_of_ccp(samples):
    batch, labels, *_ = samples
    loss = wrap(library.ContrastiveLoss(), miners.PairMarginMiner())
    proxies = ClassProxies(CLASSES, 2, DIM)
    proxies.place(torch.randn(CLASSES, 2, DIM, generator=torch.Generator().manual_seed(3)))
    objective = ProxyObjective(loss, proxies, pair_weight=0.5)
    expected = loss(batch, labels, *proxies()) + 0.5 * loss(batch, labels)
    assert torch.equal(objective(batch, labels), expected)


def test_miners_of_the_library_go_by_name():
    assert {"TripletMarginMiner", "MultiSimilarityMiner", "BatchHardMiner"} <= set(pml_miners())
    assert "BaseMiner" not in pml_miners()
    assert list(settable_arguments(pml_miners()["MultiSimilarityMiner"]).parameters) == ["epsilon"]


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_batch_and_references_may_differ_in_precision(name):
    draw = torch.Generator().manual_seed(0)
    batch, given = (torch.randn(12, DIM, generator=draw) for _ in range(2))
    labels = torch.arange(4).repeat(3)
    loss = PmlLoss.named(name, {}, **SIZES)
    expected = loss(batch.double(), labels, given.double(), labels)
    torch.testing.assert_close(loss(batch.double(), labels, given, labels.int()), expected)
    torch.testing.assert_close(loss(batch, labels, given.double(), labels), expected)


@pytest.mark.parametrize("name", WITH_CLASS_VECTORS)
@pytest.mark.parametrize("construct", ["wrapped", "by name"])
def test_labels_without_a_class_vector_are_named(name, construct):
    loss = PmlLoss.named(name, {}, **SIZES)
    loss = wrap(loss.loss) if construct == "wrapped" else loss
    for beyond in (-1, 1):
        with pytest.raises(ValueError, match=rf"labels must lie in 0\.\.{CLASSES - 1}"):
            loss(torch.randn(CLASSES, DIM), torch.arange(CLASSES) + beyond)


@pytest.mark.parametrize("name", [*WITH_REFERENCES, *IN_THE_BATCH_ONLY])
def test_losses_without_class_vectors_take_any_labels(name):
    assert PmlLoss.named(name, {}, **SIZES).classes is None


def test_a_batch_without_positives_is_zero_to_nca_which_takes_a_mean_of_nothing(samples):
    embeddings, loss = samples[0].detach().requires_grad_(), make("NCALoss")
    different = torch.arange(len(embeddings))
    for references in ((), (embeddings.detach() + 1, different + 100)):
        value = loss(embeddings, different, *references)
        (gradient,) = torch.autograd.grad(value, embeddings)
        assert value == 0
        assert not gradient.any()
    assert loss(embeddings * torch.nan, different).isnan()  # a broken network must be noticed all the same
    assert loss(embeddings, different // 2) > 0


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_a_loss_that_meets_references_without_gradients_first_is_measured(samples, without_gradients):
    embeddings, labels, *references = samples
    with without_gradients():
        measured = wrap(library.TripletMarginLoss())(embeddings, labels, *references)
    assert measured == wrap(library.TripletMarginLoss())(embeddings, labels, *references)


def test_a_program_may_make_any_device_the_default(samples):
    embeddings, labels, *references = samples
    expected = wrap(library.ContrastiveLoss())(embeddings, labels, *references)
    with torch.device("meta"):  # stands for a GPU: whatever is made there by mistake fits nothing here
        loss = wrap(library.ContrastiveLoss())
        loss.rehearse(references=True, **SIZES)
    assert loss(embeddings, labels, *references) == expected


def test_references_that_do_not_fit_are_named(samples):
    loss, (embeddings, labels, references, ref_labels) = wrap(library.TripletMarginLoss()), samples
    with pytest.raises(ValueError, match=r"embeddings must be \(rows, dimensions\)"):
        loss(embeddings[0], labels[:1], references, ref_labels)
    with pytest.raises(ValueError, match="dimensions, ref_embeddings 2"):
        loss(embeddings, labels, references[:, :2], ref_labels)
    with pytest.raises(ValueError, match="embeddings are on cpu, ref_embeddings on meta"):
        loss(embeddings, labels, references.to("meta"), ref_labels)
