"""Parts that cannot make a run are refused before it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from lightning_fl import SettingError, TensorData
from lightning_fl.checks import check_model, check_optimizer, check_trainer, parameter_type, refuse_hidden_state
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import world
from lightning_fl.partition.iid import Iid
from lightning_fl.run.assemble import make_seeded
from lightning_fl.samples import Samples
from tests import training


def data():
    """Of three classes in the plane."""
    loaded = training.data()
    loaded.setup("fit")
    return loaded


class Counting(nn.Linear):
    """Counts its calls in training."""

    def __init__(self):
        super().__init__(2, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, inputs):
        if self.training:
            self.calls += 1
        return super().forward(inputs)


class Pair(nn.Linear):
    """Gives more than one tensor."""

    def forward(self, inputs):
        return super().forward(inputs), inputs


class Squeezed(nn.Linear):
    """Loses the batch dimension of a single sample."""

    def forward(self, inputs):
        return super().forward(inputs).squeeze()


class Losing(nn.Linear):
    """Gives a loss."""

    def forward(self, inputs):
        return super().forward(inputs).square().mean()


class Mean(nn.Linear):
    """Averages its losses."""

    def sample_losses(self, outputs, targets):
        return F.cross_entropy(outputs, targets)


class Crossed(nn.Linear):
    """Compares each sample with each other."""

    def sample_losses(self, outputs, targets):
        return (outputs[:, :1] - targets) ** 2


class Stopped(nn.Linear):
    """Has no gradient."""

    def forward(self, inputs):
        return super().forward(inputs).detach()


class Wordy(nn.Linear):
    """Asserts what it takes, over two lines."""

    def forward(self, inputs):
        raise AssertionError(f"Wrong height!\nExpected 224, got {inputs.shape[1]}")


class Clipping(nn.Linear):
    """Keeps its weights small by itself."""

    def forward(self, inputs):
        self.weight.data.clamp_(-0.01, 0.01)
        return super().forward(inputs)


class Masked(nn.Linear):
    """Needs more than inputs."""

    def forward(self, inputs, mask):
        return super().forward(inputs * mask)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Clipping(2, 3), r"Clipping changes its parameter weight in its forward, as max_norm and \.data do"),
        (Counting(), "Counting changes its buffer calls in training, which clients do not upload"),
        (spectral_norm(nn.Linear(2, 3)), "changes its buffer parametrizations.weight.0._u in training"),
        (
            Wordy(2, 3),
            r"Wordy does not take inputs of shape \(2,\): Wrong height! Expected 224, got 2; choose",
        ),
        (Masked(2, 3), r"Masked does not take inputs of shape \(2,\): .*argument: 'mask'; choose another model"),
        (world.model().requires_grad_(False), "Linear has no parameter that is trained"),
        (Pair(2, 3), r"Pair must give one tensor, \(batch, classes\), got tuple"),
        (Squeezed(2, 3), r"Squeezed must give .*, \(1, 3\) for one, got shape \(3,\); keep the batch"),
        (
            Losing(2, 3),
            r"Losing must give one row of 3 .* got shape \(\); give logits; the loss is a setting .*sample_losses",
        ),
        (
            nn.Linear(2, 5),
            r"the data have 3 classes, Linear gives outputs of shape \(5,\); set model.n_classes=3, or n_classes=5 of",
        ),
        (Mean(2, 3), r"Mean.sample_losses must give one loss per sample, shape \(1,\), got shape \(\);"),
        (Crossed(2, 3), r"Crossed.sample_losses must give one loss per sample, shape \(1,\), got shape \(1, 1\)"),
        (Stopped(2, 3), "Stopped cannot be trained: element 0 of tensors does not require grad"),
        (
            nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5)).eval(),
            r"Sequential has dropout and is in evaluation mode, which turns it off; call train\(\) of it",
        ),
    ],
)
def test_refuses_a_model_that_cannot_be_trained_as_it_is(model, message):
    with pytest.raises(SettingError, match=message):
        check_model(model, Gradient(), data().train)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of embedding bags in vmap
@pytest.mark.parametrize("split", [0, 1])
def test_a_model_must_know_the_largest_token(split):
    tokens, y = torch.ones(12, 3, dtype=torch.int64), torch.arange(12) % 2
    pairs = [(tokens.clone(), y), (tokens.clone(), y)]
    pairs[split][0][5, 1] = 9
    words = TensorData(*pairs, Iid(), n_clients=3)
    words.setup("fit")
    with pytest.raises(SettingError, match="Sequential does not take inputs of shape"):
        check_model(nn.Sequential(nn.EmbeddingBag(9, 4), nn.Linear(4, 2)), Gradient(), words.train, words.test)
    check_model(nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, 2)), Gradient(), words.train, words.test)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of embedding bags in vmap
def test_a_model_must_know_tokens_below_0():
    tokens = torch.ones(12, 3, dtype=torch.int64)
    tokens[5, 1] = -1
    words = TensorData((tokens, torch.arange(12) % 2), (tokens, torch.arange(12) % 2), Iid(), n_clients=3)
    words.setup("fit")
    with pytest.raises(SettingError, match="here -1 to 1, are tokens from 0"):
        check_model(nn.Sequential(nn.EmbeddingBag(9, 4), nn.Linear(4, 2)), Gradient(), words.train)


def test_samples_may_be_of_one_class():
    check_model(nn.Linear(2, 3), Gradient(), Samples(torch.randn(4, 2), torch.ones(4, dtype=torch.int64), 3))


def test_refuses_batch_statistics():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    with pytest.raises(SettingError, match=r"Sequential keeps batch statistics in 1 \(BatchNorm1d\).*use GroupNorm"):
        refuse_hidden_state(model)


def test_batch_statistics_that_are_frozen_are_fine():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3).eval())
    refuse_hidden_state(model)
    check_model(model, Gradient(), data().train)


def expanded():
    layer = nn.Linear(2, 3)
    layer.bias = nn.Parameter(torch.zeros(1).expand(3))
    return layer


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.jit.script(nn.Linear(2, 3)), "plain modules.*got itself .RecursiveScriptModule.; give the mod"),
        (lambda: nn.Sequential(nn.DataParallel(nn.Linear(2, 3))), "plain modules.*got 0 .DataParallel.; give the mod"),
        (lambda: nn.Sequential(nn.LazyLinear(3)), "Sequential does not know the size of 0 .LazyLinear. yet; call it"),
        (expanded, r"Linear has one number in many places of bias \(expand\(\)\).*; add .clone\(\) where it is made"),
    ],
    ids=["scripted", "parallel", "lazy", "expanded"],
)
def test_refuses_modules_that_no_client_can_train(make, message):
    with pytest.raises(SettingError, match=message):
        training.module().__class__(make())


@pytest.mark.parametrize("layer", [nn.BatchNorm1d, nn.BatchNorm2d])
def test_refuses_layers_that_mix_samples(layer):
    with pytest.raises(SettingError, match=r"mixes the samples of a batch in 0 \(BatchNorm.*use GroupNorm"):
        refuse_hidden_state(nn.Sequential(layer(3, track_running_stats=False)))
    refuse_hidden_state(nn.Sequential(nn.InstanceNorm2d(3), nn.GroupNorm(1, 3)))


def hooked(register):
    model = nn.Sequential(nn.Linear(2, 3))
    getattr(model[0].weight, register)(lambda gradient: None)
    return model


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_refuses_gradient_hooks_before_a_copy_loses_them(register):
    message = "parameters without gradient hooks, .* got one on 0.weight of Sequential"
    with pytest.raises(SettingError, match=message):
        refuse_hidden_state(hooked(register))
    with pytest.raises(SettingError, match=message):
        make_seeded(hooked(register), 0)


@pytest.mark.slow  # imports torch's compiler
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`")
def test_refuses_what_is_compiled():
    inside, in_place = nn.Sequential(torch.compile(nn.Linear(2, 3))), nn.Linear(2, 3)
    in_place.compile()
    for model, where in [(torch.compile(nn.Linear(2, 3)), "itself"), (inside, "0"), (in_place, "itself")]:
        with pytest.raises(SettingError, match=rf"not compiled, got torch.compile in {where} .*_orig_mod"):
            refuse_hidden_state(model)


def test_a_buffer_of_nan_that_nobody_writes_is_fine():
    class Masked(nn.Linear):
        def __init__(self):
            super().__init__(2, 3)
            self.register_buffer("mask", torch.tensor([torch.nan, 1.0]))

    data = training.data()
    data.setup()
    check_model(Masked(), Gradient(), data.train)


def test_half_precision_is_refused():
    with pytest.raises(SettingError, match=r"precision must be 32-true, 64-true .*, got bf16-true"):
        check_trainer(training.trainer(precision="bf16-true"))


def test_a_type_of_parameters_is_refused_by_name():
    complex_, half, head = nn.Linear(2, 3), nn.Linear(2, 3).bfloat16(), nn.Linear(2, 3)
    complex_.bias = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    head.bias = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    for model, got in [
        (complex_, "weight of float32, bias of complex64"),
        (half, "bias of bfloat16"),
        (head, "weight of float32, bias of float64"),
    ]:
        with pytest.raises(SettingError, match=f"trained parameters of one type, float32 or float64, got {got}; call"):
            parameter_type(model)
        model.requires_grad_(False)
    assert parameter_type(nn.Sequential(half, nn.Linear(3, 3))) == torch.float32


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_epochs": 3}, "^max_epochs is not for federated rounds, got 3"),
        ({"min_steps": 2}, "^min_steps is not"),
        ({"limit_train_batches": 2}, "^limit_train_batches is not"),
        ({"limit_val_batches": 1}, "^limit_val_batches is not for federated rounds, got 1: every evaluation is of all"),
        ({"limit_val_batches": 0.5}, "^limit_val_batches is not"),
        ({"overfit_batches": 2}, "^limit_train_batches is not"),
        ({"fast_dev_run": True}, "^fast_dev_run is not"),
        ({"max_steps": -1}, "needs its number of rounds"),
    ],
)
def test_a_trainer_made_by_hand_is_refused_what_the_command_line_refuses(settings, message):
    settings = {"rounds": settings.pop("max_steps", 2), **settings}
    with pytest.raises(SettingError, match=message):
        training.fit(training.trainer(**settings))


def test_a_trainer_may_be_told_what_it_does_anyway():
    settings = {"max_epochs": -1, "limit_val_batches": 0, "limit_train_batches": 1.0, "accumulate_grad_batches": 1}
    trainer = training.trainer(rounds=2, **settings)
    training.fit(trainer)
    assert trainer.global_step == 2


def test_an_optimizer_gets_all_parameters_in_any_groups():
    def halves(parameters):
        return torch.optim.SGD([{"params": list(parameters)[:1]}, {"params": list(parameters)[1:], "lr": 0.5}], lr=1.0)

    module = training.module()
    module.make_optimizer = halves
    before = [parameter.detach().clone() for parameter in module.model.parameters()]
    training.fit(training.trainer(rounds=1), module)
    moved = [parameter - old for parameter, old in zip(module.model.parameters(), before, strict=True)]
    assert all(change.abs().max() > 0 for change in moved)
    with pytest.raises(SettingError, match="must train every parameter that requires a gradient, got 1 of 2; give it"):
        check_optimizer(lambda parameters: torch.optim.SGD(parameters[:1]), None, [torch.ones(3, 2), torch.ones(3)])


def test_a_run_refuses_an_optimizer_that_leaves_parameters_out():
    module = training.module()
    module.make_optimizer = lambda parameters: torch.optim.SGD(list(parameters)[:1], lr=0.1)
    with pytest.raises(SettingError, match="must train every parameter that requires a gradient, got 1 of 2"):
        training.fit(training.trainer(rounds=1), module)
