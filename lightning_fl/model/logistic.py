"""Multinomial logistic regression, the FRPG paper's model.

Yanjie Dong, Georgios B. Giannakis, Tianyi Chen, Julian Cheng, Md. Jahangir Hossain, Victor C. M. Leung.
Communication-Efficient Byzantine-Resilient Federated Learning Over Heterogeneous Datasets. 2020. arXiv:2006.09992.
"""

from torch import nn

from lightning_fl.ranges import Checked, PositiveInt


class Logistic(Checked, nn.Sequential):
    """One linear layer without bias that starts at zero; inputs are flattened.

    Args:
        in_features: Length of a flattened input: 784 for MNIST (d = 7,840), 256 for USPS (d = 2,560).
        n_classes: Length of the output.

    Raises:
        SettingError: If a number is below 1.

    Note:
        The paper says neither that there is no bias nor where training starts.  For MNIST its Lipschitz constant, 295,
        is the largest ||x||^2 without a bias column (with one: 296).

    >>> sum(p.numel() for p in Logistic(784, 10).parameters())
    7840
    """

    def __init__(self, in_features: PositiveInt = 784, n_classes: PositiveInt = 10):
        linear = nn.Linear(in_features, n_classes, bias=False)
        nn.init.zeros_(linear.weight)
        super().__init__(nn.Flatten(), linear)
