"""What the memory system will do with a compiled kernel, evaluated from its PTX with no GPU.

:func:`matrix.memory.evidence.memory_evidence` is the way in.
"""
