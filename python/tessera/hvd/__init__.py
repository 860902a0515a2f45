"""Horovod's names over this package's library: `import tessera.hvd.torch as hvd`."""
