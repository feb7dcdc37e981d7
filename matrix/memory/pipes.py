"""Which pipe of an SM executes what: Nsight Compute's documentation, "Metrics Reference", "Pipelines"."""

from __future__ import annotations

import enum


class Pipe(enum.StrEnum):
    """The pipes whose work is counted; all else is on none of them."""

    ALU = "alu"
    FMA = "fma"
    SPECIAL = "special"
    NONE = ""


# ALU: "most bit manipulation and logic instructions", integers but for multiplications, comparisons and selections.
_ALU = (
    *("ISETP", "FSETP", "LOP3", "PLOP3", "IADD", "IADD3", "VIADD", "SHF", "SEL", "FSEL", "LEA", "PRMT", "SGXT", "IABS"),
    *("FMNMX", "FMNMX3", "IMNMX", "VIMNMX", "HMNMX2", "F2FP", "I2FP", "MOV", "BMSK", "VOTE", "P2R", "R2P", "CS2R"),
)
# FMA: "most FP32 arithmetic", integer multiplications, and 16-bit floats since the A10's generation.
_FMA = (
    *("FMUL", "FFMA", "FADD", "FMUL2", "FFMA2", "FADD2", "FHADD", "FSWZADD", "IMAD", "IMUL", "IDP"),
    *("HADD2", "HMUL2", "HFMA2"),
)
# XU: transcendentals, conversions of types, and counts of bits.
_XU = ("MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV")
_PIPES = {**dict.fromkeys(_ALU, Pipe.ALU), **dict.fromkeys(_FMA, Pipe.FMA), **dict.fromkeys(_XU, Pipe.SPECIAL)}


def pipe_of(opcode: str) -> Pipe:
    """The pipe that executes a SASS opcode (without its modifiers)."""
    return _PIPES.get(opcode, Pipe.NONE)
