from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from algorithm_1 import Parameters, Result, algorithm_1, clipped, first_adam_step
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch, Stream, concatenate
from promptpool.data.views import ImageView
from promptpool.learners import base
from promptpool.learners.l2p import L2P
from promptpool.learners.profiles import PROFILES, profile
from promptpool.learners.prompted import LISTED
from promptpool.learners.state import restore, state
from promptpool.losses import columns
from promptpool.optim import Descent
from promptpool.training.evaluation import predict
from promptpool.training.loop import Plan, Session
from published import random_vit
from toys import SHORT, refusal, toy_backbone, toy_domains, toy_examples, toy_schedule, toy_stream

CASES = [(name, "cifar100") for name in PROFILES] + [
    ("paper", "5-datasets"),
    ("google-v2", "5-datasets"),
    ("pytorch-port", "5-datasets"),
]
RANDOM_VIEW = ImageView(8, crop=(0.2, 1.0), flip=True)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_backbone() -> ViT:
    return toy_backbone(dim=16)


def toy_batch(count: int = 20, classes: int = 3, seed: int = 1) -> Batch:
    """Mixed images of the first classes."""
    some = toy_examples(20, seed, classes)
    return some.batch(torch.randperm(len(some), generator=generator(seed))[:count])


def l2p(view: ImageView | None = None, **values: Any) -> L2P:
    """An L2P on its way: classes 3 and 4 are behind it, 0, 1 and 2 are current, and nothing is zero any more."""
    learner = L2P(small_backbone(), view or ImageView(8), **values)
    learner.add_classes([3, 4])
    learner.add_classes([0, 1, 2])
    noise = generator(5)
    for parameter in (learner.head.weight, learner.head.bias):
        parameter.data.copy_(torch.randn(parameter.shape, generator=noise))
    for parameter in learner.pool.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=noise), alpha=0.5)
    learner.train()
    return learner


def of_profile(name: str, benchmark: str = "cifar100") -> L2P:
    values = profile(name, benchmark=benchmark)
    return l2p(ImageView(8, **values.view), **values.learner)


def plan_of(name: str, **values: Any) -> Plan:
    """A profile's plan, but last batches are taken: a task of toys is less than one whole batch."""
    return Plan(**{**profile(name).plan, "drop_last": False, **values})


def viewed(learner: L2P, batch: Batch) -> Tensor:
    """What the learner's next call sees of a batch; draws nothing from its generator."""
    state = learner.generator.get_state()
    x = learner.inputs(batch)
    learner.generator.set_state(state)
    return x


def parameters_of(learner: L2P) -> dict[str, Tensor]:
    head = learner.head
    named: dict[str, Tensor] = {"prompts": learner.pool.prompts, "weight": head.weight, "bias": head.bias}
    if learner.pool.learned_keys is not None:
        named["keys"] = learner.pool.learned_keys
    return named


def transcription(
    learner: L2P, x: Tensor, y: Tensor, *, classes: tuple[int, ...] | None = None, query: Tensor | None = None
) -> Result:
    assert isinstance(learner.backbone, ViT)
    assert isinstance(learner.frozen.backbone, ViT)
    diversified = learner.training and learner.diversify and bool(learner.pool.frequency.any())
    return algorithm_1(
        learner.backbone,
        x,
        y,
        Parameters(learner.pool.prompts, learner.pool.learned_keys, learner.head.weight, learner.head.bias),
        learner.current if classes is None else classes,
        top_k=learner.top_k,
        pull=learner.pull,
        order=learner.order,
        position=learner.position,
        vote=learner.vote,
        frequency=learner.pool.frequency.tolist() if diversified else None,
        query=query,
        original=learner.frozen.backbone,
    )


def assert_loss_and_gradients(learner: L2P, batch: Batch, expected: Result) -> None:
    learner.zero_grad()
    loss = learner.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(expected.loss, rel=1e-5)
    for name, parameter in parameters_of(learner).items():
        assert parameter.grad is not None
        scale = expected.gradients[name].abs().max()
        assert scale > 1e-4, f"{name} has no gradient to compare"
        torch.testing.assert_close(
            parameter.grad.double(), expected.gradients[name], rtol=1e-4, atol=1e-5 * float(scale), msg=name
        )


def bytes_of(backbone: torch.nn.Module) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in backbone.state_dict().values()]


@pytest.mark.parametrize(("name", "benchmark"), CASES)
def test_loss_and_gradients_are_algorithm_1(name: str, benchmark: str) -> None:
    learner, batch = of_profile(name, benchmark), toy_batch()
    expected = transcription(learner, viewed(learner, batch), batch.y)
    assert_loss_and_gradients(learner, batch, expected)
    chosen = [index for indices in expected.chosen for index in indices]
    assert learner.pool.counts.tolist() == [chosen.count(index) for index in range(learner.pool_size)]


def test_loss_and_gradients_are_algorithm_1_with_equation_4() -> None:
    learner, batch = of_profile("paper", "5-datasets"), toy_batch()
    learner.pool.frequency.copy_(torch.rand(20, generator=generator()))
    expected = transcription(learner, viewed(learner, batch), batch.y)
    learner.diversify = False
    assert expected.chosen != transcription(learner, viewed(learner, batch), batch.y).chosen
    assert_loss_and_gradients(learner, batch, expected)


@pytest.mark.parametrize(
    "values",
    [
        {"key": "mean"},
        {"pool_size": 1, "top_k": 1, "prompt_length": 25},
        {"order": "class-first"},
        {"position": "class"},
        {"pull": 0.0, "key": "mean"},
    ],
    ids=["mean keys", "one prompt", "class first", "class position", "no pull"],
)
def test_other_values_are_algorithm_1(values: dict[str, Any]) -> None:
    learner, batch = l2p(**values), toy_batch(6)
    assert_loss_and_gradients(learner, batch, transcription(learner, viewed(learner, batch), batch.y))


def test_of_a_large_head_the_loss_takes_the_classes_of_the_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, batch, taken = l2p(), toy_batch(6), list[tuple[int, ...]]()

    def noted(logits: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
        taken.append(tuple(classes))
        return columns(logits, classes)

    monkeypatch.setattr(base, "LARGE_HEAD", 40)
    monkeypatch.setattr(base, "columns", noted)
    learner.grow(39)
    learner.loss(batch)
    assert not taken
    learner.grow(40)
    expected = transcription(learner, viewed(learner, batch), batch.y)
    assert_loss_and_gradients(learner, batch, expected)
    assert taken == [learner.current]
    learner.current = (1, 3, 4)  # classes that do not lie side by side
    batch = batch._replace(y=torch.tensor([4, 1, 3, 3, 4, 1]))
    assert_loss_and_gradients(learner, batch, transcription(learner, viewed(learner, batch), batch.y))


@pytest.mark.parametrize("loss_classes", ["seen", "all"])
def test_the_loss_sees_other_classes_when_told(loss_classes: str) -> None:
    learner, batch = l2p(loss_classes=loss_classes), toy_batch(6)
    learner.grow(7)
    classes = tuple(range(5 if loss_classes == "seen" else 7))
    assert_loss_and_gradients(learner, batch, transcription(learner, viewed(learner, batch), batch.y, classes=classes))


@pytest.mark.parametrize(("name", "benchmark"), CASES)
def test_a_step_is_a_clipped_first_step_of_adam(name: str, benchmark: str) -> None:
    learner, batch = of_profile(name, benchmark), toy_batch()
    plan = plan_of(name)
    descend = Session(learner, toy_stream(), plan).make_descent()
    expected = transcription(learner, viewed(learner, batch), batch.y)
    frozen = expected.frozen if name.startswith("google") else []
    gradients = clipped(expected.gradients, frozen, 1.0)
    assert float(sum(g.square().sum() for g in gradients.values())) < 1.0001
    starts = {key: parameter.detach().clone() for key, parameter in parameters_of(learner).items()}
    before = bytes_of(learner.backbone)
    with descend.measuring():
        loss = learner.step(batch, descend)
    assert loss is not None
    assert loss.item() == pytest.approx(expected.loss, rel=1e-5)
    for key, parameter in parameters_of(learner).items():
        assert parameter.grad is not None
        scale = float(gradients[key].abs().max())
        torch.testing.assert_close(parameter.grad.double(), gradients[key], rtol=1e-4, atol=1e-5 * scale, msg=key)
        updated = first_adam_step(starts[key], gradients[key], plan.learning_rate)
        sure = (gradients[key] == 0) | (gradients[key].abs() > 1e-4 * scale)  # the sign of the rest is rounding
        assert sure.double().mean() > 0.99
        torch.testing.assert_close(parameter.detach().double()[sure], updated[sure], rtol=1e-5, atol=1e-6, msg=key)
    assert bytes_of(learner.backbone) == before


def test_frozen_weights_count_in_the_norm_of_the_google_profiles_alone() -> None:
    batch = toy_batch()
    for name in PROFILES:
        learner = of_profile(name)
        descend = Session(learner, toy_stream(), plan_of(name)).make_descent()  # may grow the head by drawn rows
        result = transcription(learner, viewed(learner, batch), batch.y)
        with descend.measuring():
            descend(learner.loss(batch))
        with_frozen = clipped(result.gradients, result.frozen, 1.0)["bias"].norm()
        without = clipped(result.gradients, [], 1.0)["bias"].norm()
        assert with_frozen < 0.9 * without
        assert learner.head.bias.grad is not None
        expected = with_frozen if name in ("google-v1", "google-v2") else without
        assert float(learner.head.bias.grad.norm()) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("name", PROFILES)
def test_the_backbone_stays_frozen_through_a_stream(name: str) -> None:
    values = profile(name)
    backbone = small_backbone()
    before = bytes_of(backbone)
    learner = L2P(backbone, ImageView(8, **values.view), **values.learner)
    for _ in (session := Session(learner, toy_stream(per_class=6), plan_of(name, epochs=2))):
        assert bytes_of(backbone) == before
        assert all(parameter.grad is None for parameter in backbone.parameters())
        if session.descend is not None and session.descend.optimiser is not None:
            moved = {id(p) for group in session.descend.optimiser.param_groups for p in group["params"]}
            trained = {id(parameter) for parameter in parameters_of(learner).values()}
            assert moved == trained
            assert {id(parameter) for parameter in session.descend.optimiser.state} == trained


def test_a_norm_over_frozen_weights_does_not_thaw_them_for_others() -> None:
    backbone = small_backbone()
    paper, google = L2P(backbone, ImageView(8)), L2P(backbone, ImageView(8))
    Session(google, toy_stream(), Plan(clip_frozen=True)).make_descent()
    descend = Session(paper, toy_stream(), Plan()).make_descent()
    assert {id(p) for p in descend.parameters} == {id(p) for p in parameters_of(paper).values()}


def test_the_backbone_is_shared_and_never_in_training_mode() -> None:
    backbone = small_backbone()
    learner = L2P(backbone, ImageView(8)).train()
    assert learner.backbone is backbone
    assert not any(module.training for module in backbone.modules())
    assert not any(parameter.requires_grad for parameter in backbone.parameters())


def test_a_given_store_of_features_is_used_also_while_it_is_empty() -> None:
    backbone = small_backbone()
    store = FrozenFeatures(backbone, ImageView(8))
    learners = [L2P(backbone, ImageView(8)) for _ in range(2)]
    for learner in learners:
        learner.frozen = store
    assert all(learner.frozen is store for learner in learners)
    for wrong in (FrozenFeatures(backbone, ImageView(8, "symmetric")), FrozenFeatures(small_backbone(), ImageView(8))):
        with pytest.raises(ValueError, match="frozen features"):
            learners[0].frozen = wrong


@pytest.mark.parametrize("policy", ["balanced", "reservoir"])
@pytest.mark.parametrize("loss_classes", ["current", "seen"])
def test_rehearsal_takes_the_mean_over_new_and_replayed_images(policy: str, loss_classes: str) -> None:
    learner = l2p(capacity=9, policy=policy, loss_classes=loss_classes)
    descend = Descent([p for p in learner.parameters() if p.requires_grad])
    learner.step(toy_batch(12, classes=5, seed=2), descend)
    assert learner.memory is not None
    assert len(learner.memory) == 9
    batch = toy_batch(8)
    state = learner.generator.get_state()
    replayed = learner.memory.sample(8)
    learner.generator.set_state(state)
    assert len(replayed.y) == len(batch.y)
    new_classes = (0, 1, 2) if loss_classes == "current" else (0, 1, 2, 3, 4)
    new = transcription(learner, learner.view.plain(batch.x), batch.y, classes=new_classes)
    old = transcription(learner, learner.view.plain(replayed.x), replayed.y, classes=(0, 1, 2, 3, 4))
    gradients = {name: (new.gradients[name] + old.gradients[name]) / 2 for name in new.gradients}
    assert_loss_and_gradients(learner, batch, new._replace(loss=(new.loss + old.loss) / 2, gradients=gradients))


def test_the_first_batch_of_a_rehearsal_has_nothing_to_replay() -> None:
    learner, batch = l2p(capacity=9, loss_classes="seen"), toy_batch(6)
    expected = transcription(learner, learner.view.plain(batch.x), batch.y, classes=(0, 1, 2, 3, 4))
    assert_loss_and_gradients(learner, batch, expected)


def test_memory_takes_each_example_once_and_after_the_step() -> None:
    learner, batch = l2p(capacity=50, loss_classes="seen"), toy_batch(6)
    descend = Descent([p for p in learner.parameters() if p.requires_grad])
    assert learner.memory is not None
    learner.step(batch, descend)
    learner.step(batch._replace(fresh=False), descend)
    assert learner.memory.rows is not None
    assert learner.memory.rows.ids.tolist() == batch.ids.tolist()
    assert torch.equal(learner.memory.rows.x, batch.x)


def test_replayed_images_may_be_told_from_classes_that_are_still_to_come() -> None:
    found = {}
    for classes in ("seen", "all"):
        learner = L2P(small_backbone(), ImageView(8), capacity=12, replay_classes=classes)
        session = Session(learner, toy_stream(), SHORT)
        found[classes] = len(learner.head.bias), [step.loss for step in session]
    assert found["seen"][0] == 0
    assert found["all"][0] == 6, "the head has rows for all from the start"
    assert found["seen"][1] != found["all"][1]


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("replay_classes", "current"),
        ("order", "prompts-last"),
        ("position", "own"),
        ("query_view", "other"),
        ("head_start", "ones"),
        ("top_k", 11),
    ],
)
def test_bad_values_raise(keyword: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{keyword} = "):
        L2P(small_backbone(), ImageView(8), **{keyword: value})  # type: ignore[arg-type]


def after_a_stream(name: str) -> tuple[L2P, Stream]:
    stream, values = toy_stream(per_class=6), profile(name)
    learner = L2P(small_backbone(), ImageView(8, **values.view), **values.learner)
    for _ in Session(learner, stream, plan_of(name, epochs=2)):
        pass
    return learner, stream


def split_keys(learner: L2P, batch: Batch) -> None:
    """Half of the keys near the first image's query, half near the second's."""
    queries = learner.frozen(batch)
    noise = torch.randn(10, queries.shape[1], generator=generator())
    assert learner.pool.learned_keys is not None
    learner.pool.learned_keys.data.copy_(queries[[0] * 5 + [1] * 5] + 0.01 * noise)


def test_predictions_of_the_paper_do_not_depend_on_test_batches() -> None:
    learner, stream = after_a_stream("paper")
    test = concatenate(stream.tests)
    everything = test.batch(slice(None))
    classes = predict(learner, everything)
    with torch.no_grad():
        together = learner.logits(everything)
        for size in (1, 3, 16):
            parts = list(test.batches(size))
            torch.testing.assert_close(torch.cat([learner.logits(part) for part in parts]), together)
            assert torch.equal(torch.cat([predict(learner, part) for part in parts]), classes)
        order = torch.randperm(len(test), generator=generator())
        torch.testing.assert_close(learner.logits(test.batch(order)), together[order])


@torch.no_grad()
@pytest.mark.parametrize("name", PROFILES)
def test_a_vote_lets_batch_mates_decide(name: str) -> None:
    learner = of_profile(name).eval()
    some = toy_examples(8, 1, classes=2)
    batch = some.batch(torch.tensor([0, 8]))
    split_keys(learner, batch)
    mates = some.batch(torch.tensor([0, 8, 9, 10, 11]))  # one image of the first class among four of the second
    moved = (learner.logits(mates)[0] - learner.logits(some.batch(torch.tensor([0])))[0]).abs().max()
    if name == "paper":
        assert moved < 1e-5
    else:
        assert moved > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("name", PROFILES)
def test_testing_is_never_augmented_nor_counted(name: str) -> None:
    learner, batch = of_profile(name).eval(), toy_batch(6)
    before, state = learner.pool.counts.clone(), learner.generator.get_state()
    first = learner.logits(batch)
    assert torch.equal(first, learner.logits(batch))
    assert torch.equal(learner.pool.counts, before)
    assert torch.equal(learner.generator.get_state(), state)


@pytest.mark.parametrize("query_view", ["same", "plain"])
def test_the_query_is_of_the_view_or_of_the_plain_image(query_view: str) -> None:
    learner, batch = l2p(RANDOM_VIEW, query_view=query_view), toy_batch(8)
    x = viewed(learner, batch)
    plain = learner.view.plain(batch.x)
    assert not torch.equal(x, plain)
    assert_loss_and_gradients(
        learner, batch, transcription(learner, x, batch.y, query=x if query_view == "same" else plain)
    )
    assert len(learner.frozen) == (0 if query_view == "same" else 8)


@pytest.mark.parametrize("query_view", ["same", "plain"])
def test_a_test_query_is_of_the_plain_image(query_view: str) -> None:
    learner, batch = l2p(RANDOM_VIEW, query_view=query_view).eval(), toy_batch(8)
    chosen = transcription(learner, learner.view.plain(batch.x), batch.y).chosen
    assert [sorted(row) for row in learner.prompted(batch, learner.inputs(batch))[1].indices.tolist()] == chosen
    assert len(learner.frozen) == 8  # read from the store from now on


def test_a_fixed_view_queries_each_example_once() -> None:
    learner, batch = l2p(), toy_batch(8)
    learner.loss(batch)
    learner.backbone.features = None  # type: ignore[method-assign, assignment]
    learner.loss(batch)
    learner.eval().logits(batch)


def test_diversify_needs_boundaries() -> None:
    learner = L2P(small_backbone(), ImageView(8), diversify=True, loss_classes="seen")
    objection = refusal(learner, toy_schedule())
    assert objection is not None
    assert objection.startswith("diversify = True")
    learner.check(toy_stream())
    learner.check(toy_domains())
    with pytest.raises(ValueError, match=r"^diversify = True"):
        Session(learner, toy_schedule(), Plan(epochs=1))


def test_the_frequency_is_brought_up_to_date_between_tasks() -> None:
    stream = toy_stream(per_class=6)
    learner = L2P(small_backbone(), ImageView(8), pool_size=20, top_k=4, diversify=True)
    shares = torch.zeros(20)
    for step in Session(learner, stream, Plan(epochs=2, batch_size=4)):
        if step.record is not None:
            shares = learner.pool.counts / learner.pool.counts.sum()
        assert torch.equal(learner.pool.frequency, shares)
    assert int(learner.pool.counts.sum()) == 2 * 4 * sum(len(experience.train) for experience in stream.experiences)


@pytest.mark.parametrize("name", ["paper", "google-v2"])
def test_diagnostics_are_counted_over_training_and_tests(name: str) -> None:
    learner, tests = of_profile(name), [toy_examples(4, 1, classes=2), toy_examples(9, 2, classes=3)]
    training = [0] * 10
    for seed in (3, 4):
        batch = toy_batch(18, seed=seed)
        for indices in transcription(learner, viewed(learner, batch), batch.y).chosen:
            for index in indices:
                training[index] += 1
        learner.loss(batch)
    learner.eval()
    testing = [[0] * 10 for _ in tests]
    for i, test in enumerate(tests):
        batch = test.batch(slice(None))
        for indices in transcription(learner, learner.view.plain(batch.x), batch.y).chosen:
            for index in indices:
                testing[i][index] += 1
    keys = learner.pool.keys.detach().double()
    cosines = [[float(a @ b / (a.norm() * b.norm())) for b in keys] for a in keys]
    learner.logits(toy_batch(5, seed=9))
    notes = [learner.after_test_set()]  # of nothing that is tested
    for test in tests:
        learner.logits(test.batch(slice(None)))
        notes.append(learner.after_test_set())
    diagnostics = learner.diagnostics(notes[1:])
    for found, expected in zip(diagnostics.pop("key_similarity"), cosines, strict=True):
        assert found == pytest.approx(expected, abs=0.00051)
    assert diagnostics == {
        "chosen_in_training": training,
        "chosen_in_tests": testing,
        "prompts_in_use": sum(any(counts[index] for counts in testing) for index in range(10)),
        "vote": 0 if name == "paper" else 16,
    }


def test_a_record_does_not_list_a_large_pool() -> None:
    learner, batch = l2p(pool_size=LISTED + 1), toy_batch()
    learner.add_classes(range(3))
    learner.eval().logits(batch)
    chosen = learner.pool.chosen_at_test.clone()
    note = learner.after_test_set()
    assert torch.equal(note.to_dense(), chosen)
    assert note.is_sparse, "or the notes of a thousand test sets would be as large as a thousand pools"
    used = int((chosen > 0).sum())
    assert learner.diagnostics([note]) == {"pool_size": LISTED + 1, "prompts_in_use": used, "vote": 0}
    assert learner.diagnostics([note, note]) == learner.diagnostics([note])
    assert learner.diagnostics([])["prompts_in_use"] == 0


def test_a_record_does_not_list_prompts_by_many_test_sets() -> None:
    learner = l2p()
    notes = [torch.eye(10, dtype=torch.long)[number % 4] for number in range(LISTED + 1)]
    assert len(learner.diagnostics(notes[1:])["chosen_in_tests"]) == LISTED
    assert learner.diagnostics(notes) == {"pool_size": 10, "prompts_in_use": 4, "vote": 0}


@pytest.mark.parametrize("start_from", ["scaled", "tokens"])
def test_the_first_batch_starts_the_prompts_once(start_from: str) -> None:
    learner, batch = l2p(start=(-1.0, 1.0), start_from=start_from), toy_batch()
    learner.add_classes(range(3))
    learner.eval().logits(batch)
    assert learner.pool.waits, "only training starts it"
    learner.train().loss(batch)
    unit, prompts = learner.pool.unit.clone(), learner.pool.prompts.detach().clone()
    tokens = learner.backbone.embed(viewed(learner, batch))[:, 1:]
    torch.testing.assert_close(unit, tokens.square().mean().sqrt())
    learner.loss(toy_batch(seed=2))
    assert torch.equal(learner.pool.unit, unit)
    assert torch.equal(learner.pool.prompts, prompts)


@pytest.mark.parametrize("start_from", ["scaled", "tokens"])
@pytest.mark.parametrize(("distilled", "registers"), [(False, 4), (True, 0), (True, 4)])
def test_only_patches_start_the_prompts(distilled: bool, registers: int, start_from: str) -> None:
    """Neither [class] nor the token of distillation nor registers, which a model may have much larger."""
    vit = random_vit(distilled=distilled, registers=registers).eval()
    learner = L2P(vit, ImageView(32), start=(-1.0, 1.0), start_from=start_from)
    x = torch.randint(0, 256, (6, 3, 32, 32), generator=generator(), dtype=torch.uint8)
    learner.add_classes(range(3))
    learner.train().loss(Batch(x, torch.arange(6) % 3, torch.arange(6)))
    with torch.no_grad():
        patches = vit.embed(ImageView(32).plain(x))[:, -((32 // vit.patch_size) ** 2) :]
    torch.testing.assert_close(learner.pool.unit, patches.square().mean().sqrt())
    if start_from == "tokens":
        started = (learner.pool.prompts * learner.pool.unit).detach().flatten(0, 1)
        apart = (started[:, None] - patches.flatten(0, 1)).abs().amax(dim=2)
        assert apart.min(dim=1).values.max() < 1e-4, "each is the token of a patch"


@pytest.mark.parametrize("start_from", ["scaled", "tokens"])
def test_a_start_from_a_batch_resumes(start_from: str) -> None:
    values: dict[str, Any] = {"start": (-1.0, 1.0), "start_from": start_from}
    first, second = l2p(**values), l2p(**values)
    first.add_classes(range(3))
    first.train().loss(toy_batch())
    restore(second, state(first))
    assert not second.pool.waits
    assert torch.equal(first.train().loss(toy_batch(seed=2)), second.train().loss(toy_batch(seed=2)))
