"""Models are as large as their papers say."""

import pytest
import torch

from lightning_fl.contract import conf

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
