/* Keeps one named tensor of each graph that llama.cpp computes: its evaluation callback.
 *
 * The callback is asked about every node of the graph, some thousand times a token; in Python that costs up to a
 * tenth of the time. The three functions are ggml's own, given by address, so that nothing is linked and no struct
 * of ggml's is known here.
 */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct tap {
    const char *(*name)(const void *tensor);
    size_t (*nbytes)(const void *tensor);
    void (*get)(const void *tensor, void *data, size_t offset, size_t size);
    const char *wanted;
    char *rows;
    size_t capacity; /* bytes of `rows` */
    size_t filled;   /* bytes that came; more than `capacity` when they did not fit and were not kept */
};

bool neuroscope_tap(void *tensor, bool ask, void *user_data) {
    struct tap *tap = user_data;
    if (strcmp(tap->name(tensor), tap->wanted) != 0) return false;
    if (ask) return true;
    size_t size = tap->nbytes(tensor);
    if (tap->filled + size <= tap->capacity) tap->get(tensor, tap->rows + tap->filled, 0, size);
    tap->filled += size;
    return true;
}
