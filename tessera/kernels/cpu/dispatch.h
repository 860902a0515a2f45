#pragma once
/// \file
/// kernels/cpu/: single-threaded loops on raw pointers, without torch. Callers divide the work among threads
/// (nn/parallel_for.h); an elementwise kernel gives bitwise identical results wherever its range is cut. Each kernel is
/// tested against a plain reference (tests/kernels/reference.h) for every instruction set; bench/kernels_bench.cpp
/// prints the share of the memory or arithmetic bound that it reaches.
///
/// This header: the choice of the instruction set. The loops are written once, over the small vector type of
/// isa/simd_*.h, and compiled once per set (isa/table_*.cpp): baseline, avx2 and avx512 on x86-64, baseline and neon on
/// 64-bit ARM. The set is chosen once, from the processor's feature flags; TESSERA_ISA=baseline|avx2|avx512|neon lowers
/// it.

#include <tessera/kernels/cpu/adafactor.h>
#include <tessera/kernels/cpu/adagrad.h>
#include <tessera/kernels/cpu/adamw.h>
#include <tessera/kernels/cpu/attention/attention.h>
#include <tessera/kernels/cpu/block_squares.h>
#include <tessera/kernels/cpu/dropout.h>
#include <tessera/kernels/cpu/eight_bit.h>
#include <tessera/kernels/cpu/gelu.h>
#include <tessera/kernels/cpu/lamb.h>
#include <tessera/kernels/cpu/layer_norm.h>
#include <tessera/kernels/cpu/lion.h>
#include <tessera/kernels/cpu/quantize.h>
#include <tessera/kernels/cpu/reduce.h>
#include <tessera/kernels/cpu/rms_norm.h>
#include <tessera/kernels/cpu/rmsprop.h>
#include <tessera/kernels/cpu/rotary.h>
#include <tessera/kernels/cpu/rows.h>
#include <tessera/kernels/cpu/sgd.h>
#include <tessera/kernels/cpu/softmax_cross_entropy.h>
#include <tessera/kernels/cpu/swiglu.h>

#include <span>
#include <vector>

namespace tessera::kernels {

enum class Isa { baseline, avx2, avx512, neon };

/// The best instruction set of this machine (or the lower one set by TESSERA_ISA), chosen at the first call.
Isa isa();
const char* isa_name(Isa isa);
/// The sets that this machine can run, slowest first; always includes `baseline`.
std::vector<Isa> supported_isas();
/// Whether the processor has instructions for bf16 matrix products (AVX512-BF16, AMX; FEAT_BF16 of ARM). Without them,
/// nn/gemm.h widens the operands and multiplies in fp32.
bool has_bf16_instructions();
/// The same for fp16 (AVX512-FP16; FEAT_FP16 of ARM).
bool has_fp16_instructions();
bool made_by_intel();

/// One compiled set of the loops. The free functions of the other headers call table(isa()).
struct Table {
  decltype(&kernels::adamw) adamw;
  decltype(&kernels::adamw_bf16) adamw_bf16;
  decltype(&kernels::sgd) sgd;
  decltype(&kernels::sgd_bf16) sgd_bf16;
  decltype(&kernels::lion) lion;
  decltype(&kernels::lion_bf16) lion_bf16;
  decltype(&kernels::adagrad) adagrad;
  decltype(&kernels::rmsprop) rmsprop;
  decltype(&kernels::lamb_moments) lamb_moments;
  decltype(&kernels::lamb_apply) lamb_apply;
  decltype(&kernels::bin_squares) bin_squares;
  decltype(&kernels::factored_direction) factored_direction;
  decltype(&kernels::adafactor_moment) adafactor_moment;
  decltype(&kernels::adafactor_direction) adafactor_direction;
  decltype(&kernels::adafactor_apply) adafactor_apply;
  decltype(&kernels::block_squares) block_squares;
  decltype(&kernels::softmax_cross_entropy) softmax_cross_entropy;
  decltype(&kernels::gelu_tanh) gelu_tanh;
  decltype(&kernels::gelu_tanh_backward) gelu_tanh_backward;
  decltype(&kernels::layer_norm) layer_norm;
  decltype(&kernels::layer_norm_backward) layer_norm_backward;
  decltype(&kernels::rms_norm) rms_norm;
  decltype(&kernels::rms_norm_backward) rms_norm_backward;
  decltype(&kernels::swiglu) swiglu;
  decltype(&kernels::swiglu_backward) swiglu_backward;
  decltype(&kernels::rotary) rotary;
  decltype(&kernels::attention) attention;
  decltype(&kernels::attention_backward) attention_backward;
  decltype(&kernels::column_sums) column_sums;
  decltype(&kernels::add_rows) add_rows;
  decltype(&kernels::reduce) reduce;  ///< arguments are not checked
  decltype(&kernels::stream_copy) stream_copy;
  decltype(&kernels::dropout) dropout;
  decltype(&kernels::uniform) uniform;
  decltype(&kernels::quantize_four_bits) quantize_four_bits;
  decltype(&kernels::dequantize_four_bits) dequantize_four_bits;
  decltype(&kernels::quantize_int8_rows) quantize_int8_rows;
  decltype(&kernels::dequantize_int8_rows) dequantize_int8_rows;
  decltype(&kernels::encode_eight_bits) encode_eight_bits;
  decltype(&kernels::decode_eight_bits) decode_eight_bits;
  decltype(&kernels::adamw_eight_bits) adamw_eight_bits;
  decltype(&kernels::lion_eight_bits) lion_eight_bits;
};
/// Throws Error if this machine cannot run `isa`.
const Table& table(Isa isa);

}  // namespace tessera::kernels
