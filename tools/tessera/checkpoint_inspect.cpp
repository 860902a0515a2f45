#include <tessera/base/error.h>
#include <tools/tessera/checkpoint_tools.h>
namespace tessera::tool {
int checkpoint_inspect(const Arguments&) { throw Error("inspect"); }
}  // namespace tessera::tool
