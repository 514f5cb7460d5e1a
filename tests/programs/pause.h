// A function for `cudaLaunchHostFunc` that takes a while.
#pragma once

#include <chrono>
#include <thread>

inline void CUDART_CB pause(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }
