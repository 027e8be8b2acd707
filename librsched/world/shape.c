/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/world/shape.h"

#include <stdio.h>
#include <string.h>

#include "librsched/base/error.h"

static const char axes[] = "xyzabcde";

int rs_shape_parse(const char *text, struct rs_shape *shape)
{
    struct rs_shape read = {.count = 1};
    const char *c = text;

    for (;; c++) {
        uint64_t number = 0;
        size_t digits = strspn(c, "0123456789");

        if (digits == 0 || digits > 7 || *c == '0' ||
            read.num_dims == RS_DIMENSIONS_MOST)
            break;
        for (; digits > 0; digits--)
            number = 10 * number + (uint64_t)(*c++ - '0');
        if (number * read.count > RS_TOPOLOGY_MOST)
            return rs_fail(RSCHED_EINVAL, "'%.64s' has more than %d nodes",
                           text, RS_TOPOLOGY_MOST);
        read.dims[read.num_dims++] = (uint32_t)number;
        read.count *= (uint32_t)number;
        if (*c == '\0') {
            *shape = read;
            return 0;
        }
        if (*c != 'x')
            break;
    }
    return rs_fail(RSCHED_EINVAL, "'%.64s' is not a grid such as 8x6 of 1 to "
                   "%d dimensions", text, RS_DIMENSIONS_MOST);
}

const char *rs_shape_text(const struct rs_shape *shape, char *buffer,
                          size_t size)
{
    size_t length = 0;

    for (uint32_t d = 0; d < shape->num_dims && length < size; d++)
        length += (size_t)snprintf(buffer + length, size - length, "%s%u",
                                   d > 0 ? "x" : "",
                                   (unsigned)shape->dims[d]);
    return buffer;
}

void rs_shape_block(const struct rs_shape *nodes, uint32_t processes,
                    struct rs_shape *block)
{
    uint32_t factors[32], count = 0;

    *block = (struct rs_shape){.num_dims = nodes->num_dims,
                               .count = processes};
    for (uint32_t d = 0; d < nodes->num_dims; d++)
        block->dims[d] = 1;
    for (uint32_t f = 2; processes > 1; f++) {
        for (; processes % f == 0; processes /= f)
            factors[count++] = f;
    }
    while (count > 0) { /* the largest factor to the smallest side */
        uint32_t least = 0;

        for (uint32_t d = 1; d < nodes->num_dims; d++) {
            if (block->dims[d] < block->dims[least])
                least = d;
        }
        block->dims[least] *= factors[--count];
    }
}

void rs_shape_grid(const struct rs_shape *nodes, const struct rs_shape *block,
                   struct rs_shape *grid)
{
    *grid = (struct rs_shape){.num_dims = nodes->num_dims,
                              .count = nodes->count * block->count};
    for (uint32_t d = 0; d < nodes->num_dims; d++)
        grid->dims[d] = nodes->dims[d] * block->dims[d];
}

static bool compass_step(const char *direction, uint32_t num_dims,
                         int32_t *step)
{
    static const char letters[] = "WENS";

    for (; *direction != '\0'; direction++) {
        const char *letter = strchr(letters, *direction);
        uint32_t dim;

        if (letter == NULL)
            return false;
        dim = (uint32_t)(letter - letters) / 2;
        if (dim >= num_dims || step[dim] != 0)
            return false;
        step[dim] = (letter - letters) % 2 == 0 ? -1 : 1;
    }
    return true;
}

static bool axis_step(const char *direction, uint32_t num_dims, int32_t *step)
{
    for (; *direction != '\0'; direction += 2) {
        const char *axis;

        if ((direction[0] != '-' && direction[0] != '+') ||
            direction[1] == '\0')
            return false;
        axis = strchr(axes, direction[1]);
        if (axis == NULL || axis - axes >= num_dims || step[axis - axes] != 0)
            return false;
        step[axis - axes] = direction[0] == '-' ? -1 : 1;
    }
    return true;
}

bool rs_shape_step(const struct rs_shape *shape, const char *direction,
                   int32_t *step)
{
    memset(step, 0, RS_DIMENSIONS_MOST * sizeof(*step));
    if (*direction == '-' || *direction == '+')
        return axis_step(direction, shape->num_dims, step);
    return *direction != '\0' && shape->num_dims <= 2 &&
           compass_step(direction, shape->num_dims, step);
}

uint32_t rs_shape_neighbor(const struct rs_shape *shape, uint32_t from,
                           const int32_t *step)
{
    uint32_t to = 0, stride = 1;

    for (uint32_t d = 0; d < shape->num_dims; d++) {
        uint32_t size = shape->dims[d], at = from % size;

        at = (at + size + (uint32_t)step[d]) % size; /* modulo 2^32 */
        to += at * stride;
        stride *= size;
        from /= size;
    }
    return to;
}

uint32_t rs_shape_node(const struct rs_shape *grid,
                       const struct rs_shape *block, uint32_t process)
{
    uint32_t node = 0, stride = 1;

    for (uint32_t d = 0; d < grid->num_dims; d++) {
        node += process % grid->dims[d] / block->dims[d] * stride;
        stride *= grid->dims[d] / block->dims[d];
        process /= grid->dims[d];
    }
    return node;
}

const char *rs_shape_direction(const struct rs_shape *shape, uint32_t from,
                               uint32_t to, const char *like, char *buffer)
{
    bool compass = *like != '-' && *like != '+' && shape->num_dims <= 2;
    int32_t step[RS_DIMENSIONS_MOST];
    size_t length = 0;

    buffer[0] = '\0';
    for (uint32_t d = 0; d < shape->num_dims; d++) {
        uint32_t size = shape->dims[d];
        uint32_t up = (to % size + size - from % size) % size;

        if (up > 1 && up < size - 1)
            return buffer;
        step[d] = up == 0 ? 0 : up == 1 ? 1 : -1;
        from /= size;
        to /= size;
    }
    for (uint32_t i = 0; i < shape->num_dims; i++) {
        uint32_t d = compass ? shape->num_dims - 1 - i : i;

        if (step[d] == 0)
            continue;
        if (compass) {
            buffer[length++] = "WENS"[2 * d + (step[d] > 0)];
        } else {
            buffer[length++] = step[d] > 0 ? '+' : '-';
            buffer[length++] = axes[d];
        }
    }
    buffer[length] = '\0';
    return buffer;
}

uint64_t rs_shape_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

uint64_t rs_shape_seed(uint64_t seed)
{
    uint64_t z = seed + UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return z != 0 ? z : 1;
}

void rs_shape_shuffle(uint32_t *order, uint32_t count, uint64_t seed)
{
    uint64_t state = rs_shape_seed(seed);

    for (uint32_t i = count; i > 1; i--) {
        uint32_t pick = (uint32_t)((rs_shape_random(&state) >> 11) % i);
        uint32_t moved = order[i - 1];

        order[i - 1] = order[pick];
        order[pick] = moved;
    }
}
