"""Models are as large as their papers say."""

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.contract import conf
from lightning_fl.model.bucketing_cnn import BucketingCnn
from lightning_fl.model.cnn import Cnn
from lightning_fl.model.lenet import Lenet
from lightning_fl.model.logistic import Logistic
from lightning_fl.model.mlp import Mlp
from lightning_fl.model.vgg16 import Vgg16

# Parameters as the papers or the specifications made from them say.
SIZES = {
    "mlp": 199_210,
    "raga_mlp": 178_110,
    "cifar_mlp": 656_810,
    "lenet": 41_282,
    "lenet_cifar": 797_962,
    "cnn": 122_570,
    "logistic": 7_840,
    "gru": 8_196 + 20_000 * 50,  # with the embedding, which is trained where no file gives it
    # Resnets: convolutions, a factor and an offset per normalised channel, and the linear layer.
    "resnet20": 9 * (3 * 16 + 6 * 16**2 + 16 * 32 + 5 * 32**2 + 32 * 64 + 5 * 64**2) + 2 * 688 + 650,
    "resnet18": 11_173_962,
    "byzfl_mnist": 520 + 25_050 + 400_500 + 5_010,
    "byzfl_cifar": 1_520 + 50_100 + 500_200 + 1_638_912 + 131_328 + 2_570,
    "vgg16": 138_357_544 - 900 * 4097,  # for 100 classes in place of 1,000
}


def test_the_papers_models_are_there():
    assert SIZES.keys() <= set(conf.names("model"))


@pytest.mark.parametrize("name", SIZES)
def test_as_many_parameters_as_the_papers_say(name):
    with torch.device("meta"):
        model = conf.make("model", name)
    assert sum(p.numel() for p in model.parameters()) == SIZES[name]
    assert not list(model.buffers())


@pytest.mark.parametrize(
    ("make", "d"),
    [
        (lambda: BucketingCnn(), 1_199_882),
        (lambda: BucketingCnn(3, 6, 4), 896 + 18_496 + 64 * 128 + 128 + 129 * 4),
        (lambda: Cnn(1, 28, 4), 320 + 18_496 + 36_928 + (576 * 64 + 64) + 260),
        (lambda: Lenet(3, 32, (20, 100, 200), (512, 256), 10, 2), 2_324_630),  # byzfl's, padded
        (lambda: Lenet(1, 12, (2,), (), 3), 52 + 2 * 16 * 3 + 3),
        (lambda: Logistic(256, 10), 2560),
        (lambda: Mlp(5, (7,), 3), 5 * 7 + 7 + 7 * 3 + 3),
        (lambda: Mlp(4, (), 2), 4 * 2 + 2),  # logistic regression
        (lambda: Vgg16(1000, None), 138_357_544),
    ],
)
def test_as_many_parameters_in_other_settings(make, d):
    with torch.device("meta"):
        assert sum(p.numel() for p in make().parameters()) == d


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BucketingCnn(1, 5, 10), "bucketing_cnn needs side >= 6, got 5"),
        (lambda: Cnn(3, 17, 10), "cnn needs side >= 18, got 17"),
        (lambda: Lenet(1, 15, (6, 16), (120, 60), 10), "lenet with 2 convolutions needs larger .* side=15"),
        (lambda: Lenet(1, 5, (6,), (120, 60), 10), "lenet with 1 convolutions needs larger .* side=5"),
        (lambda: Lenet(1, 1, (6, 16), (120, 60), 10), "lenet with 2 convolutions needs larger .* side=1"),
    ],
)
def test_small_images_are_refused(make, message):
    with pytest.raises(SettingError, match=message):
        make()
