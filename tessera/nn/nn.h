#pragma once
/// \file
/// nn/: operations of neural networks as free functions on tensors, each differentiable. This header includes them all.
///
/// Every operation has two paths. fp32 on the CPU takes a fused path: an autograd function over the kernels of
/// kernels/cpu that saves little and makes one pass over memory. All other cases (other devices, fp64, bf16) take a
/// composition of ATen operations, which is also the reference that the tests compare the fused path with. Parameters
/// may be views of a flat buffer; gradients follow autograd's rules (moved in when undefined, added otherwise).

#include <tessera/nn/accumulate.h>
#include <tessera/nn/activation.h>
#include <tessera/nn/attention.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/dropout.h>
#include <tessera/nn/embedding.h>
#include <tessera/nn/gelu.h>
#include <tessera/nn/layer_norm.h>
#include <tessera/nn/linear.h>
#include <tessera/nn/linear_cross_entropy.h>
#include <tessera/nn/moe/balance.h>
#include <tessera/nn/moe/capacity.h>
#include <tessera/nn/moe/experts.h>
#include <tessera/nn/moe/grouped.h>
#include <tessera/nn/moe/permute.h>
#include <tessera/nn/moe/router.h>
#include <tessera/nn/moe/sinkhorn.h>
#include <tessera/nn/rms_norm.h>
#include <tessera/nn/rotary.h>
#include <tessera/nn/sequence_log_probabilities.h>
#include <tessera/nn/softcap.h>
#include <tessera/nn/swiglu.h>
#include <tessera/nn/weight_gradients.h>
