// The backend `nccl`, implemented by the CUDA plug-in (plugin_cuda.cpp).
#include <tessera/comm/backend_plugin.h>

std::shared_ptr<tessera::comm::Backend> tessera::layout::Nccl::make(const comm::BackendRequest& request) {
  return comm::backend_plugin("cuda").make_backend(request);
}
