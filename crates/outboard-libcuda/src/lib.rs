//! libcuda.so.1: the client library that programs load.
