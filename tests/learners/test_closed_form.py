"""The closed form: both classifiers together, and what being a function of sums promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from promptpool.backbones.resnet import resnet18
from promptpool.backbones.weights import load_backbone
from promptpool.data.sets import DATASETS
from promptpool.data.stream import Batch, Examples, Stream
from promptpool.data.views import ImageView
from promptpool.errors import UnfitError
from promptpool.learners import adaptation, closed_form
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.state import restore, state
from promptpool.optim import Descent
from promptpool.training import learn
from promptpool.training.evaluation import predict
from promptpool.training.loop import Plan, Session
from toys import CLASSES, toy_backbone, toy_examples, toy_schedule, toy_stream

VIEW = ImageView(8)
TRAIN, TEST = toy_examples(9, 1), toy_examples(7, 2).batch(slice(None))
CASES: tuple[dict[str, Any], ...] = (
    {},
    {"classifier": "gaussian"},
    {"classifier": "ridge"},
    {"projections": 0},
    {"keep": "features"},
    {"shrinkage": 0.2, "ridge": 3.0},
)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 20)


def learner_of(**values: Any) -> ClosedForm:
    return ClosedForm(toy_backbone(dim=16), VIEW, **{"projections": 50, **values})


def show(learner: ClosedForm, some: Examples, step: int = 9) -> ClosedForm:
    learner.add_classes(some.classes)
    for batch in some.batches(step):
        assert learner.step(batch, Descent([])) is None
    return learner


def learned(order: list[int], step: int = 9, **values: Any) -> ClosedForm:
    """A learner after the classes came one by one in this order."""
    learner = learner_of(**values)
    for label in order:
        show(learner, TRAIN.select(TRAIN.y == label), step)
        learner.before_evaluation()
    return learner.eval()


def answers(learner: ClosedForm, test: Examples) -> Tensor:
    return torch.cat([predict(learner, batch) for batch in test.batches(40)])


def same(one: ClosedForm, other: ClosedForm, test: Examples | None = None) -> None:
    torch.testing.assert_close(one.head.weight, other.head.weight, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(one.head.bias, other.head.bias, rtol=1e-8, atol=1e-8)
    assert one.seen == other.seen
    if test is None:
        assert torch.equal(predict(one, TEST), predict(other, TEST))
    else:
        assert torch.equal(answers(one, test), answers(other, test))


def slow_scores(rows: Tensor, labels: Tensor, x: Tensor, directions: Tensor) -> Tensor:
    """The sum of both classifiers' scores, from the rows themselves; the ridge is the caller's, 3."""
    means = torch.stack([rows[labels == c].mean(dim=0) for c in range(CLASSES)])
    apart = rows - means[labels]
    degrees, width = len(rows) - CLASSES, rows.shape[1]
    covariance = apart.T @ apart / degrees
    shrunk = 0.8 * covariance + 0.2 * covariance.trace() / width * torch.eye(width, dtype=torch.float64)
    inverse = torch.linalg.inv(shrunk)
    h, own = (rows @ directions).clamp(min=0), (x @ directions).clamp(min=0)
    system = h.T @ h + 3.0 * torch.eye(h.shape[1], dtype=torch.float64)
    weights = torch.linalg.inv(system) @ h.T @ torch.nn.functional.one_hot(labels).double()
    total = torch.zeros(len(x), CLASSES, dtype=torch.float64)
    for learned_scores, scores in (
        (gaussian(rows, means, inverse), gaussian(x, means, inverse)),
        (h @ weights, own @ weights),
    ):
        total += scores / (learned_scores - learned_scores.mean(dim=1, keepdim=True)).square().mean().sqrt()
    return total


def gaussian(x: Tensor, means: Tensor, inverse: Tensor) -> Tensor:
    return torch.stack([x @ inverse @ m - m @ inverse @ m / 2 for m in means], dim=1)


def test_scores_follow_the_equations() -> None:
    learner = learned(list(range(CLASSES)), shrinkage=0.2, ridge=3.0)
    rows = learner.read(TRAIN.batch(slice(None))).double()
    expected = slow_scores(rows, TRAIN.y, learner.read(TEST).double(), learner.directions)
    torch.testing.assert_close(learner.logits(TEST), expected, rtol=1e-7, atol=1e-7)


def test_it_reads_two_blocks_class_and_patches() -> None:
    learner = learner_of()
    backbone = toy_backbone(dim=16)
    with torch.no_grad():
        tokens = backbone.embed(VIEW.plain(TEST.x))
        first = backbone.blocks[0](tokens)
        second = backbone.blocks[1](first)
        rows = [backbone.norm(each) for each in (first, second)]
    expected = torch.cat([part for each in rows for part in (each[:, 0], each[:, 1:].mean(dim=1))], dim=1)
    torch.testing.assert_close(learner.read(TEST).float(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("values", CASES, ids=str)
def test_neither_the_order_of_classes_nor_the_size_of_batches_matters(values: dict[str, Any]) -> None:
    order = list(range(CLASSES))
    expected = learned(order, **values)
    same(learned(order[::-1], step=4, **values), expected)
    same(learned([2, 0, 1, *order[3:]], step=100, **values), expected)


@pytest.mark.parametrize("counts", [(4, 4, 4), (5, 3, 4)])
def test_images_that_are_all_alike_tell_nothing_in_any_order(counts: tuple[int, ...]) -> None:
    labels = torch.arange(3).repeat_interleave(torch.tensor(counts))
    images = TRAIN.select(torch.zeros_like(labels))
    alike = Examples(images.source, images.rows, labels, torch.arange(len(labels)))
    learners = []
    for order in (labels.argsort(), labels.argsort(descending=True), torch.randperm(len(labels))):
        learners.append(show(learner_of(), alike.select(order), step=5))
        learners[-1].before_evaluation()
        assert learners[-1].head.weight.abs().max() < 10, "what is left of rounding is not divided by itself"
    for learner in learners[1:]:
        same(learner.eval(), learners[0].eval())


def test_order_addition_and_subtraction_are_exact_on_a_real_model_too() -> None:
    """As the first test says of a toy: two blocks of the shipped ViT, 2,000 projections, images that it gets wrong."""
    train, test = DATASETS["glyphs100"](train_per_class=6, test_per_class=6)[:2]
    train, test = train.select(train.y < 20), test.select(test.y < 20)
    backbone = load_backbone("vit-glyphs")
    store = ClosedForm(backbone, ImageView(32)).frozen

    def of(rows: Tensor, step: int) -> ClosedForm:
        learner = ClosedForm(backbone, ImageView(32))
        learner.frozen = store
        show(learner, train.select(rows), step).before_evaluation()
        return learner.eval()

    every = torch.arange(len(train))
    mixed = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    whole, other, first, second = of(every, 120), of(mixed, 7), of(mixed[:70], 16), of(mixed[70:], 16)
    assert 0.3 < (answers(whole, test) == test.y).double().mean() < 1, "some labels must be open to doubt"
    same(other, whole, test)
    first.join(second)
    same(first.eval(), whole, test)
    first.join(second, -1)
    again = of(mixed[:70], 1)
    again.grow(len(first.head.bias))
    again.before_evaluation()
    same(first.eval(), again.eval(), test)


def test_an_evaluation_takes_one_factorisation_of_each_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, sizes, factor = show(learner_of(), TRAIN), [], torch.linalg.cholesky

    def counted(matrix: Tensor) -> Tensor:
        sizes.append(len(matrix))
        found: Tensor = factor(matrix)
        return found

    monkeypatch.setattr(torch.linalg, "cholesky", counted)
    learner.before_evaluation()
    predict(learner, TEST)
    assert sizes == [learner.sums.width, learner.projected.width]


@pytest.mark.parametrize("values", CASES, ids=str)
def test_an_evaluation_from_kept_features_is_two_products_at_most(values: dict[str, Any]) -> None:
    """x R and the head's; nothing goes through the model, and no other matrix is multiplied."""
    learner = learned(list(range(CLASSES)), **values)
    test = toy_examples(7, 2)
    expected = answers(learner, test)
    with FlopCounterMode(display=False) as counting:
        assert torch.equal(answers(learner, test), expected)
    projects = learner.projections > 0 and learner.projected.width > 0
    head = 2 * len(test) * CLASSES * (learner.sums.width + learner.projected.width)
    found = counting.get_flop_counts()["Global"]
    assert len(found) == 1 + projects, found
    assert sum(found.values()) == head + projects * 2 * len(test) * learner.directions.numel()


def test_blocks_are_only_a_matter_of_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = learned(list(range(CLASSES)))
    monkeypatch.setattr(closed_form, "BLOCK", 5)
    same(learned(list(range(CLASSES))), expected)


class Copying(TorchDispatchMode):
    """Counts the rows that are copied to stand with others."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func._schema.name == "aten::cat" and found.dtype == torch.half:
            self.rows += len(found)
        return found


def test_rows_that_are_kept_are_copied_a_few_times_however_many_blocks_they_come_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closed_form, "BLOCK", 2)
    learner = learner_of(keep="features")
    with Copying() as copying:
        show(learner, TRAIN, step=2)
        rows = learner.rows
        assert learner.rows is rows
    assert len(rows) == len(TRAIN)
    assert copying.rows <= 3 * len(TRAIN), "once where they wait, once when they are read"
    assert torch.equal(rows, learner.read(TRAIN.batch(slice(None))))
    assert torch.equal(learner.labels, TRAIN.y)
    assert torch.equal(learner.ids, TRAIN.ids)


@pytest.mark.parametrize("values", CASES, ids=str)
def test_two_taught_apart_are_one_taught_on_both(values: dict[str, Any]) -> None:
    whole = learned(list(range(CLASSES)), **values)
    first, second = learned([0, 1, 2], **values), learned(list(range(3, CLASSES)), **values)
    first.join(second)
    same(first.eval(), whole)


def test_halves_of_a_class_add_up_too() -> None:
    rows = torch.arange(len(TRAIN)) % 2 == 0
    parts = [show(learner_of(), TRAIN.select(part)) for part in (rows, ~rows)]
    parts[0].join(parts[1])
    same(parts[0].eval(), learned(list(range(CLASSES))))


def test_what_was_added_can_be_subtracted() -> None:
    first, second = learned([0, 1, 2]), learned(list(range(3, CLASSES)))
    both = learned([0, 1, 2])
    both.join(second)
    both.join(second, -1)
    assert both.seen == (0, 1, 2)
    torch.testing.assert_close(both.head.weight[:3], first.head.weight, rtol=1e-8, atol=1e-8)
    assert torch.equal(predict(both.eval(), TEST), predict(first, TEST))


def test_a_class_taken_out_was_never_there() -> None:
    learner = learned(list(range(CLASSES)), keep="features")
    learner.forget([1, CLASSES - 1])
    other = learned([c for c in range(CLASSES) if c not in (1, CLASSES - 1)], keep="features")
    other.grow(CLASSES)
    other.before_evaluation()
    same(learner.eval(), other)
    assert len(learner.rows) == 9 * (CLASSES - 2)


@pytest.mark.parametrize("values", [case for case in CASES if "keep" not in case], ids=str)
def test_sums_alone_forget_a_class_whose_images_are_given_again(values: dict[str, Any]) -> None:
    learner = learned(list(range(CLASSES)), **values)
    learner.join(learned([1, CLASSES - 1], step=4, **values), -1)
    other = learned([c for c in range(CLASSES) if c not in (1, CLASSES - 1)], **values)
    other.grow(CLASSES)
    other.before_evaluation()
    same(learner.eval(), other)
    with pytest.raises(ValueError, match="examples that are not in the sums"):
        learner.join(learned([1], **values), -1)


def test_forgetting_all_leaves_nothing() -> None:
    learner = learned([0, 1], keep="features")
    learner.forget([0, 1])
    assert learner.seen == ()
    assert not learner.sums.known.any()
    assert learner.gaussian is None
    assert learner.regression is None
    show(learner, TRAIN.select(TRAIN.y == 0))
    learner.before_evaluation()
    assert set(predict(learner, TEST).tolist()) == {0}


def test_sums_alone_refuse_to_forget_and_rows_to_be_subtracted() -> None:
    with pytest.raises(ValueError, match=r"only with keep = 'features', or by join\(other, -1\) where other"):
        learned([0, 1]).forget([0])
    kept = learned([0, 1], keep="features")
    with pytest.raises(ValueError, match="forget classes instead"):
        kept.join(learned([1], keep="features"), -1)
    kept = learned([0], keep="features")
    with pytest.raises(ValueError, match="rows are learned as they are only with keep = 'features'"):
        learner_of(keep="sums").add_rows(kept.rows, kept.labels, kept.ids)


@pytest.mark.parametrize(
    "values",
    [
        {"classifier": "gaussian"},
        {"classifier": "ridge", "ridge": 3.0},
        {"projections": 0},
        {"projections": 80, "seed": 1},
        {"shrinkage": 0.2},
    ],
    ids=str,
)
@pytest.mark.parametrize("old_values", [{}, {"classifier": "ridge", "projections": 20}], ids=str)
def test_kept_rows_teach_a_learner_of_other_values(old_values: dict[str, Any], values: dict[str, Any]) -> None:
    old = learned(list(range(CLASSES)), keep="features", **old_values)
    new = learner_of(keep="features", **values)
    new.add_rows(old.rows, old.labels, old.ids)
    other = learned(list(range(CLASSES)), keep="features", **values)
    same(new.eval(), other)
    new.forget([2])
    other.forget([2])
    same(new, other)


@pytest.mark.parametrize("values", [{"seed": 1}, {"projections": 51}, {"readout_blocks": 1}])
def test_unlike_learners_are_not_joined(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the same values and the same backbone"):
        learned([0]).join(learned([1], **values))


@pytest.mark.parametrize("values", CASES, ids=str)
def test_leave_one_out_is_learning_without_it(values: dict[str, Any]) -> None:
    """Where shrinkage, ridge and spreads hardly move: labels are those of a learner that never saw the example."""
    learner = learned(list(range(CLASSES)), **values)
    batch = TRAIN.batch(slice(None))
    found = learner.leave_one_out(learner.read(batch), batch.y).argmax(dim=1)
    for left in range(0, len(TRAIN), 10):
        others = torch.arange(len(TRAIN)) != left
        without = show(learner_of(**values), TRAIN.select(others))
        without.before_evaluation()
        one = Batch(batch.x[left : left + 1], batch.y[left : left + 1], batch.ids[left : left + 1])
        assert int(predict(without, one)) == int(found[left])


def test_leave_one_out_finds_a_wrong_label() -> None:
    y = TRAIN.y.clone()
    y[4] = 3  # is of class 0
    learner = learner_of()
    learner.add_classes(range(CLASSES))
    batch = TRAIN.batch(slice(None))
    learner.step(Batch(batch.x, y, batch.ids), Descent([]))
    learner.before_evaluation()
    scores = learner.leave_one_out(learner.read(batch), y)
    margin = scores.gather(1, y[:, None])[:, 0] - scores.scatter(1, y[:, None], -torch.inf).max(dim=1).values
    assert int(margin.argmin()) == 4
    assert int(scores[4].argmax()) == 0


def test_what_is_like_no_class_is_far() -> None:
    learner = learned(list(range(CLASSES - 1)))
    known = TEST.y < CLASSES - 1
    distance = learner.distance(learner.read(TEST))
    assert distance[~known].min() > distance[known].median()
    with pytest.raises(ValueError, match="has no distances"):
        learned([0, 1], classifier="ridge").distance(learner.read(TEST))


@pytest.mark.parametrize("stream", [toy_stream(), toy_schedule()])
def test_it_learns_a_stream(stream: Any) -> None:
    *_, last = learn(learner_of(), stream, Plan(epochs=1, batch_size=16))
    assert sum(count or 0 for count in last.correct) / sum(last.total) > 0.9
    assert set(last.facts) >= {"shrinkage", "ridge"}


def test_a_restored_learner_goes_on_as_if_never_stopped() -> None:
    for values in CASES:
        first = learned([0, 1, 2], **values)
        show(first, TRAIN.select(TRAIN.y == 3), step=4)  # some wait to be added
        second = learner_of(**values)
        restore(second, state(first))
        for learner in (first, second):
            show(learner, TRAIN.select(TRAIN.y == 4))
            learner.before_evaluation()
        assert torch.equal(first.head.weight, second.head.weight)


def test_a_state_of_another_width_is_refused() -> None:
    with pytest.raises(RuntimeError, match="size mismatch"):
        restore(learner_of(projections=51), state(learned([0, 1])))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"classifier": "svm"}, "classifier = 'svm': must be one of both, gaussian, ridge"),
        ({"keep": "all"}, "keep = 'all': must be one of sums, features"),
        ({"projections": -1}, "projections = -1: must be at least 0"),
        ({"shrinkage": 0.0}, "shrinkage = 0.0: must be above 0 and at most 1"),
        ({"shrinkage": float("nan")}, "shrinkage = nan: must be above 0 and at most 1"),
        ({"ridge": 0.0}, "ridge = 0.0: must be above 0"),
        ({"ridge": float("inf")}, "ridge = inf: must be above 0 and finite"),
        ({"ridge": float("nan")}, "ridge = nan: must be above 0 and finite"),
        ({"readout_blocks": 3}, "readout_blocks = 3: this ViT has 2"),
        ({"readout_blocks": 0}, "readout_blocks = 0: must be at least 1"),
        ({"readout_rows": "all"}, "readout_rows = 'all': must be one of class, patches, both"),
    ],
)
def test_values_that_cannot_be_meant(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learner_of(**values)


@pytest.mark.parametrize("values", [{"ridge": 1e-300}, {"shrinkage": 1e-300}], ids=str)
def test_a_value_too_small_for_the_data_is_named(values: dict[str, float]) -> None:
    ((name, value),) = values.items()
    learner = show(learner_of(projections=500, **values), TRAIN.select(torch.arange(len(TRAIN)) % 3 == 0))
    with pytest.raises(UnfitError, match=f"^{name} = {value}: too small for this data"):
        learner.before_evaluation()


def test_a_residual_network_has_one_vector() -> None:
    backbone = resnet18(width=4, image_size=8).eval()
    with pytest.raises(ValueError, match="one vector for an image, set 1 and 'class'"):
        ClosedForm(backbone, VIEW)
    learner = ClosedForm(backbone, VIEW, readout_blocks=1, readout_rows="class", projections=20)
    show(learner, TRAIN)
    learner.before_evaluation()
    assert learner.logits(TEST).isfinite().all()


def test_a_feature_that_half_precision_cannot_hold_is_an_error() -> None:
    backbone = toy_backbone(dim=16)
    with torch.no_grad():
        backbone.norm.weight.mul_(1e6)
    learner = ClosedForm(backbone, VIEW)
    with pytest.raises(ValueError, match="half precision"):
        learner.read(TEST)


def adapted(stream: Stream, experiences: int = 1) -> ClosedForm:
    learner = learner_of(adapt="prompts")
    for step in Session(learner, stream, Plan(epochs=1, batch_size=16)):
        if step.record is not None and step.experience + 1 == experiences:
            break
    return learner


def test_prompts_are_learned_on_the_first_experience_alone() -> None:
    learner, stream = learner_of(adapt="prompts"), toy_stream()
    begun = learner.pool.prompts.clone()
    steps = Session(learner, stream, Plan(epochs=1, batch_size=16))
    pools = [learner.pool.prompts.clone() for step in steps if step.record is not None]
    assert not torch.equal(pools[0], begun)
    assert torch.equal(pools[0], pools[-1])
    assert not any(parameter.requires_grad for parameter in learner.parameters())


def test_rows_with_prompts_stand_beside_those_without() -> None:
    learner = adapted(toy_stream())
    plain = learner_of().read(TEST)
    found = learner.read(TEST)
    assert torch.equal(found[:, : plain.shape[1]], plain)
    backbone = toy_backbone(dim=16)
    with torch.no_grad():
        x = VIEW.plain(TEST.x)
        prompts = learner.pool(backbone.features(x)).prompts + backbone.pos_embed[0, 0]
        tokens = backbone.embed(x)
        tokens, expected = torch.cat([tokens[:, :1], prompts, tokens[:, 1:]], dim=1), []
        for block in backbone.blocks:
            tokens = block(tokens)
            rows = backbone.norm(tokens)
            expected += [rows[:, 0], rows[:, 1 + prompts.shape[1] :].mean(dim=1)]
    torch.testing.assert_close(found[:, plain.shape[1] :].float(), torch.cat(expected, dim=1), rtol=2e-3, atol=2e-3)


def test_learned_prompts_are_in_the_state() -> None:
    stream = toy_stream()
    first, second = adapted(stream), learner_of(adapt="prompts")
    with pytest.raises(RuntimeError, match="learned when the first experience begins"):
        second.read(TEST)
    restore(second, state(first))
    first.before(stream.experiences[1])
    second.before(stream.experiences[1])
    assert torch.equal(first.read(TEST), second.read(TEST))
    assert not any(name.startswith(("prompted", "vit")) for name in state(first)["weights"])


def test_prompts_need_tokens_and_tasks() -> None:
    with pytest.raises(ValueError, match="has no tokens for prompts"):
        ClosedForm(
            resnet18(width=4, image_size=8).eval(), VIEW, readout_blocks=1, readout_rows="class", adapt="prompts"
        )
    with pytest.raises(ValueError, match="needs task boundaries, to learn on a first task"):
        learner_of(adapt="prompts").check(toy_schedule())


def test_learners_with_other_prompts_are_not_joined() -> None:
    one, other = adapted(toy_stream()), adapted(toy_stream(tasks=2))
    with pytest.raises(ValueError, match="prompts were learned on other images"):
        one.join(other)


def test_a_session_takes_one_pass() -> None:
    session = Session(learner_of(), toy_stream(), Plan(epochs=5, batch_size=16))
    assert {session.epochs(experience) for experience in session.stream.experiences} == {1}
