"""Names of models, and where the models are."""
