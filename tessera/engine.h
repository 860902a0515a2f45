#pragma once
/// \file
/// The faces of the systems that users know, around any torch::nn::Module, unedited:
///
///   tessera::initialize(model, {.config = "ds.json"})   DeepSpeed's engine               <tessera/engine/deepspeed.h>
///   tessera::Accelerator                                Hugging Face Accelerate's        <tessera/engine/accelerator.h>
///   tessera::Trainer, tessera::TrainingArguments        Hugging Face transformers'       <tessera/engine/trainer.h>
///
/// All three stand on tessera::Sharded (one engine for DDP, ZeRO and FSDP) and read
/// the same settings as `tessera train`.

#include <tessera/engine/accelerator.h>
#include <tessera/engine/deepspeed.h>
#include <tessera/engine/trainer.h>
