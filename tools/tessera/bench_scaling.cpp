/// \file
/// tessera bench scaling.
#include <tessera/base/error.h>
#include <tools/tessera/bench_scaling.h>
namespace tessera::tool {
int scaling_command(const Arguments&) { throw InputError("tessera bench scaling is not here yet"); }
}  // namespace tessera::tool
