#pragma once
/// \file
/// The instruction sets that this machine can run, as test parameters.

#include <gtest/gtest.h>
#include <tessera/kernels/cpu/dispatch.h>

inline std::vector<tessera::kernels::Isa> runnable() { return tessera::kernels::supported_isas(); }
inline std::string name_of(const ::testing::TestParamInfo<tessera::kernels::Isa>& info) {
  return tessera::kernels::isa_name(info.param);
}
