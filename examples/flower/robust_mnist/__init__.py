"""MNIST with label skew and Byzantine clients, in Flower."""
