"""Group normalisation in place of batch normalisation, whose statistics no client uploads.

Yuxin Wu, Kaiming He. Group Normalization. ECCV 2018. arXiv:1803.08494.
"""

from copy import deepcopy
from math import gcd

from torch import nn

from lightning_fl.errors import check_whole
from lightning_fl.network.layers import replaced


def with_group_norm(model: nn.Module, groups: int = 32) -> nn.Module:
    """Copy a model, each batch normalisation replaced by group normalisation with the same weights and biases.

    Running statistics are dropped: a trained model computes something else afterwards, and has to be trained on.

    Args:
        model: Yours; it is left as it is.
        groups: How many, or as many as divide both this number and the channels.  One in place of a ``BatchNorm1d``:
            after a linear layer a channel is one number, which is nothing without its mean.

    Raises:
        SettingError: If groups is not a whole number of at least 1.

    >>> with_group_norm(nn.Sequential(nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24)))[1].num_groups
    8
    """
    check_whole("groups", groups, 1)
    return grouped(deepcopy(model), groups)


def grouped(module: nn.Module, groups: int) -> nn.Module:
    """Replace every batch normalisation inside a module, in place; see `with_group_norm`."""
    return replaced(module, nn.modules.batchnorm._BatchNorm, lambda layer: _group_norm(layer, groups))


def _group_norm(module: nn.modules.batchnorm._BatchNorm, groups: int) -> nn.Module:
    channels = module.num_features
    several = 1 if isinstance(module, nn.BatchNorm1d) else gcd(groups, channels)
    norm = nn.GroupNorm(several, channels, module.eps, module.affine)
    if module.affine:
        norm.weight, norm.bias = module.weight, module.bias
    return norm.train(module.training)
