/* Modes, limits and worn parts of one GPU: what hardly ever changes. */
#include "stub.h"

#include <string.h>

/* As stub_enter_gpu, then a number or NOT_SUPPORTED. */
static nvmlReturn_t read_unsigned(const char *call, nvmlDevice_t handle, const char *name, unsigned *out)
{
    struct gpu *gpu;
    double value = 0;
    nvmlReturn_t code = stub_enter_gpu(call, handle, &gpu);
    if (code != SUCCESS)
        return code;
    if (!scenario_number(gpu, name, &value))
        return stub_leave(NOT_SUPPORTED);
    *out = (unsigned)value;
    return stub_leave(SUCCESS);
}

static nvmlReturn_t read_pair(const char *call, nvmlDevice_t handle, const char *first, const char *second,
                              unsigned *out_first, unsigned *out_second)
{
    nvmlReturn_t code = read_unsigned(call, handle, first, out_first);
    return code == SUCCESS ? read_unsigned(call, handle, second, out_second) : code;
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t handle, unsigned *out)
{
    return read_unsigned("nvmlDeviceGetPerformanceState", handle, "performance_state", out);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t handle, unsigned *out)
{
    return read_unsigned("nvmlDeviceGetPersistenceMode", handle, "persistence_mode", out);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t handle, unsigned *out)
{
    return read_unsigned("nvmlDeviceGetPowerManagementDefaultLimit", handle, "power_limit_default_mw", out);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, unsigned *current, unsigned *pending)
{
    return read_pair("nvmlDeviceGetEccMode", handle, "ecc_mode", "ecc_mode_pending", current, pending);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *current, unsigned *pending)
{
    return read_pair("nvmlDeviceGetMigMode", handle, "mig_mode", "mig_mode", current, pending);
}

#ifndef OLD_DRIVER
typedef struct {
    unsigned version;
    int marginTemperature;
} nvmlMarginTemperature_t;

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t handle, nvmlMarginTemperature_t *out)
{
    unsigned value = 0;
    if (out->version != (sizeof *out | 1u << 24))
        return VERSION_MISMATCH;
    nvmlReturn_t code =
        read_unsigned("nvmlDeviceGetMarginTemperature", handle, "temperature_margin", &value);
    out->marginTemperature = (int)value;
    return code;
}

typedef struct {
    unsigned version;
    unsigned unrepairableMemory;
} nvmlUnrepairableMemory_t;

nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t handle, nvmlUnrepairableMemory_t *out)
{
    return read_unsigned("nvmlDeviceGetUnrepairableMemoryFlag_v1", handle, "memory_unrepairable",
                         &out->unrepairableMemory);
}

typedef struct {
    unsigned version;
    unsigned bChannelRepairPending, bTpcRepairPending;
} nvmlRepairStatus_t;

nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t handle, nvmlRepairStatus_t *out)
{
    return read_pair("nvmlDeviceGetRepairStatus", handle, "channel_repair_pending", "tpc_repair_pending",
                     &out->bChannelRepairPending, &out->bTpcRepairPending);
}

typedef struct {
    unsigned version;
    unsigned long long aggregateUncParity, aggregateUncSecDed, aggregateCor;
    unsigned long long volatileUncParity, volatileUncSecDed, volatileCor;
    unsigned long long buckets[5];
    unsigned bThresholdExceeded;
} nvmlEccSramErrorStatus_t;

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t handle, nvmlEccSramErrorStatus_t *out)
{
    unsigned parity = 0, secded = 0, threshold = 0, corrected = 0;
    if (out->version != (sizeof *out | 1u << 24))
        return VERSION_MISMATCH;
    nvmlReturn_t code = read_pair("nvmlDeviceGetSramEccErrorStatus", handle, "sram_parity", "sram_secded",
                                  &parity, &secded);
    if (code == SUCCESS)
        code = read_pair("nvmlDeviceGetSramEccErrorStatus", handle, "sram_corrected",
                         "sram_threshold_exceeded", &corrected, &threshold);
    out->aggregateUncParity = parity;
    out->aggregateUncSecDed = secded;
    out->aggregateCor = corrected;
    out->bThresholdExceeded = threshold;
    return code;
}

typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId;
    unsigned state;
    unsigned healthMask;
} nvmlGpuFabricInfo_t;

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t handle, nvmlGpuFabricInfo_t *out)
{
    unsigned code_of_registration = 0;
    if (out->version != (sizeof *out | 2u << 24))
        return VERSION_MISMATCH;
    memset(out->clusterUuid, 0, sizeof out->clusterUuid);
    out->cliqueId = 0;
    nvmlReturn_t code = read_pair("nvmlDeviceGetGpuFabricInfoV", handle, "fabric_state", "fabric_health_mask",
                                  &out->state, &out->healthMask);
    if (code == SUCCESS)
        code = read_unsigned("nvmlDeviceGetGpuFabricInfoV", handle, "fabric_error_code",
                             &code_of_registration);
    out->status = (nvmlReturn_t)code_of_registration;
    return code;
}
#endif

typedef struct {
    unsigned max, high, partial, low, none;
} nvmlRowRemapperHistogramValues_t;

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t handle, nvmlRowRemapperHistogramValues_t *out)
{
    static const char call[] = "nvmlDeviceGetRowRemapperHistogram";
    nvmlReturn_t code =
        read_pair(call, handle, "remap_banks_max", "remap_banks_high", &out->max, &out->high);
    if (code == SUCCESS)
        code = read_pair(call, handle, "remap_banks_partial", "remap_banks_low", &out->partial, &out->low);
    return code == SUCCESS ? read_unsigned(call, handle, "remap_banks_none", &out->none) : code;
}
