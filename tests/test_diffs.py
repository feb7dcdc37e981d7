"""Code differences: what has no meaning is left out, what is left is short."""

from __future__ import annotations

from matrix.code.diffs import SHOWN_COLUMNS, SHOWN_LINES, code_diff, opcode_moves, unified

SASS = "        /*{:04x}*/                   {} ;   /* 0x{:016x} */"


def sass(*code):
    return "\n".join(SASS.format(16 * place, line, place) for place, line in enumerate(code))


def test_addresses_and_encodings_are_no_difference():
    before = sass("LDC R1, c[0x0][0x28]", "EXIT")
    after = "\n" + SASS.format(512, "LDC R1, c[0x0][0x28]", 7) + "\n" + SASS.format(528, "EXIT", 8)
    assert unified("sass", before, after) == ([], 0, 0)


def test_locations_are_no_difference():
    before = '#loc = loc("/a/k.py":1:0)\n%0 = arith.constant 0 : i32 loc(#loc)\n'
    after = '%zero = arith.constant 0 : i32 loc("/b/k.py":9:9)\n'
    assert unified("ttgir", before, after) == ([], 0, 0)


def test_debug_sections_are_no_difference():
    before = ".entry k() {\n    .loc 1 2 3\n    ret;\n}\n.section .debug_info { 1 }\n"
    assert unified("ptx", before, ".entry k() {\n    .loc 1 9 9\n    ret;\n}\n") == ([], 0, 0)


def test_a_long_difference_is_cut_and_says_so():
    before = sass(*(f"FADD R{place}, R1, R2" for place in range(300)))
    after = sass(*(f"FMUL R{place}, R1, R2" for place in range(300)))
    diff = code_diff("sass", ("a", "b"), (before, after))
    assert (diff.added, diff.removed) == (300, 300)
    assert len(diff.lines) == SHOWN_LINES
    assert diff.left_out == 600 + 1 - SHOWN_LINES


def test_very_long_code_is_matched_only_so_far():
    text = "\n".join(f"    add.s32 %r{place}, 1;" for place in range(9000))
    lines, added, removed = unified("ptx", text, text + "\n    ret;")
    assert (added, removed) == (0, 0)
    assert "6,500 and 6,501 follow" in lines[-1].text


def test_a_wide_line_is_cut():
    diff = code_diff("ptx", ("a", "b"), ("x", "y" * 5000))
    assert max(len(line.text) for line in diff.lines) <= SHOWN_COLUMNS + 2


def test_opcodes_are_counted_through_predicates():
    before = sass("BAR.SYNC 0x0", "@!P0 LDG.E R4, [R2]", "EXIT")
    after = sass("BAR.SYNC 0x0", "BAR.SYNC 0x0", "@UP1 SHFL.BFLY PT, R9", "EXIT")
    moves = {move.opcode: (move.baseline, move.candidate) for move in opcode_moves(before, after)}
    assert moves == {"BAR": (1, 2), "LDG": (1, 0), "SHFL": (0, 1)}
