"""Facts read off generated code: IR, PTX, machine code. Pure, apart from the disassembler."""
