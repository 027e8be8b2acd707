/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/names.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"

/* Where a name is, or the free slot where it belongs. */
static size_t slot_of(const struct rs_names *names, const char *text)
{
    size_t mask = names->num_slots - 1;
    size_t slot = (size_t)XXH64(text, strlen(text), 0) & mask;

    while (names->slots[slot] != 0 &&
           strcmp(names->text[names->slots[slot] - 1], text) != 0)
        slot = (slot + 1) & mask;
    return slot;
}

int64_t rs_names_find(const struct rs_names *names, const char *text)
{
    if (names->num_slots == 0)
        return -1;
    return (int64_t)names->slots[slot_of(names, text)] - 1;
}

/* Keep at least half of the slots free. */
static int make_slots(struct rs_names *names)
{
    size_t num_slots = names->num_slots == 0 ? 16 : names->num_slots * 2;
    uint32_t *slots;

    if (names->count * 2 + 2 <= names->num_slots)
        return 0;
    slots = calloc(num_slots, sizeof(*slots));
    if (slots == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for %zu names", names->count);
    free(names->slots);
    names->slots = slots;
    names->num_slots = num_slots;
    for (size_t i = 0; i < names->count; i++)
        names->slots[slot_of(names, names->text[i])] = (uint32_t)i + 1;
    return 0;
}

int64_t rs_names_add(struct rs_names *names, const char *text)
{
    int64_t number = rs_names_find(names, text);
    char *copy;
    char **room;

    if (number >= 0)
        return number;
    if (names->count >= UINT32_MAX - 1)
        return rs_fail(RSCHED_ELIMIT, "more than %zu names", names->count);
    number = make_slots(names);
    if (number != 0)
        return number;
    copy = strdup(text);
    room = rs_array_grow(names->text, &names->capacity, names->count + 1,
                         sizeof(*names->text));
    if (room != NULL)
        names->text = room;
    if (copy == NULL || room == NULL) {
        free(copy);
        return rs_fail(RSCHED_ENOMEM, "no memory for the name %s", text);
    }
    names->slots[slot_of(names, text)] = (uint32_t)names->count + 1;
    names->text[names->count] = copy;
    return (int64_t)names->count++;
}

void rs_names_fini(struct rs_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->text[i]);
    free(names->text);
    free(names->slots);
    memset(names, 0, sizeof(*names));
}
