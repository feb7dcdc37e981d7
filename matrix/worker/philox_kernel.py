"""The Philox bit stream on a GPU: PTX of ours that the driver assembles; the Triton under test has no part in it."""

from __future__ import annotations

import ctypes
import functools

import torch

from matrix.worker.driver import checked, long

ROUNDS = 10
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_THREADS = 256
# NumPy counts up before it draws: the first block is that of counter 1.
_KERNEL = """
.version 6.3
.target sm_70
.address_size 64
.visible .entry philox(.param .u64 p_out, .param .u64 p_counters, .param .u64 p_first, .param .u64 p_second)
{
    .reg .pred past;
    .reg .b32 block, size, thread;
    .reg .b64 index, lane, out, counters, first, second, a, b, c, d, high_a, low_a, high_c, low_c, m_a, m_c;
    mov.u32 block, %ctaid.x;
    mov.u32 size, %ntid.x;
    mov.u32 thread, %tid.x;
    mul.wide.u32 index, block, size;
    cvt.u64.u32 lane, thread;
    add.u64 index, index, lane;
    ld.param.u64 counters, [p_counters];
    setp.ge.u64 past, index, counters;
    @past ret;
    ld.param.u64 out, [p_out];
    ld.param.u64 first, [p_first];
    ld.param.u64 second, [p_second];
    cvta.to.global.u64 out, out;
    mov.u64 m_a, MULTIPLIER_A;
    mov.u64 m_c, MULTIPLIER_C;
    add.u64 a, index, 1;
    mov.u64 b, 0;
    mov.u64 c, 0;
    mov.u64 d, 0;
ROUNDS
    shl.b64 index, index, 5;
    add.u64 out, out, index;
    st.global.v2.u64 [out], {a, b};
    st.global.v2.u64 [out+16], {c, d};
    ret;
}
"""
_ROUND = """
    mul.hi.u64 high_a, m_a, a;
    mul.lo.u64 low_a, m_a, a;
    mul.hi.u64 high_c, m_c, c;
    mul.lo.u64 low_c, m_c, c;
    xor.b64 a, high_c, b;
    xor.b64 a, a, first;
    mov.b64 b, low_c;
    xor.b64 c, high_a, d;
    xor.b64 c, c, second;
    mov.b64 d, low_a;
    add.u64 first, first, WEYL_FIRST;
    add.u64 second, second, WEYL_SECOND;
"""


def words(key: tuple[int, int], n: int, device: torch.device) -> torch.Tensor:
    """The first ``n`` words of the stream of ``key``, as the int64 of the same bits."""
    result = torch.empty((n + 3) // 4, 4, dtype=torch.int64, device=device)
    if len(result):
        values = (long(result.data_ptr()), long(len(result)), long(key[0]), long(key[1]))
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        grid, block = (-(-len(result) // _THREADS), 1, 1), (_THREADS, 1, 1)
        stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
        checked("cuLaunchKernel", _function(), *map(ctypes.c_uint, (*grid, *block, 0)), stream, pointers, None)
    return result.reshape(-1)[:n]


@functools.cache
def _function() -> ctypes.c_void_p:
    """The kernel, assembled and loaded by the driver, once in a process."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    checked("cuModuleLoadData", ctypes.byref(module), kernel().encode() + b"\0")
    checked("cuModuleGetFunction", ctypes.byref(function), module, b"philox")
    return function


def kernel() -> str:
    """The kernel's PTX."""
    words_of = dict(zip(("MULTIPLIER_A", "MULTIPLIER_C", "WEYL_FIRST", "WEYL_SECOND"), (*MULTIPLIERS, *WEYL)))
    text = _KERNEL.replace("ROUNDS\n", ROUNDS * _ROUND)
    for name, value in words_of.items():
        text = text.replace(name, f"0x{value:016x}")
    return text
