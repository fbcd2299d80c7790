# What src/trace/python/bindings.cpp offers. Arrays, tables and JSON that only __init__.py sees are not spelled out.
from typing import Any

class TraceError(Exception): ...

class Block:
    @property
    def number(self) -> int: ...
    @property
    def processors(self) -> int: ...
    @property
    def in_global(self) -> bool: ...
    @property
    def holders(self) -> list[int]: ...
    def has_copy(self, processor: int) -> bool: ...

class Reference:
    @property
    def address(self) -> int: ...
    @property
    def site(self) -> int: ...
    @property
    def processor(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def write(self) -> bool: ...

STAY: int
LOCAL: int
GLOBAL: int

Reader: Any
arrow_stream: Any
evaluate: Any
known_machines: Any
machine: Any
optimal: Any
policy_names: Any
study: Any
write: Any
