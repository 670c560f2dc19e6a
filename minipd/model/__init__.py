"""The model: its config, its layers, and how weights and tokenizer come from files."""
