# The CUDA plug-in: NCCL groups and CUDA kernels. Compiles and links without a GPU; dlopen'ed only where one is used.
message(STATUS "CUDA plug-in: OFF (not written yet)")
