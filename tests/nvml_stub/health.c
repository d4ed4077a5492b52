/* Modes, repairs, SRAM, the fabric, MIG: what newer drivers answer. */
#include "stub.h"

#include <string.h>

#define VERSIONED(TYPE, NUMBER) ((unsigned)sizeof(TYPE) | (NUMBER) << 24)
#define UINT_CALL(NAME, NUMBER)                                \
    nvmlReturn_t NAME(nvmlDevice_t handle, unsigned *out)      \
    {                                                          \
        return stub_uint(#NAME, handle, NUMBER, out);          \
    }

UINT_CALL(nvmlDeviceGetPerformanceState, "performance_state")
UINT_CALL(nvmlDeviceGetPersistenceMode, "persistence_mode")
UINT_CALL(nvmlDeviceGetFanSpeed, "fan_speed")
UINT_CALL(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")
UINT_CALL(nvmlDeviceGetMaxMigDeviceCount, "mig_devices_max")

typedef struct {
    unsigned version;
    int margin;
} nvmlMarginTemperature_t;

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t handle, nvmlMarginTemperature_t *out)
{
    double value = 0;
    if (out->version != VERSIONED(nvmlMarginTemperature_t, 1u))
        return VERSION_MISMATCH;
    nvmlReturn_t code = stub_number("nvmlDeviceGetMarginTemperature", handle, "thermal_margin", &value);
    out->margin = (int)value;
    return code;
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t handle, unsigned *out)
{
    return stub_uint("nvmlDeviceGetVirtualizationMode", handle, "virtualization_mode", out);
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t handle)
{
    double valid = 1;
    nvmlReturn_t code = stub_number("nvmlDeviceValidateInforom", handle, "inforom_valid", &valid);
    return code == SUCCESS && valid == 0 ? CORRUPTED_INFOROM : code;
}

/* ---- memory ---- */

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory)
{
    static const char *names[] = {"memory_total", "memory_used", "memory_reserved"};
    double values[3];
    if (memory->version != VERSIONED(nvmlMemory_v2_t, 2u))
        return VERSION_MISMATCH;
    nvmlReturn_t code = stub_numbers("nvmlDeviceGetMemoryInfo_v2", handle, names, 3, values);
    if (code != SUCCESS)
        return code;
    memory->total = (unsigned long long)values[0];
    memory->used = (unsigned long long)values[1];
    memory->reserved = (unsigned long long)values[2];
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

typedef struct {
    unsigned long long total, free, used;
} nvmlBAR1Memory_t;

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, nvmlBAR1Memory_t *memory)
{
    static const char *names[] = {"bar1_total", "bar1_used"};
    double values[2];
    nvmlReturn_t code = stub_numbers("nvmlDeviceGetBAR1MemoryInfo", handle, names, 2, values);
    if (code != SUCCESS)
        return code;
    memory->total = (unsigned long long)values[0];
    memory->used = (unsigned long long)values[1];
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* ---- modes ---- */

static nvmlReturn_t read_pair(const char *call, nvmlDevice_t handle, const char **names, unsigned *first,
                              unsigned *second)
{
    double values[2];
    nvmlReturn_t code = stub_numbers(call, handle, names, 2, values);
    if (code != SUCCESS)
        return code;
    *first = (unsigned)values[0];
    *second = (unsigned)values[1];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, unsigned *current, unsigned *pending)
{
    static const char *names[] = {"ecc_mode", "ecc_mode_pending"};
    return read_pair("nvmlDeviceGetEccMode", handle, names, current, pending);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *current, unsigned *pending)
{
    static const char *names[] = {"mig_mode", "mig_mode_pending"};
    return read_pair("nvmlDeviceGetMigMode", handle, names, current, pending);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned index, nvmlDevice_t *out)
{
    double devices = 0;
    nvmlReturn_t code =
        stub_number("nvmlDeviceGetMigDeviceHandleByIndex", handle, "mig_devices", &devices);
    if (code != SUCCESS)
        return code;
    if (index >= (unsigned)devices)
        return NOT_FOUND;
    *out = stub_instance(handle->gpu, index);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned *out)
{
    double value = 0;
    if (handle->instance == 0)
        return INVALID_ARGUMENT;
    nvmlReturn_t code = stub_instance_number("nvmlDeviceGetGpuInstanceId", handle, "gpu_instance", &value);
    *out = (unsigned)value;
    return code;
}

/* Of a MIG device only, and there of uncorrected (1), volatile (0) errors of SRAM (7). */
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t handle, unsigned error, unsigned counter,
                                             unsigned location, unsigned long long *out)
{
    double value = 0;
    if (handle->instance == 0 || error != 1 || counter != 0 || location != 7)
        return NOT_SUPPORTED;
    nvmlReturn_t code = stub_instance_number("nvmlDeviceGetMemoryErrorCounter", handle, "sram_uncorrected", &value);
    *out = (unsigned long long)value;
    return code;
}

/* ---- repairs ---- */

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t handle, unsigned *out)
{
    static const char *names[] = {"banks_max", "banks_high", "banks_partial", "banks_low", "banks_none"};
    double values[5];
    nvmlReturn_t code = stub_numbers("nvmlDeviceGetRowRemapperHistogram", handle, names, 5, values);
    for (int i = 0; code == SUCCESS && i < 5; i++)
        out[i] = (unsigned)values[i];
    return code;
}

typedef struct {
    unsigned version, channel_pending, tpc_pending;
} nvmlRepairStatus_t;

nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t handle, nvmlRepairStatus_t *out)
{
    static const char *names[] = {"channel_repair_pending", "tpc_repair_pending"};
    if (out->version != VERSIONED(nvmlRepairStatus_t, 1u))
        return VERSION_MISMATCH;
    return read_pair("nvmlDeviceGetRepairStatus", handle, names, &out->channel_pending, &out->tpc_pending);
}

typedef struct {
    unsigned version, unrepairable;
} nvmlUnrepairableMemory_t;

nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t handle, nvmlUnrepairableMemory_t *out)
{
    return stub_uint("nvmlDeviceGetUnrepairableMemoryFlag_v1", handle, "memory_unrepairable",
                     &out->unrepairable);
}

typedef struct {
    unsigned version;
    unsigned long long counts[11];
    unsigned exceeded;
} nvmlEccSramErrorStatus_t;

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t handle, nvmlEccSramErrorStatus_t *out)
{
    static const char *names[] = {
        "sram_aggregate_parity", "sram_aggregate_secded", "sram_aggregate_corrected",
        "sram_volatile_parity",  "sram_volatile_secded",  "sram_volatile_corrected",
        "sram_l2",               "sram_sm",               "sram_pcie",
        "sram_mcu",              "sram_other",            "sram_threshold_exceeded"};
    double values[12];
    if (out->version != VERSIONED(nvmlEccSramErrorStatus_t, 1u))
        return VERSION_MISMATCH;
    nvmlReturn_t code = stub_numbers("nvmlDeviceGetSramEccErrorStatus", handle, names, 12, values);
    if (code != SUCCESS)
        return code;
    for (int i = 0; i < 11; i++)
        out->counts[i] = (unsigned long long)values[i];
    out->exceeded = (unsigned)values[11];
    return SUCCESS;
}

/* ---- fabric ---- */

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    unsigned error, clique;
    unsigned char state;
    unsigned mask;
    unsigned char summary; /* from version 3 on */
} nvmlGpuFabricInfo_t;

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t handle, nvmlGpuFabricInfo_t *out)
{
    static const char *names[] = {"fabric_state", "fabric_error", "fabric_clique", "fabric_mask",
                                  "fabric_version"};
    double values[5], summary = 0;
    nvmlReturn_t code = stub_numbers("nvmlDeviceGetGpuFabricInfoV", handle, names, 5, values);
    if (code != SUCCESS)
        return code;
    unsigned version = out->version >> 24;
    if (version > (unsigned)values[4])
        return VERSION_MISMATCH;
    out->state = (unsigned char)values[0];
    out->error = (unsigned)values[1];
    out->clique = (unsigned)values[2];
    out->mask = (unsigned)values[3];
    if (version >= 3) {
        stub_number("nvmlDeviceGetGpuFabricInfoV", handle, "fabric_health", &summary);
        out->summary = (unsigned char)summary;
    }
    return SUCCESS;
}
