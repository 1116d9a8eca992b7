"""The keywords that learners share, stated once.

A method takes them as `**shared: Unpack[Shared]` and hands them on to `super().__init__`. Where its defaults are not
those of `Learner`, its class attribute `defaults` says so. `inspect.signature` of a learner lists every keyword with
type and default, so that `settings()`, the configuration checker and `help` need not know how they are stated. A method
that has no use for some of them names the others itself.
"""

from __future__ import annotations

import inspect
from typing import Any, TypedDict, get_type_hints


class Shared(TypedDict, total=False):
    """The docstring of `Learner` explains each."""

    loss_classes: str
    head_start: str
    train_backbone: bool
    train_embedding: bool
    seed: int


class FullSignature:
    """The `__signature__` of a class: that of its constructor, with the keywords of `Shared` in place of `**shared`."""

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        signature = inspect.signature(owner.__init__, eval_str=True)
        parameters = list(signature.parameters.values())[1:]  # without self
        if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
            del parameters[-1]
            for name, hint in get_type_hints(Shared).items():
                default = owner.defaults[name]
                parameters.append(
                    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
                )
        return signature.replace(parameters=parameters)
