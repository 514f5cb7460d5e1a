//! Loads a CUDA driver library into a table of functions.
