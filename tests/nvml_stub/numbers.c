/* Readings of one GPU: numbers, field values, NVLinks. */
#include "stub.h"

#include <stdio.h>
#include <string.h>

nvmlReturn_t stub_number(const char *call, nvmlDevice_t handle, const char *name, double *value)
{
    struct gpu *gpu;
    nvmlReturn_t code = stub_enter_gpu(call, handle, &gpu);
    if (code != SUCCESS)
        return code;
    return stub_leave(scenario_number(gpu, name, value) ? SUCCESS : NOT_SUPPORTED);
}

nvmlReturn_t stub_uint(const char *call, nvmlDevice_t handle, const char *name, unsigned *out)
{
    double value = 0;
    nvmlReturn_t code = stub_number(call, handle, name, &value);
    if (code == SUCCESS)
        *out = (unsigned)value;
    return code;
}

static nvmlReturn_t read_u64(const char *call, nvmlDevice_t handle, const char *name, unsigned long long *out)
{
    double value = 0;
    nvmlReturn_t code = stub_number(call, handle, name, &value);
    if (code == SUCCESS)
        *out = (unsigned long long)value;
    return code;
}

/* ---- numbers ---- */

#define UINT_CALL(NAME, NUMBER)                                \
    nvmlReturn_t NAME(nvmlDevice_t handle, unsigned *out)      \
    {                                                          \
        return stub_uint(#NAME, handle, NUMBER, out);          \
    }

#define U64_CALL(NAME, NUMBER)                                          \
    nvmlReturn_t NAME(nvmlDevice_t handle, unsigned long long *out)     \
    {                                                                   \
        return read_u64(#NAME, handle, NUMBER, out);                    \
    }

UINT_CALL(nvmlDeviceGetPowerUsage, "power_mw")
UINT_CALL(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
U64_CALL(nvmlDeviceGetTotalEnergyConsumption, "energy_mj")
U64_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, "clock_event_reasons")
UINT_CALL(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
UINT_CALL(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
UINT_CALL(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")
UINT_CALL(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
UINT_CALL(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, unsigned sensor, unsigned *out)
{
    return sensor == 0 ? stub_uint("nvmlDeviceGetTemperature", handle, "temperature", out)
                       : INVALID_ARGUMENT;
}

#ifndef OLD_DRIVER
typedef struct {
    unsigned version;
    unsigned sensorType;
    int temperature;
} nvmlTemperature_t;

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t handle, nvmlTemperature_t *out)
{
    double value = 0;
    if (out->version != (sizeof *out | 1u << 24))
        return VERSION_MISMATCH;
    if (out->sensorType != 0)
        return INVALID_ARGUMENT;
    nvmlReturn_t code = stub_number("nvmlDeviceGetTemperatureV", handle, "temperature", &value);
    out->temperature = (int)value;
    return code;
}

U64_CALL(nvmlDeviceGetCurrentClocksEventReasons, "clock_event_reasons")
#endif

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, unsigned threshold, unsigned *out)
{
    static const char *names[] = {"temperature_shutdown", "temperature_slowdown", "temperature_memory_max",
                                  "temperature_gpu_max"};
    return threshold < 4
               ? stub_uint("nvmlDeviceGetTemperatureThreshold", handle, names[threshold], out)
               : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, unsigned type, unsigned *out)
{
    static const char *names[] = {"clock_graphics_mhz", "clock_sm_mhz", "clock_memory_mhz", "clock_video_mhz"};
    return type < 4 ? stub_uint("nvmlDeviceGetClockInfo", handle, names[type], out) : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, unsigned type, unsigned *out)
{
    static const char *names[] = {"clock_graphics_max_mhz", "clock_sm_max_mhz", "clock_memory_max_mhz",
                                  "clock_video_max_mhz"};
    return type < 4 ? stub_uint("nvmlDeviceGetMaxClockInfo", handle, names[type], out) : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, unsigned error, unsigned counter,
                                         unsigned long long *out)
{
    static const char *names[] = {"ecc_corrected_volatile", "ecc_corrected_aggregate",
                                  "ecc_uncorrected_volatile", "ecc_uncorrected_aggregate"};
    return error < 2 && counter < 2
               ? read_u64("nvmlDeviceGetTotalEccErrors", handle, names[2 * error + counter], out)
               : INVALID_ARGUMENT;
}

nvmlReturn_t stub_numbers(const char *call, nvmlDevice_t handle, const char **names, int count,
                                 double *values)
{
    struct gpu *gpu;
    nvmlReturn_t code = stub_enter_gpu(call, handle, &gpu);
    if (code != SUCCESS)
        return code;
    for (int i = 0; i < count; i++)
        if (!scenario_number(gpu, names[i], &values[i]))
            return stub_leave(NOT_SUPPORTED);
    return stub_leave(SUCCESS);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t handle, unsigned *corrected, unsigned *uncorrected,
                                       unsigned *pending, unsigned *failure)
{
    static const char *names[] = {"remapped_corrected", "remapped_uncorrected", "remap_pending",
                                  "remap_failure"};
    double values[4];
    nvmlReturn_t code = stub_numbers("nvmlDeviceGetRemappedRows", handle, names, 4, values);
    if (code != SUCCESS)
        return code;
    *corrected = (unsigned)values[0];
    *uncorrected = (unsigned)values[1];
    *pending = (unsigned)values[2];
    *failure = (unsigned)values[3];
    return SUCCESS;
}

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *rates)
{
    static const char *names[] = {"utilization_gpu", "utilization_memory"};
    double values[2];
    nvmlReturn_t code = stub_numbers("nvmlDeviceGetUtilizationRates", handle, names, 2, values);
    if (code == SUCCESS)
        *rates = (nvmlUtilization_t){(unsigned)values[0], (unsigned)values[1]};
    return code;
}

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory)
{
    static const char *names[] = {"memory_total", "memory_used"};
    double values[2];
    nvmlReturn_t code = SUCCESS;
    if (handle->instance == 0)
        code = stub_numbers("nvmlDeviceGetMemoryInfo", handle, names, 2, values);
    for (int i = 0; handle->instance != 0 && code == SUCCESS && i < 2; i++)
        code = stub_instance_number("nvmlDeviceGetMemoryInfo", handle, names[i], &values[i]);
    if (code != SUCCESS)
        return code;
    memory->total = (unsigned long long)values[0];
    memory->used = (unsigned long long)values[1];
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* ---- field values ---- */

typedef union {
    double dVal;
    unsigned uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    long long sllVal;
    int siVal;
} nvmlValue_t;

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

enum value_type { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3, SIGNED_INT = 5 };

static enum value_type type_of(unsigned field)
{
    if (field >= 193 && field <= 196) /* margins */
        return SIGNED_INT;
    if (field == 82 || field == 230 || (field >= 164 && field <= 172) || (field >= 185 && field <= 192))
        return UNSIGNED_INT;
    return UNSIGNED_LONG_LONG;
}

static int is_per_link(unsigned field)
{
    return (field >= 161 && field <= 165) || (field >= 201 && field <= 222) ||
           (field >= 235 && field <= 250);
}

static nvmlReturn_t read_field(const struct gpu *gpu, unsigned field, unsigned scope, double *value)
{
    double c2c_links = 0;
    if (is_per_link(field)) {
        if (gpu->link_count == 0)
            return NOT_SUPPORTED;
        if (scope >= (unsigned)gpu->link_count)
            return INVALID_ARGUMENT;
        if (field == 165) {
            *value = !gpu->link_down[scope];
            return SUCCESS;
        }
        if (gpu->link_down[scope])
            return NOT_SUPPORTED;
    }
    if (field == 171 || (field >= 231 && field <= 233)) {
        if (!scenario_number(gpu, "field_170", &c2c_links))
            return NOT_SUPPORTED;
        if (scope >= (unsigned)c2c_links)
            return INVALID_ARGUMENT;
    }
    if (field == 186 && scope == 1) /* of the module: only where it is given */
        return gpu->field_scoped[186] && scenario_number(gpu, "field_186.1", value) ? SUCCESS : NOT_SUPPORTED;
    return scenario_field(gpu, field, scope, value) ? SUCCESS : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *fields)
{
    struct gpu *gpu;
    nvmlReturn_t code = stub_enter_gpu("nvmlDeviceGetFieldValues", handle, &gpu);
    if (code != SUCCESS)
        return code;
    for (int i = 0; i < count; i++) {
        double value = 0;
        const struct rule *rule = NULL;
        if (scenario.rule_count > 0) {
            char name[TEXT];
            snprintf(name, sizeof name, "field_%u", fields[i].fieldId);
            rule = scenario_rule(name, handle->gpu);
        }
        if (rule != NULL && rule->kind == RULE_FAIL)
            fields[i].nvmlReturn = (nvmlReturn_t)rule->argument;
        else
            fields[i].nvmlReturn = read_field(gpu, fields[i].fieldId, fields[i].scopeId, &value);
        fields[i].valueType = type_of(fields[i].fieldId);
        if (fields[i].valueType == SIGNED_INT)
            fields[i].value.siVal = (int)value;
        else if (fields[i].valueType == UNSIGNED_INT)
            fields[i].value.uiVal = (unsigned)value;
        else
            fields[i].value.ullVal = (unsigned long long)value;
    }
    return stub_leave(SUCCESS);
}

/* ---- NVLink ---- */

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t handle, unsigned link, unsigned *active)
{
    struct gpu *gpu;
    nvmlReturn_t code = stub_enter_gpu("nvmlDeviceGetNvLinkState", handle, &gpu);
    if (code != SUCCESS)
        return code;
    if (gpu->link_count == 0)
        return stub_leave(NOT_SUPPORTED);
    if (link >= (unsigned)gpu->link_count)
        return stub_leave(INVALID_ARGUMENT);
    *active = !gpu->link_down[link];
    return stub_leave(SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t handle, unsigned link, unsigned counter,
                                             unsigned long long *out)
{
    static const char *names[] = {"link_replays", "link_recoveries", "link_crc_flit_errors",
                                  "link_crc_data_errors", "link_ecc_errors"};
    struct gpu *gpu;
    double value = 0;
    nvmlReturn_t code = stub_enter_gpu("nvmlDeviceGetNvLinkErrorCounter", handle, &gpu);
    if (code != SUCCESS)
        return code;
    if (counter >= 5 || link >= (unsigned)gpu->link_count)
        return stub_leave(INVALID_ARGUMENT);
    if (gpu->link_down[link] || !scenario_number(gpu, names[counter], &value))
        return stub_leave(NOT_SUPPORTED);
    *out = (unsigned long long)value;
    return stub_leave(SUCCESS);
}
