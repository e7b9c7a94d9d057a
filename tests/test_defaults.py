"""The command line, Lightning and plain Python have the same defaults."""

import inspect
from functools import cache
from inspect import Parameter

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf

from lightning_fl import Federation
from lightning_fl.contract import conf

GROUPS = ["adversary", "aggregator", "client", "data", "loss", "model", "partition", "server"]
# f is the user's to say, in plain Python always; these have no default anywhere, or are another part of the run.
NEEDED = {"f", "rule", "client", "path", "params", "dataset"}


@cache
def leaf(group, name):
    """One file's own settings as the command line has them when nothing else is chosen."""
    node = OmegaConf.load(conf.CONF / group / f"{name}.yaml")
    node.pop("defaults", None)
    return OmegaConf.to_container(OmegaConf.create({group: node, "data_dir": "data", "seed": 0}), resolve=True)[group]


@cache
def taken(kind):
    """What a class takes, what it passes on to its base included."""
    found = {}
    for owner in kind.__mro__[:-1]:
        if "__init__" not in vars(owner):
            continue
        ours = dict(list(inspect.signature(vars(owner)["__init__"]).parameters.items())[1:])
        found = ours | found
        if not any(p.kind == Parameter.VAR_KEYWORD for p in ours.values()):
            break
    return {name: p.default for name, p in found.items() if p.kind != Parameter.VAR_KEYWORD}


FILES = [
    (group, name)
    for group in GROUPS
    for name in conf.names(group)
    if leaf(group, name).get("_target_", "torch.").startswith("lightning_fl.")
]
VARIANTS = {  # files with other settings than their class's own file
    *[
        ("adversary", name)
        for name in ("alie", "gaussian_models", "gaussian_updates", "label_flip_to_one", "raga_lie", "zero")
    ],
    *[
        ("client", "raga"),
        ("client", "rfa"),
        ("data", "image_folder"),
        ("partition", "dirichlet_clients"),
        ("aggregator", "norm_bounding"),
    ],
    *[("model", name) for name in ("cifar_mlp", "raga_mlp", "lenet_cifar", "byzfl_mnist", "byzfl_cifar", "resnet18")],
}


def plain(value):
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(("group", "name"), FILES)
def test_class_and_file_have_the_same_defaults(group, name):
    settings = dict(leaf(group, name))
    defaults = taken(get_object(settings.pop("_target_")))
    settings.pop("_partial_", None)
    assert settings.keys() <= defaults.keys()
    assert {key for key, default in defaults.items() if default is Parameter.empty} <= NEEDED
    if (group, name) in VARIANTS:
        return
    ours = {key: plain(defaults[key]) for key in settings.keys() - NEEDED}
    if group == "data":  # one seed: what follows it is None
        assert ours.pop("partition_seed") is None
        settings.pop("partition_seed")
        if settings.get("corruption_cache") == "data/corrupted":
            assert ours.pop("corruption_cache") is None
            settings.pop("corruption_cache")
    assert ours == {key: value for key, value in settings.items() if key not in NEEDED}


@pytest.mark.parametrize("name", conf.names("aggregator"))
def test_f_is_one_setting_of_a_run(name):
    assert conf.compose(f"aggregator={name}", "f=7").aggregator.get("f", 7) == 7


def test_every_class_has_a_file_of_its_own():
    """So that no class's defaults are compared with a variant's alone."""
    compared = {leaf(group, name)["_target_"] for group, name in FILES if (group, name) not in VARIANTS}
    assert compared == {leaf(group, name)["_target_"] for group, name in FILES}


def test_federation_has_the_defaults_of_the_command_line():
    settings = dict(conf.compose().federation)
    del settings["_target_"]
    defaults = {name: p.default for name, p in inspect.signature(Federation).parameters.items()}
    assert defaults == settings
