// An NVML library for a server without one: it knows every UUID, and answers what shows that
// arguments and results of each kind arrive whole. Built as a shared library; what it says is what
// nvml.py expects.
#include <nvml.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#undef nvmlInit
#undef nvmlDeviceGetMemoryInfo

static char devices[16][96];
static int known = 0;

static nvmlReturn_t check(nvmlDevice_t device) {
    const char *name = reinterpret_cast<const char *>(device);
    return name >= devices[0] && name < devices[known] ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t text(const char *from, char *to, unsigned length) {
    if (!to) return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(from) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, from);
    return NVML_SUCCESS;
}

extern "C" {

nvmlReturn_t nvmlInit_v2(void) { return NVML_SUCCESS; }

// A handle is the address of the UUID, which the name repeats.
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    if (known == 16 || strlen(uuid) >= sizeof devices[0]) return NVML_ERROR_NOT_FOUND;
    strcpy(devices[known], uuid);
    *device = reinterpret_cast<nvmlDevice_t>(devices[known++]);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) { return text("1.2.3", version, length); }

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    return text(reinterpret_cast<const char *>(device), name, length);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned *value) {
    *value = 42 + sensor;
    return check(device);
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *margin) {
    if (margin->version != nvmlMarginTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    margin->marginTemperature = -7;
    return check(device);
}

// Each device's first link leads to the second device, as its server addresses it.
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) {
    if (link > 0) return NVML_ERROR_NOT_SUPPORTED;
    *pci = {};
    pci->bus = 2;
    strcpy(pci->busIdLegacy, "0000:02:00.0");
    strcpy(pci->busId, "00000000:02:00.0");
    return check(device);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *memory = {memory->version, 1000, 1, 900, 99};
    return check(device);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    *memory = {1000, 901, 99};
    return check(device);
}

// Hangs once a file of the name in the environment is there.
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    const char *file = getenv("FAKE_NVML_HANGS");
    while (file && access(file, F_OK) == 0) usleep(10000);
    *rates = {43, 7};
    return check(device);
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count, unsigned *clocks) {
    const unsigned room = *count;
    *count = 3;
    if (room < 3) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < 3; i++) clocks[i] = 100 * (i + 1);
    return check(device);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    for (int i = 0; i < count; i++) {
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].value.uiVal = values[i].fieldId * 10 + values[i].scopeId;
        values[i].nvmlReturn = NVML_SUCCESS;
    }
    return check(device);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level) {
    *level = one == other ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_NODE;
    return check(one) == NVML_SUCCESS ? check(other) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t what,
                                    nvmlGpuP2PStatus_t *status) {
    *status = what == NVML_P2P_CAPS_INDEX_NVLINK ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    return check(one) == NVML_SUCCESS ? check(other) : NVML_ERROR_INVALID_ARGUMENT;
}

// Memory of the first device is broken once a file of the name in the environment is there.
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrectable,
                                       unsigned *pending, unsigned *failed) {
    const char *file = getenv("FAKE_NVML_FAILS");
    *corrected = *uncorrectable = *pending = 1;
    *failed = file && access(file, F_OK) == 0 && reinterpret_cast<const char *>(device) == devices[0];
    return check(device);
}

// As a header later than 13.0 declares them, whose types are given by their fields alone.
nvmlReturn_t nvmlDeviceGetRemappedRows_v2(nvmlDevice_t device, unsigned (*info)[6]) {
    for (unsigned at = 0; at < 6; at++) (*info)[at] = 10 + at;
    return check(device);
}

nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device, unsigned *status) {
    *status = 1;
    return check(device);
}

// Stands for what must never be called.
nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t, nvmlEnableState_t) {
    __builtin_trap();
}
}
