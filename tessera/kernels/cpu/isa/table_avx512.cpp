#include <immintrin.h>

#include <tessera/kernels/cpu/binned_sums.h>
#include <tessera/kernels/cpu/dispatch.h>

namespace tessera::kernels {
namespace {
#include <tessera/kernels/cpu/isa/simd_avx512.h>
// The vector type must be included first.

#include <tessera/kernels/cpu/loops.h>
}  // namespace

extern const Table table_avx512;
const Table table_avx512 = all_loops;

}  // namespace tessera::kernels
