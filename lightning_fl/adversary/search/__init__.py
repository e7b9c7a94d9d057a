"""What attacks that search for the worst update share."""
