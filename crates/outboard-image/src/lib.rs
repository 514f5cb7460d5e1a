//! CUDA program images: fat binaries, cubin and PTX lengths, kernel parameters.
