"""What was sent in a round: rows, their inner products, columns over processes, storage."""
