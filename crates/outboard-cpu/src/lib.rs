//! A CUDA driver library whose device is the CPU.
