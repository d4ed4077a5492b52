/* What a scenario file says; see README.md for the format. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <pthread.h>
#include <stdint.h>

#define MAX_GPUS 32
#define MAX_RULES 64
#define MAX_EVENTS 4096
#define MAX_NUMBERS 192
#define MAX_LINKS 36
#define MAX_FIELDS 512
#define MAX_PROCESSES 64
#define TEXT 96

enum rule_kind { RULE_FAIL, RULE_HANG, RULE_DELAY };

struct rule {
    enum rule_kind kind;
    int gpu; /* -1: every GPU and calls about none */
    char call[TEXT];
    long argument; /* code of FAIL, milliseconds of DELAY */
};

struct number {
    char name[TEXT];
    double value;
    double rate; /* per second since the library was loaded */
};

enum presence { PRESENT, LOST, ABSENT };

struct gpu {
    enum presence presence;
    char uuid[TEXT], serial[TEXT], name[TEXT], vbios[TEXT], pci[TEXT];
    unsigned domain, bus, device;
    struct number numbers[MAX_NUMBERS];
    unsigned hashes[MAX_NUMBERS]; /* of their names */
    int number_count;
    /* Where among the numbers field_N is, from 1; whether there is a field_N.SCOPE too. A poll asks
     * for some eighty fields of each GPU: what the stub costs should not be taken for the agent's. */
    short field_at[MAX_FIELDS];
    unsigned char field_scoped[MAX_FIELDS];
    int link_count;
    unsigned char link_down[MAX_LINKS];
    unsigned pids[MAX_PROCESSES];
    int pid_count;
};

struct xid_event {
    unsigned long id;
    int gpu;
    unsigned xid;
    unsigned long long type;
};

struct scenario {
    char driver[TEXT], nvml[TEXT];
    struct gpu gpus[MAX_GPUS];
    int gpu_count;
    struct rule rules[MAX_RULES];
    int rule_count;
    struct xid_event events[MAX_EVENTS];
    int event_count;
};

extern struct scenario scenario;
extern pthread_mutex_t scenario_lock;

/* Reads the file again where it changed. The lock must be held. */
void scenario_refresh(void);
/* Path of the scenario file, NULL where the environment names none. */
const char *scenario_path(void);
/* The rule for a call, NULL where there is none. The lock must be held. */
const struct rule *scenario_rule(const char *call, int gpu);
/* Value of a number now; 0 where the GPU has no such number. The lock must be held. */
int scenario_number(const struct gpu *gpu, const char *name, double *value);
/* Likewise of field_N.SCOPE, else field_N, else what the call of the same meaning says. */
int scenario_field(const struct gpu *gpu, unsigned field, unsigned scope, double *value);

#endif
