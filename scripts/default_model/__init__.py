"""How the default model is made: corpus, tokenizer, network and export."""
