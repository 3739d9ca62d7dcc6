"""The inside of an engine, where no public call shows it; tests look there through these alone."""


def session_of(engine):
    return engine._session


def memories_of(engine):
    """What is kept from reply to reply."""
    return engine._memories


def factory_of(engine):
    """What makes drafters, with their models."""
    return engine._drafters


def drafting_model(engine):
    models = factory_of(engine).models
    return models.head or models.draft_model
