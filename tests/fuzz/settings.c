/* SPDX-License-Identifier: BSD-3-Clause */
/* Any text as the value of every setting: what is accepted lies within the
 * limits, what is refused changes nothing. */
#include "librsched/base/config.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[256];
    char allowed[128];

    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        const struct entry *entry = &table[i];
        struct rs_config before = config;
        uint64_t number;

        describe_allowed(entry, allowed, sizeof(allowed));
        if (!set_value(entry, text)) {
            if (memcmp(&before, &config, sizeof(config)) != 0)
                abort();
            continue;
        }
        if (entry->kind != KIND_BYTES && entry->kind != KIND_COUNT &&
            entry->kind != KIND_TIME)
            continue;
        memcpy(&number, (const char *)&config + entry->offset, sizeof(number));
        if (number < entry->least || number > entry->most)
            abort();
    }
    config = (struct rs_config){0}; /* text is gone after this */
    return 0;
}
