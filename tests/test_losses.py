import pytest
import torch
import torch.nn.functional as F

from promptpool.losses import logit_distance, only

CHOICES = [[0], [2, 5], [5, 2], [0, 1, 2, 3, 4, 5, 6]]


def random_logits() -> torch.Tensor:
    return torch.randn(4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("classes", CHOICES)
def test_softmax_sees_the_classes_alone(classes: list[int]) -> None:
    logits = random_logits()
    shares = only(logits, torch.tensor(classes)).softmax(dim=1)
    for row, share in zip(logits.tolist(), shares.tolist(), strict=True):
        weights = {c: torch.tensor(row[c], dtype=torch.float64).exp().item() for c in classes}
        expected = [weights.get(c, 0.0) / sum(weights.values()) for c in range(7)]
        assert share == pytest.approx(expected)


@pytest.mark.parametrize("classes", CHOICES)
def test_cross_entropy_is_that_of_the_sub_vector(classes: list[int]) -> None:
    logits = random_logits()
    places = torch.tensor([0, len(classes) - 1, 0, len(classes) // 2])
    labels = torch.tensor(classes)[places]
    actual = F.cross_entropy(only(logits, torch.tensor(classes)), labels)
    torch.testing.assert_close(actual, F.cross_entropy(logits[:, classes], places))


@pytest.mark.parametrize("classes", CHOICES)
def test_hidden_classes_get_no_gradient(classes: list[int]) -> None:
    logits = random_logits().requires_grad_()
    labels = torch.full((4,), classes[0])
    loss = F.cross_entropy(only(logits, torch.tensor(classes)), labels)
    (gradient,) = torch.autograd.grad(loss, logits)
    hidden = [c for c in range(7) if c not in classes]
    assert torch.equal(gradient[:, hidden], torch.zeros(4, len(hidden), dtype=torch.float64))
    alone = random_logits()[:, classes].requires_grad_()
    (expected,) = torch.autograd.grad(F.cross_entropy(alone, torch.zeros(4, dtype=torch.long)), alone)
    torch.testing.assert_close(gradient[:, classes], expected)


def test_the_prediction_is_one_of_the_classes() -> None:
    logits = torch.tensor([[9.0, 1.0, 2.0, 8.0]])
    assert only(logits, torch.tensor([1, 2])).argmax(dim=1).tolist() == [2]


def test_inputs_are_not_changed() -> None:
    logits, classes = random_logits(), torch.tensor([1, 3])
    only(logits, classes)
    assert torch.equal(logits, random_logits())
    assert classes.tolist() == [1, 3]


def test_any_number_of_leading_dimensions() -> None:
    logits = random_logits().view(2, 2, 7)
    flat = only(logits.view(4, 7), torch.tensor([0, 6]))
    assert torch.equal(only(logits, torch.tensor([0, 6])), flat.view(2, 2, 7))
    assert torch.equal(only(logits[0, 0], torch.tensor([0, 6])), flat[0])


def test_a_class_that_does_not_exist_raises() -> None:
    with pytest.raises(IndexError):
        only(random_logits(), torch.tensor([7]))


def test_logits_are_compared_on_the_classes_that_were_there() -> None:
    logits, then = random_logits().requires_grad_(), random_logits().flip(0)
    then[0, 2:], then[2, [0, 6]] = -torch.inf, -torch.inf
    rows = []
    for now, before in zip(logits, then.tolist(), strict=True):
        gaps = [(z - z_then) ** 2 for z, z_then in zip(now, before, strict=True) if z_then != float("-inf")]
        rows.append(torch.stack(gaps).sum() / len(gaps))
    expected = torch.stack(rows).sum() / len(rows)
    found = logit_distance(logits, then)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, logits)[0], torch.autograd.grad(expected, logits)[0])
    everything = random_logits().flip(0)
    torch.testing.assert_close(logit_distance(logits, everything), F.mse_loss(logits, everything))
