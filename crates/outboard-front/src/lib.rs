//! What a CUDA runtime expects of any driver library, wherever its device is.
