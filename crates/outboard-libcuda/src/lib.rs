//! `libcuda.so.1`: the client library that programs load. Exports the C entry points, and nothing else.

outboard_front::driver_exports!(outboard_client::Remote);
