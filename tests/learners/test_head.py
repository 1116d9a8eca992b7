import pytest
import torch

from promptpool.learners.head import STARTS, Head


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("start", STARTS)
def test_a_head_grows_and_keeps_its_rows(start: str) -> None:
    draws = generator()
    head = Head(5, start=start, generator=draws)
    assert head.weight.shape == (0, 5)
    assert head.bias.shape == (0,)
    for classes in (2, 3, 10):
        weight, bias = head.weight.detach().clone(), head.bias.detach().clone()
        head.grow(classes, draws)
        assert head.weight.shape == (classes, 5)
        assert head.bias.shape == (classes,)
        assert torch.equal(head.weight[: len(weight)], weight)
        assert torch.equal(head.bias[: len(bias)], bias)
        assert torch.equal(head.bias[len(bias) :], torch.zeros(classes - len(bias)))
        head.weight.data.add_(1)  # as if it learned
        head.bias.data.add_(1)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_a_head_never_shrinks(classes: int) -> None:
    draws = generator()
    head = Head(5, start="truncated-normal", class_count=3, generator=draws)
    weight, bias, state = head.weight, head.bias, draws.get_state()
    head.grow(classes, draws)
    assert head.weight is weight
    assert head.bias is bias
    assert torch.equal(draws.get_state(), state)


def test_zeros_are_zeros() -> None:
    head = Head(5, class_count=4, generator=generator())
    assert not head.weight.any()
    assert not head.bias.any()
    assert torch.equal(head(torch.ones(2, 5)), torch.zeros(2, 4))


def test_a_truncated_normal_has_deviation_two_hundredths_and_no_bias() -> None:
    head = Head(500, start="truncated-normal", class_count=40, generator=generator())
    assert head.weight.mean().item() == pytest.approx(0, abs=6e-4)
    assert head.weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert not head.bias.any()


def test_the_generator_decides() -> None:
    first, same, other = (
        Head(5, start="truncated-normal", class_count=4, generator=generator(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first.weight, same.weight)
    assert not torch.equal(first.weight, other.weight)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first.grow(9, generator(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_scores_are_a_product_and_a_bias() -> None:
    head = Head(3, start="truncated-normal", class_count=4, generator=generator())
    head.bias.data.copy_(torch.arange(4.0))
    features = torch.randn(2, 3, generator=generator(1))
    for row, scores in zip(features.tolist(), head(features).tolist(), strict=True):
        for weights, bias, score in zip(head.weight.tolist(), head.bias.tolist(), scores, strict=True):
            assert score == pytest.approx(sum(w * x for w, x in zip(weights, row, strict=True)) + bias, abs=1e-6)


@pytest.mark.parametrize("trained", [True, False])
def test_growing_keeps_what_is_trained_and_its_kind(trained: bool) -> None:
    head = Head(3, class_count=2, generator=generator()).double().requires_grad_(trained)
    head.grow(5, generator())
    for parameter in (head.weight, head.bias):
        assert parameter.requires_grad is trained
        assert parameter.dtype == torch.float64
    assert [name for name, _ in head.named_parameters()] == ["weight", "bias"]


def test_an_unknown_start_raises() -> None:
    with pytest.raises(ValueError, match=r"start = 'ones'"):
        Head(5, start="ones", generator=generator())
