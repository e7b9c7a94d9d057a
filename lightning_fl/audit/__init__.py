"""What a run's rounds would have been under other rules, and whom they would have trusted."""
