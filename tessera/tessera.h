#pragma once
/// \file
/// The umbrella: what a program needs to train its own torch::nn::Module on many processes.
///
///   tessera::init()            joins the job of whatever launcher started this process        <tessera/comm/world.h>
///   tessera::Ddp ddp(*module)  data parallelism around an unedited module                     <tessera/parallel/ddp.h>
///   tessera::optim::...        optimizers fused over flat buffers, schedules, norms <tessera/optim/optimizer.h>
///   tessera::comm::Group       collectives on tensors                                         <tessera/comm/group.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/comm/group.h>
#include <tessera/comm/world.h>
#include <tessera/launch/environment.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/ddp.h>
