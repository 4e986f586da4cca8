"""Names as profilers have shown them; test_utilization has those of two whole real traces."""

import pytest

from instrumented_backend.traces.kernel_kinds import KINDS, kernel_kind

NAMES = {
    "gemm": [
        "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT",
        "nvjet_tst_192x16_64x8_2x2_2cta_h_bz_TNT",
        "ampere_sgemm_128x64_tn",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x3_tn",
        "volta_sgemm_32x128_nn",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_"
        "alignc4_execute_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_"
        "align8>(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8::Params)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, "
        "int, int>, cutlass::gemm::collective::CollectiveMma<X>, "
        "cutlass::epilogue::thread::Convert<float> > >(Params)",
        "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float, 128, 16>(X)",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16>(X)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(X)",
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>(X)",
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1",
        "triton_tem_fused_addmm_relu_1",
        "triton_tem_fused_0",
        "triton_tem_fused__to_copy_mm_t_3",
        "triton_mm",
        "matmul_kernel",
        "_bmm_chunk_fwd_kernel",
        "my_fp8_matmul_kernel_0d1d2d",
        "fused_moe_kernel",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<4096u, 7168u>(X)",
    ],
    "convolution": [
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64",
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc",
        "void cudnn::ops::conv2d_grouped_direct_kernel<false, true, int>(X)",
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false>(X)",
        "ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(X)",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128>(X)",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<1, float, int>(X)",
        "void dgrad2d_grouped_direct_kernel<float, int, float>(X)",
        "triton_tem_fused_convolution_3",
        "triton_tem_fused_convolution_convert_element_type_relu_3",
        "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1",
        "causal_conv1d_fwd_kernel",
    ],
    "attention": [
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1",
        "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(X)",
        "void cudnn::fusion::convert_dq_to_16bits<true>(X)",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, "
        "false, cutlass::bfloat16_t>, false>(pytorch_flash::Flash_fwd_params)",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<X>(Y)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<X> > >(Y)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<"
        "cutlass::bfloat16_t, cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)",
        "void attention_kernel_batched_impl<AttentionKernel<float> >(X)",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<X>(Y)",
        "triton_tem_fused_flex_attention_0",
        "triton_tem_fused_flex_attention_backward_zeros_1",
        "_attn_fwd",
        "_attn_bwd_dkdv",
        "kernel_cutlass_kernel_flash_attncuteflash_fwdFlashAttentionForwardSm80_object_at__0",
    ],
    "communication": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(X)",
        "one_shot_all_reduce_kernel",
        "void multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(X)",
    ],
    "copy": ["Memcpy DtoH (Device -> Pageable)", "__amd_rocclr_copyBuffer"],
    "other": [
        "triton_poi_fused_addmm_relu_1",
        "triton_red_fused_convolution_backward_2",
        "triton_per_fused__scaled_dot_product_flash_attention_mm_4",
        "triton_for_fused_1",
        # "conv" is in convert, "mm" in comm and common, "gemm" only among the arguments.
        "void at::native::vectorized_elementwise_kernel<4, at::native::conversion_functor<X> >(Y)",
        "void convertTensor_kernel<float, __half>(X)",
        "common_kernel",
        "void at::native::elementwise_kernel<128, 4, gemm_epilogue_lambda>(X)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, 4>(X)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(X)",
        "void at::native::im2col_kernel<float>(X)",
        "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, 5>(X)",
        "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(X)",
        "step3",
        "",
    ],
}


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, names in NAMES.items() for n in names])
def test_kind(kind: str, name: str) -> None:
    assert kernel_kind(name) == kind


def test_every_kind_is_tested() -> None:
    assert set(NAMES) == set(KINDS)
