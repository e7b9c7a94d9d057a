"""How a model is computed: its parameters, images, dropout, memory and threads."""
