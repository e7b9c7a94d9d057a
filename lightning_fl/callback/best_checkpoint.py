"""The model of the best evaluation, which goes along where a run goes on in another folder."""

import shutil
from pathlib import Path
from typing import Any

from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities.rank_zero import rank_zero_only


class BestCheckpoint(ModelCheckpoint):
    """Lightning's ``ModelCheckpoint``, which begins anew in another folder and forgets what was best before.

    Where the file of the best evaluation is not there any more, it begins anew, too.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what was best, and its file if it is in another folder; see the base class."""
        best = Path(state_dict["best_model_path"])
        if self.dirpath is not None and best.is_file() and state_dict["dirpath"] != self.dirpath:
            here = Path(self.dirpath, best.name)
            here.parent.mkdir(parents=True, exist_ok=True)
            rank_zero_only(shutil.copyfile)(best, here)
            moved = {"dirpath": self.dirpath, "best_model_path": str(here), "kth_best_model_path": str(here)}
            state_dict = state_dict | moved | {"best_k_models": {str(here): state_dict["best_model_score"]}}
        super().load_state_dict(state_dict)
