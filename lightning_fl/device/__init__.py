"""What a machine's accelerator computes, beside its CPU: the same numbers, and how fast."""
