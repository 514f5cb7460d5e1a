// The log of errors: failed calls leave messages, which are read from an iterator on, or told to a
// function.
#include "check.h"
#include "driver.h"

#include <cstring>
#include <string>
#include <unistd.h>

static int told = 0;
static bool well_told = true;

static void listen(void* data, CUlogLevel level, char* message, size_t length) {
    well_told = well_told && data == &told && level == CU_LOG_LEVEL_ERROR && strlen(message) == length && length > 0;
    told++;
}

static void fail() {
    CUmodule module;
    EXPECT(DRIVER(cuModuleLoadData)(&module, "no image of any kind") != CUDA_SUCCESS);
}

int main() {
    CHECK(cudaFree(nullptr));
    CUlogIterator start, later, next;
    CHECK_DRIVER(DRIVER(cuLogsCurrent)(&start, 0));
    fail();
    CHECK_DRIVER(DRIVER(cuLogsCurrent)(&later, 0));
    EXPECT(later != start);

    std::vector<char> text(32768);
    size_t size = text.size();
    next = start;
    CHECK_DRIVER(DRIVER(cuLogsDumpToMemory)(&next, text.data(), &size, 0));
    EXPECT(size > 0 && size < text.size() && text[size] == 0 && strlen(text.data()) == size);
    EXPECT(next == later);
    printf("a failed call left a message\n");

    // Nothing since.
    size = text.size();
    CHECK_DRIVER(DRIVER(cuLogsDumpToMemory)(&next, text.data(), &size, 0));
    EXPECT(size == 0);
    // No room for anything.
    next = start;
    size = 4;
    EXPECT_DRIVER(DRIVER(cuLogsDumpToMemory)(&next, text.data(), &size, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(size == 0);

    char path[] = "/tmp/outboard-logs-XXXXXX";
    int file = mkstemp(path);
    EXPECT(file >= 0);
    CHECK_DRIVER(DRIVER(cuLogsDumpToFile)(nullptr, path, 0));
    EXPECT(read(file, text.data(), text.size()) > 0);
    close(file);
    unlink(path);
    printf("the file has it too\n");

    CUlogsCallbackHandle handle;
    CHECK_DRIVER(DRIVER(cuLogsRegisterCallback)(listen, &told, &handle));
    fail();
    EXPECT(told > 0 && well_told);
    CHECK_DRIVER(DRIVER(cuLogsUnregisterCallback)(handle));
    int before = told;
    fail();
    EXPECT(told == before);
    printf("a listener was told\n");
    EXPECT_DRIVER(DRIVER(cuLogsCurrent)(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuLogsRegisterCallback)(nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    return outcome();
}
