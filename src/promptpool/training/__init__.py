"""How a learner goes through a stream."""

from promptpool.training.checkpoint import learn
from promptpool.training.loop import Plan, Session
from promptpool.training.record import Record, accuracy_matrix

__all__ = ["Plan", "Record", "Session", "accuracy_matrix", "learn"]
