/// \file
/// tessera xla compile: compiles a training step for TPUs that this machine does not have.

#include <tessera/base/error.h>
#include <tools/tessera/commands.h>

#include <algorithm>
#include <cstdio>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera xla compile --topology NAME [settings of tessera train]\n\n"
    "Compiles the training step for devices that this machine lacks, and reports\n"
    "success, memory per device, and collectives. No TPU is\n"
    "needed, and no data; the compiler is libtpu's (pip install libtpu).\n\n"
    "  --topology NAME      v5e:2x2 v5e:4x4 v5p:2x2x1 v6e:2x2 tpu7x:2x2x1 ...\n"
    "  --pjrt_plugin FILE   libtpu.so [TESSERA_PJRT_PLUGIN, TPU_LIBRARY_PATH]\n"
    "  --json               prints JSON\n\n"
    "Settings with an effect: the model (--config_name, --model_name_or_path),\n"
    "--per_device_train_batch_size, --block_size, --fsdp, --bf16,\n"
    "--gradient_checkpointing, --optim.\n";

}  // namespace

int xla_command(const Arguments& arguments) {
  const bool asks = std::ranges::find(arguments, "--help") != arguments.end();
  if (arguments.empty() || asks || arguments[0] != "compile") {
    if (!asks) throw InputError(concat("tessera xla: compile is its only command\n\n", help));
    std::fputs(help, stdout);
    return 0;
  }
  return run_with_tensors("xla_compile", Arguments(arguments.begin() + 1, arguments.end()));
}

}  // namespace tessera::tool
