"""The model of the best evaluation, which goes along where a run goes on in another folder."""

import shutil
from pathlib import Path
from typing import Any

from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities.rank_zero import rank_zero_only


class BestCheckpoint(ModelCheckpoint):
    """Lightning's ``ModelCheckpoint``, which begins anew in another folder and forgets what was best before.

    This one takes the best model along, also if the folder was moved; it begins anew where the model's file is gone.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what was best, and its file if it is in another folder; see the base class."""
        best = Path(state_dict["best_model_path"])
        here = Path(self.dirpath or best.parent, best.name)
        found = next((path for path in (best, here) if path.is_file()), None)
        if found is None:
            return
        if found != here:
            here.parent.mkdir(parents=True, exist_ok=True)
            rank_zero_only(shutil.copyfile)(found, here)
        moved = {"dirpath": self.dirpath, "best_model_path": str(here), "kth_best_model_path": str(here)}
        super().load_state_dict(state_dict | moved | {"best_k_models": {str(here): state_dict["best_model_score"]}})
