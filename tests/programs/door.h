// A host function that keeps its stream waiting.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <thread>

struct Door {
    std::atomic<bool> open{false};
    static void CUDART_CB wait(void* door) {
        while (!static_cast<Door*>(door)->open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
};
