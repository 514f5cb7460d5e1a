// Settings of core dumps: what they are at first, and what was set. No dump is asked for.
#include "check.h"
#include "driver.h"

#include <cstring>

int main() {
    CHECK(cudaFree(nullptr));
    bool value = true;
    size_t size = sizeof value;
    CHECK_DRIVER(DRIVER(cuCoredumpGetAttribute)(CU_COREDUMP_ENABLE_ON_EXCEPTION, &value, &size));
    EXPECT(!value);
    CHECK_DRIVER(DRIVER(cuCoredumpGetAttributeGlobal)(CU_COREDUMP_ENABLE_USER_TRIGGER, &value, &size));
    EXPECT(!value);
    CHECK_DRIVER(DRIVER(cuCoredumpSetAttribute)(CU_COREDUMP_ENABLE_ON_EXCEPTION, &value, &size));

    char name[1024] = "";
    char wanted[] = "/tmp/outboard.dump";
    size = sizeof wanted;
    CHECK_DRIVER(DRIVER(cuCoredumpSetAttributeGlobal)(CU_COREDUMP_FILE, wanted, &size));
    size = sizeof name;
    CHECK_DRIVER(DRIVER(cuCoredumpGetAttributeGlobal)(CU_COREDUMP_FILE, name, &size));
    EXPECT(strcmp(name, wanted) == 0);
    printf("settings of dumps\n");
    return outcome();
}
