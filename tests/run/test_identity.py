"""Names of results, and what counts for them."""

from pathlib import Path
from types import NoneType

import pytest
import yaml
from hydra.utils import get_object
from omegaconf import OmegaConf

from lightning_fl.arguments import arguments, takers
from lightning_fl.ranges import options, type_hints
from lightning_fl.run import identity
from lightning_fl.run.check import checked
from lightning_fl.run.config import GROUPS, choices, compose, file_of, spelled
from lightning_fl.run.identity import alike, comparable, counted, essential
from tests import saved


def name(*overrides):
    return identity.identity(compose(spelled(overrides)))


def test_a_name_is_that_of_the_result():
    first = name("experiment=boba_mnist")
    assert len(first) == 16
    assert int(first, 16) >= 0
    for same in [
        *["data_dir=elsewhere", "data.root=elsewhere", "reference_dir=elsewhere", "logger=none"],
        "updates_dir=elsewhere",
        *["checkpoint_every=3", "trainer.enable_progress_bar=false", "trainer.log_every_n_steps=7"],
        *["trainer.accelerator=cpu", "trainer.devices=2", "+trainer.strategy=ddp", "trainer.num_nodes=2"],
        *[
            "+aggregator=boba",
            "seed=0",
            "twin=null",
            "trainer.precision=32-true",
            "callbacks=[model_checkpoint,learning_rate_monitor]",
            "+trainer.profiler=simple",
        ],
    ]:
        assert name("experiment=boba_mnist", same) == first, same
    for other in [
        *["seed=1", "twin=1", "aggregator=krum", "server.lr=0.2", "trainer.max_steps=3", "adversary=none"],
        *["trainer.val_check_interval=7", "reference=run", "trainer.precision=64-true"],
        "callbacks=early_stopping",
    ]:
        assert name("experiment=boba_mnist", other) != first, other


def test_a_name_does_not_depend_on_the_order_of_settings():
    turned = {}
    for key, value in reversed(saved.CONFIG.items()):
        turned[key] = dict(reversed(value.items())) if isinstance(value, dict) else value
    assert list(turned) != list(saved.CONFIG)
    assert identity.name_of(essential(turned)) == identity.name_of(essential(saved.CONFIG))


def test_attackers_that_do_not_attack_and_options_without_a_value_do_not_count():
    assert name("adversary=none", "federation.n_byzantine=3") == name("adversary=none")
    assert name("federation.n_byzantine=3") != name()
    config = checked([])
    first = identity.identity(config)
    OmegaConf.set_struct(config, False)
    config.data.later = None
    config.later = {"option": None}
    assert identity.identity(config) == first
    config.later.option = False
    assert identity.identity(config) != first


def test_what_other_settings_take_from_the_number_of_attackers_is_that_of_nobody():
    """experiment=raga_mnist_lenet has f: ${federation.n_byzantine}."""
    same = [name("experiment=raga_mnist_lenet", "adversary=none", f"federation.n_byzantine={b}") for b in (0, 10)]
    assert same[0] == same[1]


def test_a_name_outlives_the_version_but_not_the_numbers(monkeypatch):
    first = name()
    monkeypatch.setattr("lightning_fl.__version__", "7.0.0")
    assert name() == first
    monkeypatch.setattr(identity, "RESULTS", "7.0.0")
    assert name() != first


def test_where_null_is_another_value_than_none_at_all_both_have_a_name():
    for group in GROUPS:
        for choice in choices(group):
            target = str((yaml.safe_load(file_of(group, choice).read_text()) or {}).get("_target_", ""))
            kind = get_object(target) if target.startswith("lightning_fl.") else None
            expected = {}
            for function, parameters in takers(kind) if isinstance(kind, type) else ():
                for p in parameters:
                    null = NoneType in options(type_hints(function).get(p.name))
                    if null and p.default not in (None, p.empty):
                        expected[p.name] = arguments(kind)[p.name].default
            said = identity.said({"_target_": target})
            assert {key: value for key, value in said.items() if not key.startswith("_")} == expected, target
    assert len({name("client=rsa", more) for more in ("seed=0", "client.batch_size=null", "client.batch_size=3")}) == 3
    assert name("client=rsa", "~client.batch_size") == name("client=rsa")


def test_a_class_whose_numbers_changed_renames_its_own_runs_alone(monkeypatch):
    before = {rule: name(f"aggregator={rule}") for rule in ("krum", "bucketing_krum", "median")}
    monkeypatch.setitem(identity.REVISED, "lightning_fl.aggregator.krum.Krum", "7.0.0")
    after = {rule: name(f"aggregator={rule}") for rule in before}
    assert [rule for rule in before if before[rule] != after[rule]] == ["krum", "bucketing_krum"]


def test_a_setting_added_with_its_old_meaning_changes_no_name(monkeypatch):
    """Of a rule, of a rule inside another one, and of no group."""
    config = checked(["aggregator=bucketing_krum"])
    first = identity.identity(config)
    OmegaConf.set_struct(config, False)
    config.aggregator.rule.ties, config.aggregator.shuffle, config.horizon = "first", True, 3
    assert identity.identity(config) != first
    krum, bucketing = config.aggregator.rule._target_, config.aggregator._target_
    added = {
        krum: identity.ADDED[krum] | {"ties": "first"},
        bucketing: {"shuffle": True},
        "": {"horizon": 3},
    }
    monkeypatch.setattr(identity, "ADDED", identity.ADDED | added)
    assert identity.identity(config) == first
    for key, value in [("aggregator.rule.ties", "last"), ("aggregator.shuffle", False), ("horizon", 4)]:
        other = config.copy()
        OmegaConf.update(other, key, value)
        assert identity.identity(other) != first, key
    config.model.ties = "first"  # of another class
    assert identity.identity(config) != first


@pytest.mark.parametrize(
    "change",
    [
        {"aggregator___target_": "a_rule_of_mine.Mine"},
        {"aggregator___target_": "a_rule_of_mine.Mine.make"},
        {"model__parts": [{"_target_": "a_rule_of_mine.Mine"}]},
    ],
)
def test_a_class_of_ones_own_is_another_one_once_it_is_edited(tmp_path, monkeypatch, change):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "a_rule_of_mine.py"
    names = []
    for line in ["SCALE = 1", "SCALE = 2", "SCALE = 1"]:
        file.write_text(line)
        config = saved.changed(saved.CONFIG, **change)
        names.append(identity.name_of(essential(config)))
    assert names[0] == names[2] != names[1]


def test_of_a_file_the_content_counts_not_the_place(tmp_path):
    def name_with(text, place):
        (tmp_path / place).write_text(text)
        return name("partition=from_file", f"partition.path={tmp_path / place}")

    first = name_with("0,1", "p.csv")
    assert name_with("0,1", "q.csv") == first
    assert name_with("0,1,2", "p.csv") != first
    assert name_with("0,1", "p.csv") == first
    assert name("partition=from_file", f"partition.path={tmp_path / 'missing.csv'}") != first


def test_of_a_file_without_an_ending_too_but_not_of_a_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    owners, word = [], []
    for text in ["0,1", "0,1,2"]:
        Path("owners").write_text(text)
        Path("uniform").write_text(text)
        owners.append(name("partition=from_file", "partition.path=owners"))
        word.append(name("federation.data_weights=uniform"))
    assert owners[0] != owners[1]
    assert word[0] == word[1]


def test_images_in_a_folder_are_chosen_by_root():
    images = ("data=torchvision", "data.dataset=ImageFolder")
    assert name(*images, "data.root=a") != name(*images, "data.root=b")
    assert name("data=torchvision", "data_dir=a") == name("data=torchvision", "data_dir=b")
    assert name("data=mnist", "data.root=a") == name("data=mnist", "data.root=b")


def test_what_is_installed_is_not_one_s_own_wherever_it_lies(tmp_path, monkeypatch):
    elsewhere = tmp_path / "lib" / "site-packages"
    elsewhere.mkdir(parents=True)
    (elsewhere / "an_installed_rule.py").write_text("")
    monkeypatch.syspath_prepend(elsewhere)
    for target in ["an_installed_rule.Mine", "torch.optim.SGD", "pytorch_lightning.Trainer", "collections.Counter"]:
        installed = saved.changed(saved.CONFIG, aggregator___target_=target)
        assert "_code_" not in essential(installed)["aggregator"], target


def test_what_counts():
    config = saved.changed(saved.CONFIG, data__corruption_cache="x", trainer__accelerator="gpu", ckpt_path="x")
    found = counted(config)
    assert found["trainer"] == {"_target_": "pytorch_lightning.Trainer", "max_steps": 4}
    assert set(config) - set(found) == {"data_dir", "run_dir", "ckpt_path"}
    assert set(config["data"]) - set(found["data"]) == {"root", "corruption_cache"}
    assert found["federation"]["n_byzantine"] == 2
    assert counted(config | {"adversary": None})["federation"]["n_byzantine"] == 0
    assert config["trainer"]["accelerator"] == "gpu"  # the argument is as it was
    photos = saved.changed(config, data___target_="mine.Photos", data__root="photos")
    assert counted(photos)["data"]["root"] == "photos"  # of another project: it may say which data


def test_what_is_essential(monkeypatch):
    monkeypatch.setattr(identity, "ADDED", {"lightning_fl.model.mlp.Mlp": {"bias": True}})
    config = saved.changed(saved.CONFIG, model__bias=True, aggregator__later=None, later={})
    assert essential(config) == essential(saved.CONFIG)
    assert essential(saved.changed(config, model__bias=False))["model"]["bias"] is False


def test_no_aggregator_is_plain_averaging():
    average = {"_target_": "lightning_fl.aggregator.average.Average"}
    runs = [saved.changed(saved.CONFIG, aggregator=rule) for rule in (average, None)]
    first, second = comparable(runs)
    assert first == second
    assert alike(runs[0]) == alike(runs[1]) != alike(saved.CONFIG)


def test_a_seed_that_follows_in_some_runs_alone_tells_runs_apart():
    runs = [
        saved.changed(saved.CONFIG, seed=seed, data__seed=seed, federation__seed=seed, data__partition_seed=partition)
        for seed, partition in [(0, 0), (1, 1), (1, 5)]
    ]
    found = comparable(runs)
    assert [config["data"]["partition_seed"] for config in found] == [0, 1, 5]
    assert [config["data"]["seed"] for config in found] == [config["federation"]["seed"] for config in found]
    assert {config["data"]["seed"] for config in found} == {"seed"}


def test_without_an_attack_there_is_no_number_of_attackers():
    attacked, *calm = comparable(
        [saved.CONFIG, *(saved.changed(saved.CONFIG, adversary=None, federation__n_byzantine=b) for b in (0, 2, 3))]
    )
    assert attacked["federation"]["n_byzantine"] == 2
    assert calm[0] == calm[1] == calm[2]
    assert "n_byzantine" not in calm[0]["federation"]


def test_runs_older_than_a_setting_have_what_it_meant(monkeypatch):
    """Of a rule inside another one, too, and of no group; other parts do not get it."""
    krum = {"_target_": "lightning_fl.aggregator.krum.Krum", "f": 1}
    mixing = {"_target_": "lightning_fl.aggregator.nnm.Nnm", "rule": krum}
    monkeypatch.setattr(identity, "ADDED", {krum["_target_"]: {"ties": "first"}, "": {"horizon": 3}})
    first, second = comparable(
        [
            saved.changed(saved.CONFIG, aggregator=mixing),
            saved.changed(saved.CONFIG, aggregator=mixing | {"rule": krum | {"ties": "last"}}, horizon=4),
        ]
    )
    assert (first["aggregator"]["rule"]["ties"], first["horizon"]) == ("first", 3)
    assert (second["aggregator"]["rule"]["ties"], second["horizon"]) == ("last", 4)
    assert "ties" not in first["model"]
    assert "horizon" not in first["model"]


@pytest.mark.parametrize("more", [{"reference": "run"}, {"data__root": "y"}, {"trainer__devices": 2}])
def test_runs_are_not_told_apart_by_what_does_not_count(more):
    first, second = comparable([saved.CONFIG, saved.changed(saved.CONFIG, **more)])
    assert first == second
