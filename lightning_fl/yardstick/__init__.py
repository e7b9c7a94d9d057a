"""One yardstick for anybody's rule: how far a frozen ensemble of attacks moves it."""
