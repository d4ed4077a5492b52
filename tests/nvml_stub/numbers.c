/* Readings of one GPU: numbers, field values, NVLinks. */
#include "stub.h"

#include <stdio.h>
#include <string.h>

static nvmlReturn_t read_number(const char *call, nvmlDevice_t handle, const char *name, double *value)
{
    struct gpu *gpu;
    nvmlReturn_t code = stub_enter_gpu(call, handle, &gpu);
    if (code != SUCCESS)
        return code;
    return stub_leave(scenario_number(gpu, name, value) ? SUCCESS : NOT_SUPPORTED);
}

static nvmlReturn_t read_uint(const char *call, nvmlDevice_t handle, const char *name, unsigned *out)
{
    double value = 0;
    nvmlReturn_t code = read_number(call, handle, name, &value);
    if (code == SUCCESS)
        *out = (unsigned)value;
    return code;
}

static nvmlReturn_t read_u64(const char *call, nvmlDevice_t handle, const char *name, unsigned long long *out)
{
    double value = 0;
    nvmlReturn_t code = read_number(call, handle, name, &value);
    if (code == SUCCESS)
        *out = (unsigned long long)value;
    return code;
}

/* ---- numbers ---- */

#define UINT_CALL(NAME, NUMBER)                                \
    nvmlReturn_t NAME(nvmlDevice_t handle, unsigned *out)      \
    {                                                          \
        return read_uint(#NAME, handle, NUMBER, out);          \
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
    return sensor == 0 ? read_uint("nvmlDeviceGetTemperature", handle, "temperature", out)
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
    nvmlReturn_t code = read_number("nvmlDeviceGetTemperatureV", handle, "temperature", &value);
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
               ? read_uint("nvmlDeviceGetTemperatureThreshold", handle, names[threshold], out)
               : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, unsigned type, unsigned *out)
{
    static const char *names[] = {"clock_graphics_mhz", "clock_sm_mhz", "clock_memory_mhz", "clock_video_mhz"};
    return type < 4 ? read_uint("nvmlDeviceGetClockInfo", handle, names[type], out) : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, unsigned type, unsigned *out)
{
    static const char *names[] = {"clock_graphics_max_mhz", "clock_sm_max_mhz", "clock_memory_max_mhz",
                                  "clock_video_max_mhz"};
    return type < 4 ? read_uint("nvmlDeviceGetMaxClockInfo", handle, names[type], out) : INVALID_ARGUMENT;
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

/* As enter_gpu, then all `count` numbers or NOT_SUPPORTED. */
static nvmlReturn_t read_numbers(const char *call, nvmlDevice_t handle, const char **names, int count,
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
    nvmlReturn_t code = read_numbers("nvmlDeviceGetRemappedRows", handle, names, 4, values);
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
    nvmlReturn_t code = read_numbers("nvmlDeviceGetUtilizationRates", handle, names, 2, values);
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
    nvmlReturn_t code = read_numbers("nvmlDeviceGetMemoryInfo", handle, names, 2, values);
    if (code != SUCCESS)
        return code;
    memory->total = (unsigned long long)values[0];
    memory->used = (unsigned long long)values[1];
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

#ifndef OLD_DRIVER
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory)
{
    static const char *names[] = {"memory_total", "memory_used", "memory_reserved"};
    double values[3];
    if (memory->version != (sizeof *memory | 2u << 24))
        return VERSION_MISMATCH;
    nvmlReturn_t code = read_numbers("nvmlDeviceGetMemoryInfo_v2", handle, names, 3, values);
    if (code != SUCCESS)
        return code;
    memory->total = (unsigned long long)values[0];
    memory->used = (unsigned long long)values[1];
    memory->reserved = (unsigned long long)values[2];
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}
#endif

/* ---- field values ---- */

typedef union {
    double dVal;
    unsigned uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    long long sllVal;
} nvmlValue_t;

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

/* Fields about one NVLink, named by the scope: state and error counters up to NVLink 4, then NVLink 5's. */
static int about_a_link(unsigned field)
{
    return (field >= 161 && field <= 165) || (field >= 201 && field <= 222);
}

static nvmlReturn_t read_link_field(struct gpu *gpu, const char *name, unsigned field, unsigned link,
                                    double *value)
{
    static const char *old[] = {"link_replays", "link_recoveries", "link_crc_flit_errors"};
    if (link >= (unsigned)gpu->link_count)
        return INVALID_ARGUMENT;
    if (gpu->link_down[link])
        return NOT_SUPPORTED;
    return scenario_number(gpu, field <= 163 ? old[field - 161] : name, value) ? SUCCESS : NOT_SUPPORTED;
}

static nvmlReturn_t read_field(nvmlDevice_t handle, struct gpu *gpu, const nvmlFieldValue_t *field,
                               double *value)
{
    char name[TEXT];
    snprintf(name, sizeof name, "field_%u", field->fieldId);
    const struct rule *rule = scenario_rule(name, handle->gpu);
    if (rule != NULL && rule->kind == RULE_FAIL)
        return (nvmlReturn_t)rule->argument;
    if (about_a_link(field->fieldId))
        return read_link_field(gpu, name, field->fieldId, field->scopeId, value);
    return scenario_number(gpu, name, value) ? SUCCESS : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *fields)
{
    struct gpu *gpu;
    nvmlReturn_t code = stub_enter_gpu("nvmlDeviceGetFieldValues", handle, &gpu);
    if (code != SUCCESS)
        return code;
    for (int i = 0; i < count; i++) {
        double value = 0;
        unsigned id = fields[i].fieldId;
        fields[i].nvmlReturn = read_field(handle, gpu, &fields[i], &value);
        /* Temperature, power and recovery action are unsigned int (type 1), counters unsigned long long (3). */
        fields[i].valueType = id == 82 || id == 186 || id == 230 ? 1 : 3;
        if (fields[i].valueType == 1)
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
