// The driver API without linking it: the library is opened at run time, as a program on a machine
// without one must.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include "check.h"

// Gives the function under its newest name in libcuda.so.1.
template <typename Function>
Function* driver_symbol(const char* name) {
    static void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
        printf("cannot open libcuda.so.1\n");
        exit(1);
    }
    void* symbol = dlsym(library, name);
    if (symbol == nullptr) {
        printf("libcuda.so.1 lacks %s\n", name);
        exit(1);
    }
    return reinterpret_cast<Function*>(symbol);
}

#define DRIVER_STRING_OF(x) #x
#define DRIVER_STRING(x) DRIVER_STRING_OF(x)
// cuda.h maps a name to its newest version by a macro; the string is taken after that.
#define DRIVER(function) driver_symbol<decltype(function)>(DRIVER_STRING(function))

#define CHECK_DRIVER(call)                                                        \
    do {                                                                          \
        CUresult driver_result = (call);                                          \
        if (driver_result != CUDA_SUCCESS) {                                      \
            const char* driver_name = "?";                                        \
            DRIVER(cuGetErrorName)(driver_result, &driver_name);                  \
            printf("%s:%d: %s gave %s\n", __FILE__, __LINE__, #call, driver_name); \
            end_wrong();                                                          \
        }                                                                         \
    } while (0)

#define EXPECT_DRIVER(call, wanted)                                                           \
    do {                                                                                      \
        CUresult driver_result = (call);                                                      \
        const char* driver_name = "?";                                                        \
        DRIVER(cuGetErrorName)(driver_result, &driver_name);                                  \
        printf("%s: %s\n", #call, driver_name);                                               \
        if (driver_result != (wanted)) {                                                      \
            printf("%s:%d: expected %d\n", __FILE__, __LINE__, static_cast<int>(wanted));     \
            unexpected_errors++;                                                              \
        }                                                                                     \
    } while (0)

// One of two, where drivers differ.
#define EXPECT_DRIVER_EITHER(call, one, other)                                                \
    do {                                                                                      \
        CUresult driver_result = (call);                                                      \
        const char* driver_name = "?";                                                        \
        DRIVER(cuGetErrorName)(driver_result, &driver_name);                                  \
        printf("%s: %s\n", #call, driver_name);                                               \
        if (driver_result != (one) && driver_result != (other)) {                             \
            printf("%s:%d: expected %d\n", __FILE__, __LINE__, static_cast<int>(one));        \
            unexpected_errors++;                                                              \
        }                                                                                     \
    } while (0)
