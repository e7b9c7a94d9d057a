"""The errors a user can cause; everything else that is raised is a bug."""


class SettingError(ValueError):
    """A setting is out of range or does not fit the others: who needs what, got what, what to do."""


class DivergedError(SettingError):
    """Nothing finite is left to go on with; a run that meets it has diverged and stops."""


class DataError(RuntimeError):
    """A data file is missing, corrupt or not what it should be."""
