#pragma once
/// \file
/// The instruction sets that this machine can run, as test parameters.

#include <gtest/gtest.h>
#include <tessera/kernels/cpu/dispatch.h>

inline std::vector<tessera::kernels::Isa> runnable() {
  using tessera::kernels::Isa;
  std::vector<Isa> out;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (tessera::kernels::supported(isa)) out.push_back(isa);
  return out;
}
inline std::string name_of(const ::testing::TestParamInfo<tessera::kernels::Isa>& info) {
  return tessera::kernels::isa_name(info.param);
}
