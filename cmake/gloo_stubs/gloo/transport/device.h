#pragma once
// Stand-in, see gloo/context.h.

namespace gloo::transport {

class Device {
 public:
  virtual ~Device() = 0;
};

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};

}  // namespace gloo::transport
