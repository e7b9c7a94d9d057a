"""What the server that tests' processes are forked from imports once, whoever asks for the first: a run, undrawn."""

import lightning_fl.commands.train
import lightning_fl.run.train  # noqa: F401
from tests.blank import leave_blank

leave_blank()
