#pragma once
// Declaration-only stand-ins for Gloo, whose objects are inside libtorch_cpu.so and whose headers are not shipped. They
// let c10d/ProcessGroupGloo.hpp compile in tessera/comm/gloo.cpp and nowhere else. Rules: nothing declared here is laid
// out, subclassed, built or destroyed by us (only std::shared_ptr's to it pass through), and no destructor is defined
// here, so that no vtable of ours takes the place of LibTorch's.

#include <chrono>

namespace gloo {

class Context {
 public:
  virtual ~Context();
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
