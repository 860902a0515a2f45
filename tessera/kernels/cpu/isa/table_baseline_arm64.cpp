#include <tessera/kernels/cpu/binned_sums.h>
#include <tessera/kernels/cpu/dispatch.h>

namespace tessera::kernels {
namespace {
#include <tessera/kernels/cpu/isa/simd_baseline.h>
#include <tessera/kernels/cpu/isa/stream_plain.h>
// The vector type must be included first.

#include <tessera/kernels/cpu/loops.h>
}  // namespace

extern const Table table_baseline;
const Table table_baseline = all_loops;

}  // namespace tessera::kernels
