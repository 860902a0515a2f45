#pragma once
/// \file
/// The umbrella: what a program needs to train its own torch::nn::Module on many processes.
///
///   tessera::init()                          joins the job of whatever launcher started this process
///                                            <tessera/comm/world.h>
///   tessera::Ddp ddp(*module)                data parallelism around an unedited module
///                                            <tessera/parallel/ddp.h>
///   tessera::DataParallel dp(module)         nn.DataParallel: replicas in one process, on devices or teams of threads
///                                            <tessera/parallel/replicas/data_parallel.h>
///   tessera::Sharded fsdp(*module, {...})    ZeRO, FSDP, HSDP: parameters, gradients, states divided
///                                            <tessera/parallel/fully_shard.h>
///   tessera::deferred<M>(...)                a module without memory until it is sharded
///                                            <tessera/parallel/deferred/deferred.h>
///   tessera::pipeline(*sequential, {...})    layers of your own module on different ranks
///                                            <tessera/parallel/pipeline/pipeline_parallel.h>
///   tessera::record_step(*module, {...}, [&] { ... })
///                                            what one step of a module does, for `tessera plan --model FILE`
///                                            <tessera/parallel/recorder/record_step.h>
///   tessera::checkpointed(f, x)              activations recomputed in backward
///                                            <tessera/parallel/recompute/checkpoint_activations.h>
///   tessera::context_attention(q, k, v, groups)
///                                            attention over sequences whose tokens lie on several ranks
///                                            <tessera/parallel/context/attention.h>
///   tessera::OffloadActivations, CompressActivations
///                                            <tessera/parallel/autograd/saved_tensors.h>
///   tessera::optim::...                      optimizers fused over flat buffers, schedules, norms
///                                            <tessera/optim/optimizer.h>
///   tessera::comm::Group                     collectives on tensors
///                                            <tessera/comm/group.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/comm/group.h>
#include <tessera/comm/world.h>
#include <tessera/launch/cli/environment.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/autograd/saved_tensors.h>
#include <tessera/parallel/context/attention.h>
#include <tessera/parallel/ddp.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/pipeline/pipeline_parallel.h>
#include <tessera/parallel/recompute/checkpoint_activations.h>
#include <tessera/parallel/recorder/record_step.h>
#include <tessera/parallel/replicas/data_parallel.h>
