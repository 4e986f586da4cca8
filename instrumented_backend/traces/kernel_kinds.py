"""What a GPU kernel does, told from its name: matrix work, communication, copies, or the rest.

The names are those of cuBLAS, cuDNN, CUTLASS, flash attention, NCCL, Inductor's Triton kernels and
their AMD counterparts, and those that people like to give to their own kernels. A name is only a
name: a kernel called ``step3`` is "other", whatever it multiplies.
"""

import functools
import re

MATRIX_KINDS = ("gemm", "convolution", "attention")
KINDS = (*MATRIX_KINDS, "communication", "copy", "other")

# Inductor's names list the operators that were fused: a pointwise kernel may well be called
# triton_poi_fused_addmm_relu_0. Only the prefix says what it is; tem is a template.
_INDUCTOR = re.compile(r"triton_(tem|poi|red|per|spl|for|mix|unk)_")

_COPY = re.compile(r"memcpy|memset|__amd_rocclr_(copy|fill)")
_COMMUNICATION = re.compile(
    r"nccl|rccl|nvshmem|deep_ep::|cross_device_reduce|multimem_"
    r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
)
_ATTENTION = re.compile(
    r"attention|attn|sdpa|fmha|(?<![a-z])m[hql]a(?![a-z])|with(paged|ragged)?kvcache|flex_decod"
    r"|flash::|flash_?(fwd|bwd|fprop|bprop|mla|decod)"
    # Kernels of their own in the backward of cuDNN's attention.
    r"|compute_dot_do_o|convert_dq_to"
)
# Not "convert", "conversion", "converter".
_CONVOLUTION = re.compile(r"conv(?!er)|winograd|implicit_?gemm|igemm|fprop|dgrad|wgrad|scudnn")
_GEMM = re.compile(
    r"gemm|gemv|nvjet|matmul|mat_mul|xmma|wgmma|tensorop|cijk_|fused_moe|marlin"
    r"|splitk_?reduce|reduce_?splitk"
    r"|(?<![a-z])(b|add|baddb|sp)?mm(?![a-z])"
)

# Kernels that are only a shell round the work named in their template arguments. Elsewhere the
# arguments name types and small functions, and prove nothing.
_SHELL = re.compile(r"cutlass|cudnn::kernel|device_kernel|ck_tile::kentry")
_NO_NAME = re.compile(r"^void |^std::enable_if<.*?>::type |\(anonymous namespace\)::")


@functools.lru_cache(maxsize=1 << 14)
def kernel_kind(name: str) -> str:
    """One of KINDS: "gemm" for ``nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT``."""
    name = name.lower()
    inductor = _INDUCTOR.match(name)
    if inductor is not None:
        return _matrix_kind(name) or "gemm" if inductor[1] == "tem" else "other"
    own = re.split(r"[<(]", _NO_NAME.sub("", name), maxsplit=1)[0]
    if _COPY.match(own):
        return "copy"
    if _COMMUNICATION.search(own):
        return "communication"
    return _matrix_kind(name if _SHELL.search(own) else own) or "other"


def _matrix_kind(text: str) -> str | None:
    if _ATTENTION.search(text):
        return "attention"
    if _CONVOLUTION.search(text):
        return "convolution"
    return "gemm" if _GEMM.search(text) else None
