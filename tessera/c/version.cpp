#include <tessera/base/version.h>
#include <tessera/c/tessera_c.h>

extern "C" {

int32_t tessera_abi_version(void) { return TESSERA_ABI_VERSION; }
const char* tessera_version(void) { return TESSERA_VERSION; }

}  // extern "C"
