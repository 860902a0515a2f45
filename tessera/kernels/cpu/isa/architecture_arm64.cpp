#include <sys/auxv.h>
#include <tessera/kernels/cpu/isa/architecture.h>

namespace tessera::kernels {

extern const Table table_baseline, table_neon;

std::span<const IsaChoice> isa_choices() {
  static constexpr auto always = [] { return true; };  // every 64-bit ARM processor that runs Linux has NEON
  static constexpr IsaChoice choices[] = {{Isa::baseline, always, &table_baseline}, {Isa::neon, always, &table_neon}};
  return choices;
}

bool has_bf16_instructions() {
  constexpr unsigned long bf16 = 1ul << 14;  // HWCAP2_BF16
  return (getauxval(AT_HWCAP2) & bf16) != 0;
}

bool has_fp16_instructions() {
  constexpr unsigned long asimdhp = 1ul << 10;  // HWCAP_ASIMDHP
  return (getauxval(AT_HWCAP) & asimdhp) != 0;
}

bool made_by_intel() { return false; }

}  // namespace tessera::kernels
