"""A transformer for texts of which a small part trains: low-rank changes of its attention (LoRA), and the head.

Edward J. Hu, Yelong Shen, Phillip Wallis, Zeyuan Allen-Zhu, Yuanzhi Li, Shean Wang, Lu Wang, Weizhu Chen. LoRA:
Low-Rank Adaptation of Large Language Models. ICLR 2022. arXiv:2106.09685.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_fl.errors import MissingError, SettingError, install
from lightning_fl.ranges import Checked, PositiveInt


class LoraText(Checked, nn.Module):
    """BERT's architecture, drawn from the seed, by the library transformers; LoRA by the library peft.

    What is frozen is nobody's update: rows are as long as what trains.  Start from weights of your own by
    ``model.start``.

    Args:
        vocabulary: Different tokens; number 0 is padding.
        length: Tokens of a text at most.
        width: Width of a token's state; a multiple of heads.
        layers: Number of the transformer's layers.
        heads: Number of heads of each attention.
        rank: r, of the change of each layer's queries and values.
        n_classes: Length of the output.
        checkpointing: Whether each layer is computed once more for its gradient, rather than remembered.

    Raises:
        SettingError: If heads do not divide the width.
        MissingError: If a library is not installed.
    """

    def __init__(
        self,
        vocabulary: PositiveInt = 20000,
        length: PositiveInt = 70,
        width: PositiveInt = 384,
        layers: PositiveInt = 8,
        heads: PositiveInt = 6,
        rank: PositiveInt = 4,
        n_classes: PositiveInt = 4,
        checkpointing: bool = False,
    ):
        super().__init__()
        if width % heads:
            raise SettingError(f"lora_text needs heads that divide its width, got {heads} and {width}; change one.")
        try:
            from peft import LoraConfig, get_peft_model
            from transformers import BertConfig, BertForSequenceClassification
        except ImportError as error:
            raise MissingError(f"lora_text needs transformers and peft, got none; {install('lora')}.") from error
        config = BertConfig(
            vocab_size=vocabulary,
            max_position_embeddings=length,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            num_labels=n_classes,
            attn_implementation="eager",
        )
        changes = LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules=["query", "value"], modules_to_save=["classifier"]
        )
        self.model: Any = get_peft_model(BertForSequenceClassification(config), changes)
        if checkpointing:
            for layer in self.model.base_model.model.bert.encoder.layer:
                layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Classify (batch, length) token numbers."""
        logits: Tensor = self.model(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
        return logits
