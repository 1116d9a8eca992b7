"""Files as a bad disk, a broken download or a bad neighbour leaves them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from promptpool.errors import BadFileError

HUGE = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\x00\x00\x00\x80",
    b"\x00\x00\x00\x00",
    b"\xff" * 8,
)


def outcome(read: Callable[..., object], *arguments: object) -> str:
    """The line with which a file is refused, or nothing where it is read; any other error is the test's."""
    try:
        read(*arguments)
    except BadFileError as error:
        message = str(error)
        assert message
        assert "\n" not in message
        return message
    return ""


def damaged(content: bytes, count: int, seed: int, fields: int = 0) -> Iterator[bytes]:
    """`count` changes of one to three places each; `fields` says how many first bytes half of them hit."""
    chance = random.Random(seed)  # noqa: S311
    for _ in range(count):
        result = bytearray(content)
        for _ in range(chance.randint(1, 3)):
            reach = fields if fields and chance.random() < 0.5 else len(result)
            _change(result, chance, max(min(reach, len(result)), 1))
        yield bytes(result)


def _change(content: bytearray, chance: random.Random, reach: int) -> None:
    place = chance.randrange(reach)
    length = chance.randint(1, 64)
    match chance.randrange(6):
        case 0 if content:
            content[place % len(content)] ^= 1 << chance.randrange(8)
        case 1 if content:
            content[place % len(content)] = chance.randrange(256)
        case 2:
            del content[place:]
        case 3:
            content[place:place] = content[place : place + length]
        case 4:
            del content[place : place + length]
        case _:
            huge = chance.choice(HUGE)
            content[place : place + len(huge)] = huge
