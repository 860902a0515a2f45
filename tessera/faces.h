#pragma once
/// \file
/// The faces of the systems that users know, around any torch::nn::Module, unedited:
///
///   tessera::initialize(model, {.config = "ds.json"})   DeepSpeed's engine               <tessera/faces/deepspeed.h>
///   tessera::Accelerator                                Hugging Face Accelerate's        <tessera/faces/accelerator.h>
///   tessera::Trainer, tessera::TrainingArguments        Hugging Face transformers'       <tessera/faces/trainer.h>
///
/// All three are built on tessera::Sharded (one engine for DDP, ZeRO and FSDP) and read
/// the same settings as `tessera train`.

#include <tessera/faces/accelerator.h>
#include <tessera/faces/deepspeed.h>
#include <tessera/faces/trainer.h>
