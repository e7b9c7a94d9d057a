"""The BOBA paper's net for AG-News: word vectors, a gated recurrent unit, mean pooling.

Kyunghyun Cho, Bart van Merrienboer, Caglar Gulcehre, Dzmitry Bahdanau, Fethi Bougares, Holger Schwenk, Yoshua Bengio.
Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation. EMNLP 2014.
arXiv:1406.1078.  As in Wenxuan Bao, Jun Wu, Jingrui He. BOBA. AISTATS 2024. arXiv:2208.12932.
"""

from pathlib import Path
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor, nn

from lightning_fl.data._text import read_vectors
from lightning_fl.errors import SettingError
from lightning_fl.ranges import Checked, PositiveInt


class Gru(Checked, nn.Module):
    """Embed tokens, run one GRU layer over them, average its states over the tokens, map to classes.

    The GRU is torch's, gates in the order r, z, n and two bias vectors, but written out: ``nn.GRU`` does not support
    ``vmap``, and here all steps and all clients share one product with the input weights.  With 50 dimensions, 32
    states and four classes d = 8,196 without the embedding.

    Args:
        vocabulary: Number of different tokens, at least 3: padding, which is no token, an unknown word, and a word.
        width: Length of a word vector.
        hidden: Length of a state.
        n_classes: Length of the output.
        glove: File of word vectors as in ``data.glove``.  None: drawn at random.
        freeze: Whether the embedding is fixed, neither trained nor uploaded.  None: if ``glove`` is given.

    Raises:
        SettingError: If the file's vectors are not of this width, there is no number for a word, or a width is below
            1.
        DataError: If the file cannot be read.

    Note:
        The paper says "global pooling"; the mean over a text's own length is the authors' code.

    >>> model = Gru(vocabulary=9, width=50, hidden=32, n_classes=4, glove=None, freeze=True)
    >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
    8196
    >>> model(torch.tensor([[3, 8, 2, 0, 0], [4, 0, 0, 0, 0]])).shape
    torch.Size([2, 4])
    """

    def __init__(
        self,
        vocabulary: Annotated[int, Ge(3)] = 20000,
        width: PositiveInt = 50,
        hidden: PositiveInt = 32,
        n_classes: PositiveInt = 4,
        glove: str | None = None,
        freeze: bool | None = None,
    ):
        super().__init__()
        if glove is None:
            self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        else:
            _, vectors = read_vectors(Path(glove), vocabulary - 2)
            if vectors.shape[1] != width:
                raise SettingError(f"{glove} holds vectors of length {vectors.shape[1]}, got width={width}.")
            unknown = torch.zeros(2, width)  # as the data number tokens: 0 pads, 1 is an unknown word
            self.embedding = nn.Embedding.from_pretrained(torch.cat([unknown, vectors]), padding_idx=0)
        self.embedding.requires_grad_(not (glove is not None if freeze is None else freeze))
        self.input = nn.Linear(width, 3 * hidden)
        self.recurrent = nn.Linear(hidden, 3 * hidden)
        for parameter in [*self.input.parameters(), *self.recurrent.parameters()]:
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)  # as torch's GRU
        self.output = nn.Linear(hidden, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, length) token numbers to (batch, n_classes) logits.

        With biases inside W and U: r = sigmoid(W_r x + U_r h), z = sigmoid(W_z x + U_z h), n = tanh(W_n x + r U_n h),
        and the next h is (1 - z) n + z h.
        """
        inputs = self.input(self.embedding(tokens.transpose(0, 1)))
        state = inputs.new_zeros(inputs.shape[1], self.recurrent.in_features)
        states = []
        for step in inputs:
            x_r, x_z, x_n = step.chunk(3, -1)
            h_r, h_z, h_n = self.recurrent(state).chunk(3, -1)
            candidate = (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
            state = candidate.lerp(state, (x_z + h_z).sigmoid())
            states.append(state)
        mask = (tokens != 0).to(inputs.dtype)
        pooled = (torch.stack(states, 1) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        return self.output(pooled)
