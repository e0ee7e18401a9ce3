/* What one token's row costs most of: the encoder's copy in digits, the exact sums of what it lets through, the decoder.
 *
 * `digits` says why the screen is right, and `exact` has the sums in torch; here each is one pass over memory. Plain C
 * that a compiler makes vectors of; on x86-64 a second copy for AVX2 is chosen when it runs. It must be compiled without
 * -ffast-math and with -ffp-contract=off: the sums are promised to the last bit.
 *
 * The pieces of a job are taken from a counter by whoever comes: `team` is OpenMP's own function, given by address, so
 * that the threads are those which torch or llama.cpp have just used; without one, the caller does all.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__) && !defined(PLAIN)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#endif

#define SPLIT 8      /* as in `bounds` */
#define LARGEST 1e37 /* as in `bounds` */
#define SLACK 1.001  /* as in `bounds` */
#define MIDDLE 7.5   /* of a weight in steps from its first digit; as in `digits` */
#define DITHERED 3.0 /* as in `digits` */
#define FEATURES 512 /* of one piece of the screen */
#define PIECES 8     /* of the exact sums */
#define WIDE 512     /* dimensions that are worth another thread of the decoder */
#define STEPS 126   /* of a row's largest number; with its dither it is rounded to 127 at most */
#define CONSTANTS 5 /* of a feature */
#define LINE 64
#define GUESS 0.75 /* of a TopK's last place in the row before, for the next */

typedef void (*team_function)(void (*)(void *), void *, unsigned, unsigned);

#define SAME static inline __attribute__((always_inline))

struct reader {
    int64_t d_in, d_sae, padded;         /* `padded`: dimensions of the copy, two of them in a byte */
    const uint8_t *first, *second;       /* [d_sae, padded / 2]: digits */
    const double *dither, *row_dither;   /* [padded]: of the weights, of the row */
    const float *constants;              /* [d_sae, CONSTANTS]: step, norm, floor, what `row_dither` gives by its first
                                            digits and by both */
    const float *rows;                   /* [d_sae, d_in]: the encoder */
    const float *bias, *threshold;       /* [d_sae] */
    const float *decoder, *decoder_bias; /* [d_sae, d_in], [d_in]; null without */
    int64_t split;                       /* dimensions in float32, SPLIT at most */
    const int64_t *dimensions;           /* [split] */
    const float *columns;                /* [split, d_sae] */
    int64_t k;                           /* of a TopK, else 0 */
    double largest_norm, of_sums, of_bias;
    team_function team;
    int64_t threads;
    /* of one row */
    int8_t *whole;              /* [padded]: the row as whole numbers */
    float *scratch;             /* [PIECES, d_in] */
    int32_t *found;             /* [d_sae]: features */
    float *lowest, *highest;    /* [d_sae], of those found */
    int32_t *counts;            /* [pieces of d_sae] */
    float *values;              /* [d_sae], of those found */
    float *decoded;             /* [d_in] */
    double last;                /* of a TopK: what the row before had in its last place, at least */
    int64_t candidates;         /* what the screen let through */
    double unexplained;
};

struct job {
    const struct reader *r;
    void (*piece)(const struct job *, int64_t);
    int64_t pieces, next;
    const float *x;                      /* [d_in] */
    int64_t count;                       /* of those found */
    double step, of_norm, of_first, of_both; /* `of_...`: what errors have of a feature's norm and step */
    double by_first, by_both;            /* what of the dither and the middle is in a sum of digits */
    double least;                        /* what a feature must be above, whatever its threshold */
    float split[SPLIT];
};

static void work(void *data) {
    struct job *job = data;
    int64_t piece;
    while ((piece = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED)) < job->pieces) job->piece(job, piece);
}

static void run(struct job *job) {
    job->next = 0;
    if (job->r->team && job->r->threads > 1 && job->pieces > 1)
        job->r->team(work, job, (unsigned)job->r->threads, 0);
    else
        work(job);
}

typedef int32_t (*dot_function)(const uint8_t *, const int8_t *, int64_t);

/* A row of digits by x. Integers: no order of the additions rounds, and a million of 15 * 127 are within 31 bits. */
SAME int32_t dot_plain(const uint8_t *restrict digits, const int8_t *restrict x, int64_t half) {
    int32_t low = 0, high = 0;
    for (int64_t i = 0; i < half; i++) {
        low += (int16_t)(digits[i] & 15) * x[i];
        high += (int16_t)(digits[i] >> 4) * x[half + i];
    }
    return low + high;
}

#ifdef AVX2
#define VECTOR 32

SAME AVX2 __m256i products(__m256i digits, const int8_t *x) {
    return _mm256_maddubs_epi16(digits, _mm256_loadu_si256((const __m256i *)x));
}

/* Of 64 dimensions: sixteen sums of four products, of which 16 bits hold four times as many. */
SAME AVX2 __m256i of_vector(const uint8_t *digits, const int8_t *x, int64_t half) {
    __m256i mask = _mm256_set1_epi8(15), two = _mm256_loadu_si256((const __m256i *)digits);
    return _mm256_add_epi16(products(_mm256_and_si256(two, mask), x),
                            products(_mm256_and_si256(_mm256_srli_epi16(two, 4), mask), x + half));
}

/* The same sum. Bytes are multiplied as they are, which no compiler does by itself: half the time, and so fewer
 * instructions between two reads that more of them are under way at once.
 */
SAME AVX2 int32_t dot_avx2(const uint8_t *digits, const int8_t *x, int64_t half) {
    __m256i ones = _mm256_set1_epi16(1), sums = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 4 * VECTOR <= half; i += 4 * VECTOR) {
        __m256i few[4];
        for (int v = 0; v < 4; v++) few[v] = of_vector(digits + i + v * VECTOR, x + i + v * VECTOR, half);
        __m256i all = _mm256_add_epi16(_mm256_add_epi16(few[0], few[1]), _mm256_add_epi16(few[2], few[3]));
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(all, ones));
    }
    for (; i < half; i += VECTOR)
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(of_vector(digits + i, x + i, half), ones));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
#endif

SAME void ask_for(const void *memory, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += LINE) __builtin_prefetch((const char *)memory + at);
}

/* Of the dimensions split off, in float32, one after the other. */
SAME void add_columns(const struct job *job, int64_t start, int64_t n, float *restrict sums) {
    for (int64_t f = 0; f < n; f++) sums[f] = 0;
    for (int64_t j = 0; j < job->r->split; j++) {
        const float *restrict column = job->r->columns + j * job->r->d_sae + start;
        float x = job->split[j];
        for (int64_t f = 0; f < n; f++) sums[f] += x * column[f];
    }
}

struct estimate {
    double pre, error; /* a feature's pre-activation, and how far the exact one can be from it */
};

/* `sum` of the feature's digits by the row, less what of the middle and both dithers is in them. */
SAME struct estimate estimate(const struct job *job, int64_t f, double sum, float split, double of_step) {
    const struct reader *r = job->r;
    const float *constants = r->constants + CONSTANTS * f;
    double step = constants[0], bias = r->bias[f];
    struct estimate e = {.pre = sum * (step * job->step) + split + bias};
    e.error = step * of_step + constants[1] * job->of_norm + constants[2] + fabs(bias) * r->of_bias;
    return e;
}

SAME int is_silent(const struct job *job, int64_t f, struct estimate e) {
    double threshold = job->r->threshold[f];
    return e.pre + e.error <= (threshold > job->least ? threshold : job->least);
}

/* Features that may be active by their first digits, and of those the ones that may be by both. */
SAME void screen_piece(const struct job *job, int64_t piece, dot_function dot) {
    const struct reader *r = job->r;
    int64_t start = piece * FEATURES, stop = start + FEATURES, half = r->padded / 2, open = 0, count = 0;
    float split[FEATURES];
    int32_t sums[FEATURES], features[FEATURES];
    if (stop > r->d_sae) stop = r->d_sae;
    add_columns(job, start, stop - start, split);
    for (int64_t f = start; f < stop; f++) {
        int32_t sum = dot(r->first + f * half, r->whole, half);
        double less = job->by_first + r->constants[CONSTANTS * f + 3];
        if (is_silent(job, f, estimate(job, f, sum - less, split[f - start], job->of_first))) continue;
        ask_for(r->second + f * half, half); /* read when the first digits of the piece are through */
        sums[open] = sum, features[open++] = (int32_t)f;
    }
    for (int64_t c = 0; c < open; c++) {
        int64_t f = features[c];
        double sum = sums[c] + dot(r->second + f * half, r->whole, half) / 16.0;
        double less = job->by_both + r->constants[CONSTANTS * f + 4];
        struct estimate e = estimate(job, f, sum - less, split[f - start], job->of_both);
        if (is_silent(job, f, e)) continue;
        r->found[start + count] = (int32_t)f;
        r->lowest[start + count] = (float)(e.pre - e.error);
        r->highest[start + count] = (float)(e.pre + e.error);
        count++;
    }
    r->counts[piece] = (int32_t)count;
}

/* The tree of `exact.summed`: the upper half is added to the lower until one is left. */
SAME void sums_piece(const struct job *job, int64_t piece) {
    const struct reader *r = job->r;
    const float *restrict x = job->x;
    float *restrict lower = r->scratch + piece * r->d_in;
    int64_t start = job->count * piece / job->pieces, stop = job->count * (piece + 1) / job->pieces;
    for (int64_t c = start; c < stop; c++) {
        const float *restrict row = r->rows + r->found[c] * r->d_in;
        if (c + 1 < stop) ask_for(r->rows + r->found[c + 1] * r->d_in, 4 * r->d_in);
        for (int64_t i = 0; i < r->d_in; i++) lower[i] = row[i] * x[i];
        for (int64_t length = r->d_in; length > 1;) {
            int64_t half = length / 2;
            const float *restrict upper = lower + length - half;
            for (int64_t i = 0; i < half; i++) lower[i] += upper[i];
            length -= half;
        }
        r->values[c] = lower[0] + r->bias[r->found[c]];
    }
}

SAME void decode_piece(const struct job *job, int64_t piece) {
    const struct reader *r = job->r;
    int64_t start = r->d_in * piece / job->pieces, stop = r->d_in * (piece + 1) / job->pieces;
    float *restrict out = r->decoded;
    for (int64_t i = start; i < stop; i++) out[i] = 0;
    for (int64_t c = 0; c < job->count; c++) {
        const float *restrict row = r->decoder + r->found[c] * r->d_in;
        float value = r->values[c];
        if (c + 1 < job->count) ask_for(r->decoder + r->found[c + 1] * r->d_in + start, 4 * (stop - start));
        for (int64_t i = start; i < stop; i++) out[i] += value * row[i];
    }
    for (int64_t i = start; i < stop; i++) out[i] += r->decoder_bias[i];
}

static void screen_plain(const struct job *job, int64_t piece) { screen_piece(job, piece, dot_plain); }
static void sums_plain(const struct job *job, int64_t piece) { sums_piece(job, piece); }
static void decode_plain(const struct job *job, int64_t piece) { decode_piece(job, piece); }

#ifdef AVX2
AVX2 static void screen_avx2(const struct job *job, int64_t piece) { screen_piece(job, piece, dot_avx2); }
AVX2 static void sums_avx2(const struct job *job, int64_t piece) { sums_piece(job, piece); }
AVX2 static void decode_avx2(const struct job *job, int64_t piece) { decode_piece(job, piece); }
#define CHOSEN(name) (__builtin_cpu_supports("avx2") ? name##_avx2 : name##_plain)
#else
#define CHOSEN(name) name##_plain
#endif

/* The row as whole numbers of a step, all of its bounds, and the dimensions that are split off. */
static int prepare(struct job *job) {
    const struct reader *r = job->r;
    double norm = 0, rest = 0, largest = 0;
    float *kept = r->scratch;
    for (int64_t i = 0; i < r->d_in; i++) {
        kept[i] = job->x[i];
        norm += (double)kept[i] * kept[i];
    }
    for (int64_t j = 0; j < r->split; j++) {
        job->split[j] = kept[r->dimensions[j]];
        kept[r->dimensions[j]] = 0;
    }
    for (int64_t i = 0; i < r->d_in; i++) {
        double size = fabs((double)kept[i]);
        rest += size * size;
        largest = size > largest ? size : largest;
    }
    norm = sqrt(norm);
    if (!(norm * r->largest_norm < LARGEST)) return 0;
    double step = largest / STEPS, steps = step > 0 ? 1 / step : 0;
    job->by_first = job->by_both = 0;
    for (int64_t i = 0; i < r->d_in; i++) {
        int8_t whole = (int8_t)((int32_t)(kept[i] * steps + r->row_dither[i] + 128.5) - 128); /* rounded downwards */
        double given = whole - r->row_dither[i];
        r->whole[i] = whole;
        job->by_first += (MIDDLE - 1.0 / 2 + r->dither[i]) * given;
        job->by_both += (MIDDLE - 1.0 / 32 + r->dither[i]) * given;
    }
    for (int64_t i = r->d_in; i < r->padded; i++) r->whole[i] = 0;
    job->step = step;
    job->of_first = SLACK * DITHERED * sqrt(rest);
    job->of_both = job->of_first / 16;
    job->of_norm = SLACK * (DITHERED * step + r->of_sums * norm);
    return 1;
}

/* The k-th largest of n, 1 <= k <= n; their order is lost. What is no number counts as the smallest. */
static float kth_largest(float *values, int64_t n, int64_t k) {
    int64_t low = 0, high = n - 1, at = k - 1;
    for (int64_t i = 0; i < n; i++)
        if (values[i] != values[i]) values[i] = -INFINITY;
    while (low < high) {
        float middle = values[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (values[i] > middle) i++;
            while (values[j] < middle) j--;
            if (i <= j) {
                float other = values[i];
                values[i++] = values[j], values[j--] = other;
            }
        }
        if (at <= j) high = j;
        else if (at >= i) low = i;
        else break;
    }
    return values[at];
}

static int64_t gather(const struct reader *r, int64_t pieces) {
    int64_t count = 0;
    for (int64_t piece = 0; piece < pieces; count += r->counts[piece++]) {
        size_t size = sizeof(float) * (size_t)r->counts[piece];
        memmove(r->found + count, r->found + piece * FEATURES, size);
        memmove(r->lowest + count, r->lowest + piece * FEATURES, size);
        memmove(r->highest + count, r->highest + piece * FEATURES, size);
    }
    return count;
}

/* Of those found, the ones that are not surely below k others; `last` becomes what the k-th of them surely reaches. */
static int64_t narrow(struct reader *r, int64_t count) {
    r->last = 0;
    if (count <= r->k) return count;
    for (int64_t c = 0; c < count; c++) {
        float lowest = r->lowest[c];
        r->values[c] = lowest > r->threshold[r->found[c]] && lowest > 0 ? lowest : 0;
    }
    float last = kth_largest(r->values, count, r->k);
    int64_t kept = 0;
    for (int64_t c = 0; c < count; c++)
        if (!(r->highest[c] < last)) r->found[kept++] = r->found[c];
    r->last = last;
    return kept;
}

/* Features that may be active, in `found`. A TopK's last place is guessed by the row before: whoever is not above the
 * guess is out, and that was right if k are surely above it; else everything is done again without.
 */
static int64_t screen(struct reader *r, struct job *job) {
    job->least = r->k ? r->last * GUESS : 0;
    run(job);
    int64_t count = gather(r, job->pieces);
    if (!r->k) return count;
    count = narrow(r, count);
    if (job->least == 0 || r->last > job->least) return count;
    job->least = 0;
    run(job);
    return narrow(r, gather(r, job->pieces));
}

/* Of those found and summed, the active ones; of equal ones at a TopK's last place the first. */
static int64_t active(const struct reader *r, int64_t count) {
    int64_t kept = 0;
    for (int64_t c = 0; c < count; c++) {
        float value = r->values[c];
        if (!(value > r->threshold[r->found[c]] && value > 0)) continue;
        r->found[kept] = r->found[c], r->values[kept++] = value;
    }
    if (!r->k || kept <= r->k) return kept;
    memcpy(r->lowest, r->values, sizeof(float) * (size_t)kept);
    float last = kth_largest(r->lowest, kept, r->k);
    int64_t larger = 0, chosen = 0;
    for (int64_t c = 0; c < kept; c++) larger += r->values[c] > last;
    for (int64_t c = 0, equal = r->k - larger; c < kept; c++) {
        if (r->values[c] < last || (r->values[c] == last && equal-- <= 0)) continue;
        r->found[chosen] = r->found[c], r->values[chosen++] = r->values[c];
    }
    return chosen;
}

#define OVERFLOWS (-1)
#define TOO_MANY (-2)

/* `decoded` of the first `count` found; what it leaves of x, as a share of its square. */
static double unexplained(const struct reader *r, const float *x, int64_t count) {
    int64_t pieces = r->d_in / WIDE < PIECES ? r->d_in / WIDE : PIECES;
    struct job job = {.r = r, .piece = CHOSEN(decode), .pieces = pieces > 1 ? pieces : 1, .count = count};
    run(&job);
    double left = 0, whole = 0;
    for (int64_t i = 0; i < r->d_in; i++) {
        double difference = (double)x[i] - r->decoded[i];
        left += difference * difference;
        whole += (double)x[i] * x[i];
    }
    return left / (whole > 1e-12 ? whole : 1e-12);
}

/* How many features are active in x [d_in]; they are in `found`, ascending, and `values`. With `most` 0 every feature
 * is summed, else those that the screen lets through, where they are not more. With a decoder, `unexplained` too.
 */
int64_t neuroscope_read(struct reader *r, const float *x, int64_t most) {
    struct job job = {.r = r, .piece = CHOSEN(screen), .pieces = (r->d_sae + FEATURES - 1) / FEATURES, .x = x};
    if (!prepare(&job)) return OVERFLOWS;
    int64_t count = r->d_sae;
    if (most) {
        count = screen(r, &job);
        if (count > most) return TOO_MANY;
    } else
        for (int64_t f = 0; f < count; f++) r->found[f] = (int32_t)f;
    r->candidates = count;
    struct job sums = {.r = r, .piece = CHOSEN(sums), .pieces = PIECES, .x = x, .count = count};
    run(&sums);
    count = active(r, count);
    if (r->decoder) r->unexplained = unexplained(r, x, count);
    return count;
}

/* The digits of one feature; the module `digits` has what they mean. */
static void copy_feature(const float *restrict row, int64_t d_in, int64_t half, const double *restrict dither,
                         const double *restrict row_dither, uint8_t *restrict first, uint8_t *restrict second,
                         float *step, double *norm, double *by_row_dither) {
    double largest = 0, by_first = 0, by_both = 0, whole = 0;
    int finite = 1;
    for (int64_t i = 0; i < d_in; i++) {
        double size = fabs((double)row[i]);
        finite &= size < INFINITY;
        largest = size > largest ? size : largest;
    }
    float wide = largest > 0 ? nextafterf((float)(largest / MIDDLE), INFINITY) : 0;
    memset(first, 0, (size_t)half);
    memset(second, 0, (size_t)half);
    by_row_dither[0] = by_row_dither[1] = 0;
    for (int64_t i = 0; i < d_in && finite; i++) {
        double shifted = (wide > 0 ? row[i] / (double)wide : 0) + (MIDDLE + dither[i]);
        int one = (int)shifted;
        one = one > 15 ? 15 : one;
        int two = (int)((shifted - one) * 16);
        two = two > 15 ? 15 : two;
        int64_t byte = i < half ? i : i - half;
        first[byte] |= (uint8_t)(i < half ? one : one << 4);
        second[byte] |= (uint8_t)(i < half ? two : two << 4);
        by_row_dither[0] += one * row_dither[i];
        by_row_dither[1] += (one + two / 16.0) * row_dither[i];
        double of_first = wide * (one + 1.0 / 2 - MIDDLE - dither[i]);
        double of_both = wide * (one + (two + 1.0 / 2) / 16 - MIDDLE - dither[i]);
        by_first += of_first * of_first;
        by_both += of_both * of_both;
        whole += (double)row[i] * row[i];
    }
    *step = finite ? wide : NAN;
    by_first = by_first > by_both ? by_first : by_both;
    *norm = sqrt(by_first > whole ? by_first : whole);
}

/* The copy of `rows` [d_sae, d_in] in digits, [d_sae, padded / 2]; of each feature its step, the largest norm of what
 * it is, what its first digits give, and what both give; and its first digits and both by `row_dither`, [d_sae, 2].
 */
void neuroscope_digits(int64_t d_in, int64_t d_sae, int64_t padded, const float *rows, const double *dither,
                       const double *row_dither, uint8_t *first, uint8_t *second, float *step, double *norm,
                       double *by_row_dither) {
    int64_t half = padded / 2;
    for (int64_t f = 0; f < d_sae; f++)
        copy_feature(rows + f * d_in, d_in, half, dither, row_dither, first + f * half, second + f * half, step + f,
                     norm + f, by_row_dither + 2 * f);
}
