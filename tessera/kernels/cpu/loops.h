/// \file
/// All loops of kernels/cpu, over the vector type defined by the including table_*.cpp, and the table of these loops.
/// Uses only built-ins and intrinsics: a std:: template instantiated under -mavx512f would be emitted as a weak symbol
/// that the linker may use on a machine without AVX-512.

#include <tessera/kernels/cpu/attention/attention_loops.h>
#include <tessera/kernels/cpu/dropout_loops.h>
#include <tessera/kernels/cpu/gelu_loops.h>
#include <tessera/kernels/cpu/layer_norm_loops.h>
#include <tessera/kernels/cpu/optimizer_loops.h>
#include <tessera/kernels/cpu/quantize_loops.h>
#include <tessera/kernels/cpu/square_loops.h>
// The following files use those above.
#include <tessera/kernels/cpu/adafactor_loops.h>
#include <tessera/kernels/cpu/eight_bit_loops.h>
#include <tessera/kernels/cpu/lamb_loops.h>
#include <tessera/kernels/cpu/reduce_loops.h>
#include <tessera/kernels/cpu/rms_norm_loops.h>
#include <tessera/kernels/cpu/rotary_loops.h>
#include <tessera/kernels/cpu/row_loops.h>
#include <tessera/kernels/cpu/softmax_loops.h>
#include <tessera/kernels/cpu/swiglu_loops.h>

constexpr Table all_loops{adamw_loop,
                          adamw_bf16_loop,
                          sgd_loop,
                          sgd_bf16_loop,
                          lion_loop,
                          lion_bf16_loop,
                          adagrad_loop,
                          rmsprop_loop,
                          lamb_moments_loop,
                          lamb_apply_loop,
                          bin_squares_loop,
                          factored_direction_loop,
                          adafactor_moment_loop,
                          adafactor_direction_loop,
                          adafactor_apply_loop,
                          block_squares_loop,
                          softmax_cross_entropy_loop,
                          gelu_tanh_loop,
                          gelu_tanh_backward_loop,
                          layer_norm_loop,
                          layer_norm_backward_loop,
                          rms_norm_loop,
                          rms_norm_backward_loop,
                          swiglu_loop,
                          swiglu_backward_loop,
                          rotary_loop,
                          attention_loop,
                          attention_backward_loop,
                          column_sums_loop,
                          add_rows_loop,
                          reduce_loop,
                          stream_copy_loop,
                          dropout_loop,
                          uniform_loop,
                          quantize_four_bits_loop,
                          dequantize_four_bits_loop,
                          quantize_int8_rows_loop,
                          dequantize_int8_rows_loop,
                          encode_eight_bits_loop,
                          decode_eight_bits_loop,
                          adamw_eight_bits_loop,
                          lion_eight_bits_loop};
