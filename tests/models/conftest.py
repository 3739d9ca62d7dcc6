"""A small random model and a session over it."""

import pytest
from tiny_models import tiny

from akunu_py.models.session import Session


@pytest.fixture(scope="module")
def model():
    return tiny()


@pytest.fixture(scope="module")
def session(model):
    return Session(model, context=600)
