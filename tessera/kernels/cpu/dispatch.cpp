#include <tessera/kernels/cpu/dispatch.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/isa/architecture.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace tessera::kernels {

namespace {

const IsaChoice* find(Isa isa) {
  for (const IsaChoice& choice : isa_choices())
    if (choice.isa == isa) return &choice;
  return nullptr;
}

// "baseline, avx2 or avx512"
std::string known_names() {
  const auto choices = isa_choices();
  std::string text;
  for (const IsaChoice& choice : choices) {
    text += &choice == &choices.front() ? "" : &choice == &choices.back() ? " or " : ", ";
    text += isa_name(choice.isa);
  }
  return text;
}

}  // namespace

std::vector<Isa> supported_isas() {
  std::vector<Isa> out;
  for (const IsaChoice& choice : isa_choices())
    if (choice.supported()) out.push_back(choice.isa);
  return out;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::neon:
      return "neon";
  }
  return "?";
}

Isa isa() {
  static const Isa chosen = [] {
    const Isa best = supported_isas().back();
    const char* wish = std::getenv("TESSERA_ISA");
    if (wish == nullptr) return best;
    for (const IsaChoice& choice : isa_choices()) {
      if (wish != std::string_view(isa_name(choice.isa))) continue;
      if (!choice.supported())
        throw InputError(concat("TESSERA_ISA=", wish, ": this machine supports at most ", isa_name(best)));
      return choice.isa;
    }
    throw InputError(concat("TESSERA_ISA=", wish, ": expected ", known_names()));
  }();
  return chosen;
}

const Table& table(Isa isa) {
  const IsaChoice* choice = find(isa);
  TESSERA_CHECK(choice != nullptr && choice->supported(), "this machine cannot run ", isa_name(isa));
  return *choice->table;
}

namespace {
const Table& chosen() {
  static const Table& best = table(isa());
  return best;
}
}  // namespace

void adamw(float* p, const float* g, float* m, float* v, std::int64_t n, const AdamwArgs& args) {
  chosen().adamw(p, g, m, v, n, args);
}
void adamw_bf16(float* p, const float* g, std::uint16_t* m, std::uint16_t* v, std::int64_t n, const AdamwArgs& args,
                const Bf16Rounding& rounding) {
  chosen().adamw_bf16(p, g, m, v, n, args, rounding);
}
void sgd(float* p, const float* g, float* b, std::int64_t n, const SgdArgs& args) { chosen().sgd(p, g, b, n, args); }
void sgd_bf16(float* p, const float* g, std::uint16_t* b, std::int64_t n, const SgdArgs& args,
              const Bf16Rounding& rounding) {
  chosen().sgd_bf16(p, g, b, n, args, rounding);
}
void lion(float* p, const float* g, float* m, std::int64_t n, const LionArgs& args) { chosen().lion(p, g, m, n, args); }
void lion_bf16(float* p, const float* g, std::uint16_t* m, std::int64_t n, const LionArgs& args,
               const Bf16Rounding& rounding) {
  chosen().lion_bf16(p, g, m, n, args, rounding);
}
void adagrad(float* p, const float* g, float* s, std::int64_t n, const AdagradArgs& args) {
  chosen().adagrad(p, g, s, n, args);
}
void rmsprop(float* p, const float* g, float* v, float* a, float* b, std::int64_t n, const RmspropArgs& args) {
  chosen().rmsprop(p, g, v, a, b, n, args);
}
void lamb_moments(const float* p, const float* g, float* m, float* v, std::int64_t n, const AdamwArgs& args,
                  double* p_squares, double* u_squares) {
  chosen().lamb_moments(p, g, m, v, n, args, p_squares, u_squares);
}
void lamb_apply(float* p, const float* m, const float* v, std::int64_t n, const AdamwArgs& args, double trust_ratio) {
  chosen().lamb_apply(p, m, v, n, args, trust_ratio);
}
void bin_squares(const float* g, float gradient_scale, std::int64_t begin, std::int64_t n, const BinnedMatrix& matrix) {
  chosen().bin_squares(g, gradient_scale, begin, n, matrix);
}
void factored_direction(const float* g, float gradient_scale, std::int64_t begin, std::int64_t n,
                        const Factors& factors, float* u) {
  chosen().factored_direction(g, gradient_scale, begin, n, factors, u);
}
void adafactor_moment(const float* g, float gradient_scale, float* v, std::int64_t n, double rate, double epsilon) {
  chosen().adafactor_moment(g, gradient_scale, v, n, rate, epsilon);
}
void adafactor_direction(const float* g, float gradient_scale, const float* v, std::int64_t n, float* u) {
  chosen().adafactor_direction(g, gradient_scale, v, n, u);
}
void adafactor_apply(float* p, const float* u, float* m, std::int64_t n, const AdafactorArgs& args) {
  chosen().adafactor_apply(p, u, m, n, args);
}
void block_squares(const float* x, std::int64_t n, double* sums) { chosen().block_squares(x, n, sums); }
double softmax_cross_entropy(float* logits, const std::int64_t* targets, std::int64_t rows, std::int64_t columns,
                             float scale, bool gradient) {
  return chosen().softmax_cross_entropy(logits, targets, rows, columns, scale, gradient);
}
void gelu_tanh(const float* x, const float* bias, float* y, std::int64_t rows, std::int64_t columns) {
  chosen().gelu_tanh(x, bias, y, rows, columns);
}
void gelu_tanh_backward(const float* x, const float* bias, const float* dy, float* dx, float* dbias, std::int64_t rows,
                        std::int64_t columns) {
  chosen().gelu_tanh_backward(x, bias, dy, dx, dbias, rows, columns);
}
void layer_norm(const LayerNormForward& a, std::int64_t rows, std::int64_t columns) {
  chosen().layer_norm(a, rows, columns);
}
void layer_norm_backward(const LayerNormBackward& a, std::int64_t rows, std::int64_t columns) {
  chosen().layer_norm_backward(a, rows, columns);
}
void rms_norm(const RmsNormForward& a, std::int64_t rows, std::int64_t columns) { chosen().rms_norm(a, rows, columns); }
void rms_norm_backward(const RmsNormBackward& a, std::int64_t rows, std::int64_t columns) {
  chosen().rms_norm_backward(a, rows, columns);
}
void swiglu(const float* gate, const float* up, float* y, std::int64_t n) { chosen().swiglu(gate, up, y, n); }
void swiglu_backward(const float* gate, const float* up, const float* dy, float* dgate, float* dup, std::int64_t n) {
  chosen().swiglu_backward(gate, up, dy, dgate, dup, n);
}
void attention(const AttentionHead& a, std::int64_t first, std::int64_t end, float* out, std::int64_t out_stride,
               float* log_sums, float* scratch) {
  chosen().attention(a, first, end, out, out_stride, log_sums, scratch);
}

void attention_backward(const AttentionHead& a, const AttentionGradients& g, float* scratch) {
  chosen().attention_backward(a, g, scratch);
}

void rotary(const Rotary& a, std::int64_t first, std::int64_t end, std::int64_t heads, std::int64_t size) {
  chosen().rotary(a, first, end, heads, size);
}
void column_sums(const float* x, float* out, std::int64_t rows, std::int64_t columns) {
  chosen().column_sums(x, out, rows, columns);
}
void add_rows(const float* x, const float* delta, const float* bias, float* y, std::int64_t rows,
              std::int64_t columns) {
  chosen().add_rows(x, delta, bias, y, rows, columns);
}
void reduce(const Reduce& what, std::int64_t n) {
  TESSERA_CHECK(what.input_count >= 1 && what.input_count <= max_reduce_inputs, "reduce of ", what.input_count,
                " arrays; 1..", max_reduce_inputs, " are supported");
  TESSERA_CHECK(what.output_count >= 1, "reduce into ", what.output_count, " arrays");
  TESSERA_CHECK(what.fold != Fold::mean || what.number <= Number::fp16, "reduce: a mean of integers is not supported");
  TESSERA_CHECK(!what.fp32_output || what.number == Number::bf16 || what.number == Number::fp16,
                "reduce: fp32_output requires bf16 or fp16 inputs");
  chosen().reduce(what, n);
}
void dropout(const float* x, float* y, std::int64_t n, std::uint64_t key, std::uint32_t first, std::uint32_t limit,
             float scale) {
  chosen().dropout(x, y, n, key, first, limit, scale);
}
void uniform(float* y, std::int64_t n, std::uint64_t key, std::uint32_t first) { chosen().uniform(y, n, key, first); }
void quantize_four_bits(const float* x, std::int64_t n, FourBits type, std::uint8_t* codes, float* absmax) {
  chosen().quantize_four_bits(x, n, type, codes, absmax);
}
void dequantize_four_bits(const std::uint8_t* codes, const float* absmax, std::int64_t n, FourBits type, float* y) {
  chosen().dequantize_four_bits(codes, absmax, n, type, y);
}
void quantize_int8_rows(const float* x, std::int64_t rows, std::int64_t columns, std::int8_t* codes, float* absmax) {
  chosen().quantize_int8_rows(x, rows, columns, codes, absmax);
}
void dequantize_int8_rows(const std::int8_t* codes, const float* absmax, std::int64_t rows, std::int64_t columns,
                          float* y) {
  chosen().dequantize_int8_rows(codes, absmax, rows, columns, y);
}
void encode_eight_bits(const float* x, std::int64_t n, EightBitMap map, EightBits to) {
  chosen().encode_eight_bits(x, n, map, to);
}
void decode_eight_bits(EightBits from, std::int64_t n, EightBitMap map, float* y) {
  chosen().decode_eight_bits(from, n, map, y);
}
void adamw_eight_bits(float* p, const float* g, EightBits m, EightBits v, std::int64_t n, const AdamwArgs& args) {
  chosen().adamw_eight_bits(p, g, m, v, n, args);
}
void lion_eight_bits(float* p, const float* g, EightBits m, std::int64_t n, const LionArgs& args) {
  chosen().lion_eight_bits(p, g, m, n, args);
}
void stream_copy(void* to, const void* from, std::int64_t bytes) { chosen().stream_copy(to, from, bytes); }

}  // namespace tessera::kernels
