#include <tessera/kernels/cpu/isa/architecture.h>

namespace tessera::kernels {

extern const Table table_baseline, table_avx2, table_avx512;

namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

}  // namespace

std::span<const IsaChoice> isa_choices() {
  static constexpr IsaChoice choices[] = {{Isa::baseline, [] { return true; }, &table_baseline},
                                          {Isa::avx2, has_avx2, &table_avx2},
                                          {Isa::avx512, has_avx512, &table_avx512}};
  return choices;
}

bool has_bf16_instructions() { return __builtin_cpu_supports("avx512bf16") || __builtin_cpu_supports("amx-bf16"); }
bool has_fp16_instructions() { return __builtin_cpu_supports("avx512fp16"); }

bool made_by_intel() { return __builtin_cpu_is("intel"); }

}  // namespace tessera::kernels
